"""The messages: declarations, inference, and errors before anything is sent."""

import inspect
from typing import Any

import pytest

import callboard.kernel.blas_lt as blas_lt
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import OPS, Op, info_of, outputs_of
from callboard.core.operand import Placeholder
from callboard.core.opinfo import read_signature
from callboard.kernel.blas_lt import Matmul, MatmulAux, MatmulBgrad
from callboard.kernel.blas_lt.checks import scale_kind
from callboard.kernel.blas_lt.epilogues import EPILOGUES, Traits

MESSAGES = {tag: cls for tag, cls in OPS.items() if tag.startswith("blas_lt.")}
ALL = ["f16", "bf16", "f32", "f64", "i8", "f8_e4m3", "f8_e5m2"]


def array(*shape: int, dtype: str = "f32", strides: tuple[int, ...] | None = None) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape, strides))


def test_all_has_every_message() -> None:
    assert {cls.__name__ for cls in MESSAGES.values()} <= set(blas_lt.__all__)
    assert len(MESSAGES) == 3


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_docstring_says_what_it_does_and_names_every_field(cls: type[Op[Any, Any]]) -> None:
    text = inspect.getdoc(cls)
    assert text
    first, _, arguments = text.partition("Args:")
    assert first.splitlines()[0].split("(``")[0].rstrip().endswith((".", "``"))
    flat = " ".join(arguments.split())
    for name in cls.__struct_fields__:
        assert f" {name}:" in f" {flat}" or f"{name}," in flat, name


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_several_outputs_are_a_named_tuple_in_their_order(cls: type[Op[Any, Any]]) -> None:
    if len(cls.returns) > 1:
        assert cls.results is not None
        assert cls.results._fields == cls.returns


def test_there_are_sixteen_epilogues_and_each_has_one_message() -> None:
    assert len(EPILOGUES) == 16
    assert EPILOGUES["gelu_aux_bias"] == Traits("gelu", bias=True, aux=True)
    assert EPILOGUES["drelu_bgrad"] == Traits("relu", backward=True, aux=True, grad="out")
    assert EPILOGUES["bgrad_a"] == Traits(grad="a")
    for name in EPILOGUES:
        takers = []
        for cls in MESSAGES.values():
            try:
                cls(a=array(2, 2), b=array(2, 2), epilogue=name)  # type: ignore[call-arg]
                takers.append(cls)
            except ShapeError as e:
                assert f"epilogue is {name!r}, which has another answer; use dev.blas_lt.matmul" in str(e)  # noqa: PT017 - counted above
        assert len(takers) == 1, name


@pytest.mark.parametrize(
    "op, outputs",
    [
        (Matmul(a=array(3, 4), b=array(4, 5)), {"out": layout_of(DTYPES["f32"], (3, 5))}),
        (Matmul(a=array(4, 3), b=array(2, 4, 5), transpose_a=True), {"out": layout_of(DTYPES["f32"], (2, 3, 5))}),
        (Matmul(a=array(1, 4, 3), b=array(7, 3, 2)), {"out": layout_of(DTYPES["f32"], (7, 4, 2))}),
        (Matmul(a=array(3, 4, dtype="i8"), b=array(4, 5, dtype="i8")), {"out": layout_of(DTYPES["i32"], (3, 5))}),
        (
            Matmul(a=array(3, 4, dtype="f8_e5m2"), b=array(4, 5, dtype="f8_e4m3"), out_dtype="f8_e4m3"),
            {"out": layout_of(DTYPES["f8_e4m3"], (3, 5))},
        ),
        (
            MatmulAux(a=array(3, 4), b=array(4, 129), epilogue="relu_aux"),
            {"out": layout_of(DTYPES["f32"], (3, 129)), "aux": layout_of(DTYPES["u8"], (3, 32))},
        ),
        (
            MatmulAux(a=array(3, 4, dtype="f8_e4m3"), b=array(4, 5, dtype="f8_e4m3"), out_dtype="f8_e4m3"),
            {"out": layout_of(DTYPES["f8_e4m3"], (3, 5)), "aux": layout_of(DTYPES["bf16"], (3, 5))},
        ),
        (
            MatmulBgrad(a=array(2, 3, 4), b=array(4, 5), epilogue="bgrad_a"),
            {"out": layout_of(DTYPES["f32"], (2, 3, 5)), "bias_grad": layout_of(DTYPES["f32"], (2, 3))},
        ),
    ],
)
def test_outputs_follow_from_operands_and_epilogue(op: Any, outputs: Any) -> None:
    assert outputs_of(op) == outputs


X, B, H = array(16, 16), array(16), array(16, 16, dtype="bf16")
Q = array(16, 16, dtype="f8_e4m3")
ZERO = array()
REFUSED: list[tuple[type[Any], dict[str, Any], str]] = [
    (Matmul, {"a": X, "b": array(15, 16)}, "op(a) is [16, 16] and op(b) [15, 16]; their inner extents must be equal"),
    (Matmul, {"a": X, "b": H}, "b is bf16[16, 16] and a is f32[16, 16]: both must have one dtype (x.astype converts"),
    (Matmul, {"a": array(4, 4, dtype="i16"), "b": X}, "a is i16[4, 4]; its dtype must be one of f16, bf16"),
    (Matmul, {"a": array(4), "b": X}, "a is f32[4]; it must have 2 axes, or 3 for a batch of matrices"),
    (Matmul, {"a": array(4, 4, strides=(8, 2)), "b": X}, "a is f32[4, 4], strides (8, 2): rows or columns must"),
    (Matmul, {"a": array(2, 16, 16), "b": array(3, 16, 16)}, "2 and 3 matrices; the first extents must be equal"),
    (Matmul, {"a": array(2, 4, 4, strides=(-16, 4, 1)), "b": array(4, 4)}, "its matrices run backwards; copy it first"),
    (
        Matmul,
        {"a": X, "b": X, "out": array(16, 16, strides=(1, 16))},
        "column-major; it must be row-major: pass dev.copy",
    ),
    (Matmul, {"a": X, "b": X, "out": array(16, 15)}, "out is f32[16, 15], expected f32[16, 16]"),
    (Matmul, {"a": X, "b": X, "out_dtype": "f16"}, "out would be f16; with f32 its dtype must be one of f32"),
    (Matmul, {"a": X, "b": X, "c": H, "beta": 1}, "c is bf16[16, 16], expected f32[16, 16]"),
    (Matmul, {"a": X, "b": X, "beta": 1}, "beta is 1.0 and c is None"),
    (Matmul, {"a": X, "b": X, "alpha": 1j}, "alpha is complex and the arrays are f32; pass a real number"),
    (Matmul, {"a": H, "b": H, "alpha": array(dtype="bf16")}, "alpha is bf16[]; for bf16 to bf16 a 0-d array must be"),
    (Matmul, {"a": X, "b": X, "epilogue": "bias"}, "epilogue is 'bias' and bias is None; pass bias="),
    (Matmul, {"a": X, "b": X, "bias": B, "epilogue": "relu"}, "take an epilogue with bias, 'relu_bias'"),
    (Matmul, {"a": X, "b": X, "bias": B}, "take an epilogue with bias, 'bias'"),
    (Matmul, {"a": X, "b": X, "bias": array(15), "epilogue": "bias"}, "bias is f32[15], expected f32[16]: one number"),
    (Matmul, {"a": X, "b": X, "bias": array(16, strides=(2,)), "epilogue": "bias"}, "pass dev.copy(bias)"),
    (Matmul, {"a": X, "b": X, "epilogue": "dgelu"}, "aux is None; pass the aux of the forward pass (gelu_aux)"),
    (Matmul, {"a": X, "b": X, "aux": X}, "epilogue is 'none' and aux is f32[16, 16]; leave it out"),
    (Matmul, {"a": X, "b": X, "aux": X, "epilogue": "drelu"}, "aux is f32[16, 16], expected u8[16, 16], as the"),
    (Matmul, {"a": X, "b": X, "scale_a": ZERO}, "a is f32; only fp8 factors are scaled (use alpha)"),
    (Matmul, {"a": Q, "b": Q, "scale_a": array(15)}, "scale_a is f32[15], expected f32 of shape [] or [16] or [16, 1]"),
    (Matmul, {"a": Q, "b": Q, "scale_b": array(dtype="f16")}, "scale_b is f16[], expected f32 of shape []"),
    (Matmul, {"a": Q, "b": Q, "scale_a": B}, "scale_a scales by outer and scale_b by tensor; both must scale by"),
    (Matmul, {"a": array(2, 16, 16, dtype="f8_e4m3"), "b": Q, "scale_a": B}, "the matrices of a batch share one scale"),
    (Matmul, {"a": Q, "b": Q, "amax": ZERO}, "amax is f32[] and out is bf16; it goes with an fp8 out only"),
    (Matmul, {"a": Q, "b": Q, "scale_out": B, "out_dtype": "f8_e4m3"}, "scale_out is f32[16]; it must be a 0-d array"),
    (Matmul, {"a": X, "b": X, "fast_accum": True}, "a is f32; leave it out, it applies to fp8 only"),
    (Matmul, {"a": H, "b": H, "tf32": True}, "tf32 is True and the arrays are bf16"),
    (Matmul, {"a": X, "b": X, "autotune": 65}, "autotune is 65; it must be a number of candidates, 0 to 64"),
    (Matmul, {"a": X, "b": X, "autotune": 2, "deterministic": True}, "the fastest algorithm differs from run to run"),
    (Matmul, {"a": X, "b": X, "workspace_size": -1}, "workspace_size is -1; it must be a number of bytes"),
    (
        Matmul,
        {"a": array(4, 4, dtype="i8"), "b": array(4, 4, dtype="i8"), "epilogue": "relu"},
        "epilogue is 'relu' and a is i8; integer products take 'none' only",
    ),
    (
        Matmul,
        {"a": array(4, 4, dtype="i8"), "b": array(4, 4, dtype="i8"), "alpha": 0.5},
        "with i8 arrays it must be an integer of 32 bits",
    ),
    (MatmulAux, {"a": X, "b": X, "aux": array(16, 16, dtype="f16")}, "aux is f16[16, 16], expected f32[16, 16]"),
    (MatmulBgrad, {"a": X, "b": X, "bias_grad": array(15)}, "bias_grad is f32[15], expected f32[16]"),
    (MatmulBgrad, {"a": X, "b": X, "bias_grad": array(16, strides=(2,))}, "its last axis must have no gaps"),
]


@pytest.mark.parametrize("cls, fields, says", REFUSED)
def test_what_does_not_fit_is_refused_by_name_value_and_cure(cls: type[Any], fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ShapeError) as caught:
        outputs_of(cls(**fields))
    assert str(caught.value).startswith(f"{info_of(cls).tag}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("dtype", ALL)
def test_a_signature_comes_back(dtype: str) -> None:
    x = array(16, 16, dtype=dtype)
    op = Matmul(a=x, b=x, alpha=3.0, autotune=2, workspace_size=123)
    signature = info_of(Matmul).split(op).signature
    tag, statics, skeleton = read_signature(signature)
    again = info_of(Matmul).join(OPS[tag], statics, skeleton)
    assert info_of(Matmul).split(again).signature == signature
    assert outputs_of(again) == outputs_of(op)


@pytest.mark.parametrize(
    "shape, kind",
    [((), "tensor"), ((256,), "outer"), ((256, 3), "block_1d"), ((2, 3), "block_2d"), ((3, 2), None), ((255,), None)],
)
def test_the_shape_of_a_scale_says_what_it_scales(shape: tuple[int, ...], kind: str | None) -> None:
    assert scale_kind(shape, 256, 300) == kind
