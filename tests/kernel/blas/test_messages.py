"""The messages: declarations, errors before they exist, and encoding."""

import inspect
import math
from collections import deque
from typing import Any

import msgspec
import numpy as np
import pytest

import callboard.kernel.blas as blas
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import OPS, Op, info_of, outputs_of
from callboard.core.operand import Placeholder, Role
from callboard.core.opinfo import read_signature
from callboard.core.ref import Allocation, GpuRef
from callboard.kernel.blas import Axpy, Geam, Gemm, GemmBatched, GemmGrouped, Gemv, Scal

MESSAGES = {tag: cls for tag, cls in OPS.items() if tag.startswith("blas.")}


def array(*shape: int, dtype: str = "f32") -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def ref(*shape: int) -> GpuRef:
    """A ref without a device."""
    port: Any = None
    return GpuRef(port, Allocation(1, deque()), layout_of(DTYPES["f32"], shape), 0)


def test_all_has_every_message() -> None:
    assert {cls.__name__ for cls in MESSAGES.values()} | {"BlasActor", "VectorPair"} == set(blas.__all__)


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_docstring_says_what_it_does_and_names_every_field(cls: type[Op[Any, Any]]) -> None:
    text = inspect.getdoc(cls)
    assert text
    first, _, arguments = text.partition("Args:")
    assert first.splitlines()[0].endswith(".")
    named = {
        name.strip() for line in arguments.splitlines() if ":" in line for name in line.partition(":")[0].split(",")
    }
    assert set(cls.__struct_fields__) <= named
    assert "f32" in text or "c64" in text, "says which dtypes it takes"


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_reply_is_what_the_class_says(cls: type[Op[Any, Any]]) -> None:
    info = info_of(cls)
    roles = [info.roles[name] for name in cls.returns]
    assert roles, "every message of BLAS answers something"
    assert set(roles) <= {Role.OUT, Role.INOUT}
    assert {f.name for f in info.dynamic if f.role in (Role.OUT, Role.INOUT)} == set(cls.returns)
    if len(roles) > 1:
        assert cls.results is not None
        assert cls.results._fields == cls.returns
    if cls.value:
        assert cls.returns == ("out",)
    for written, read in cls.overlaps:
        assert info.roles[written] in (Role.OUT, Role.INOUT)
        assert info.roles[read] is Role.IN


def numbers_of(op: Op[Any, Any]) -> list[Any]:
    return [getattr(op, f.name) for f in info_of(type(op)).dynamic if f.role is Role.SCALAR]


@pytest.mark.parametrize("beta", [1.0, -0.0, math.nan, array()], ids=["1", "-0", "nan", "0-d"])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2j, array()], ids=["1", "1.5", "2j", "0-d"])
def test_a_signature_does_not_depend_on_values_and_comes_back(alpha: Any, beta: Any) -> None:
    """Equal signatures mean equal plans: ``infer`` sees the kinds of the numbers only."""
    c = array(3, 3, dtype="c64") if beta != 0 else None
    number = array(dtype="c64")
    alpha, beta = (number if isinstance(x, Placeholder) else x for x in (alpha, beta))
    op = Gemm(a=array(3, 4, dtype="c64"), b=array(4, 3, dtype="c64"), c=c, alpha=alpha, beta=beta, tf32=False)
    signature = info_of(Gemm).split(op).signature
    tag, statics, skeleton = read_signature(signature)
    again = info_of(Gemm).join(OPS[tag], statics, skeleton)
    assert info_of(Gemm).split(again).signature == signature
    assert outputs_of(again) == outputs_of(op)
    assert [type(x) for x in numbers_of(again)] == [type(x) for x in numbers_of(op)]


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda x: Gemm(a=x, b=x, beta=1), "blas.gemm: beta is 1.0 and c is None"),
        (lambda x: Gemm(a=x, b=x, beta=math.nan), "blas.gemm: beta is nan and c is None"),
        (lambda x: Gemm(a=x, b=x, beta=array()), "and c is None"),
        (lambda x: blas.GemmStridedBatched(a=x, b=x, beta=1), "blas.gemm_strided_batched: beta is 1.0 and c is None"),
        (lambda x: GemmBatched(a=(x,), b=(x,), beta=1), "blas.gemm_batched: beta is 1.0 and c is None"),
        (lambda x: GemmBatched(a=(), b=()), "a is empty"),
        (lambda x: GemmGrouped(a=(x,), b=(x, x), c=(x,)), "a holds 1 matrices and b 2"),
        (lambda x: GemmGrouped(a=(x,), b=(x,), c=()), "a holds 1 matrices and c 0"),
        (lambda x: blas.Symm(a=x, b=x, beta=1), "blas.symm: beta is 1.0 and c is None"),
        (lambda x: blas.Hemm(a=x, b=x, beta=1), "blas.hemm: beta is 1.0 and c is None"),
        (lambda x: Gemv(a=x, x=x, beta=1), "blas.gemv: beta is 1.0 and y is None"),
    ],
)
def test_refused_before_the_message_exists(make: Any, says: str) -> None:
    with pytest.raises(ShapeError) as caught:
        make(array(3, 3))
    assert says in str(caught.value)


@pytest.mark.parametrize("alpha", [0.5, math.nan, math.inf, 2.0**31, -(2.0**31) - 1])
def test_factors_of_i8_are_integers_of_32_bits(alpha: float) -> None:
    x, c = array(4, 4, dtype="i8"), array(4, 4, dtype="i32")
    with pytest.raises(ShapeError, match="with i8 arrays it must be an integer of 32 bits"):
        Gemm(a=x, b=x, alpha=alpha)
    with pytest.raises(ShapeError, match="with i8 arrays it must be an integer of 32 bits"):
        GemmGrouped(a=(x,), b=(x,), c=(c,), beta=alpha)
    assert Gemm(a=x, b=x, c=c, alpha=-(2.0**31), beta=2.0**31 - 1).beta == 2**31 - 1


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda x: Gemm(a=np.ones((3, 3)), b=x), "blas.gemm: a is ndarray; pass a GpuRef (dev.put(array) makes one)"),
        (lambda x: Gemm(a=x, b=None), "blas.gemm: b is NoneType; pass a GpuRef"),
        (lambda x: Gemm(a=x, b=x, alpha="2"), "blas.gemm: alpha is str; pass a number or a 0-d GpuRef"),
        (lambda x: Gemm(a=x, b=x, transpose_a=2), "blas.gemm: transpose_a = 2"),
        (lambda x: GemmBatched(a=x, b=(x,)), "blas.gemm_batched: a is Placeholder; pass a tuple of GpuRefs"),
        (lambda x: Scal(x=x, alpha=None), "blas.scal: alpha is NoneType"),
    ],
)
def test_wrong_types_are_named(make: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        make(array(3, 3))
    assert says in str(caught.value)


def test_numbers_of_numpy_become_pythons() -> None:
    x = array(4)
    assert type(Axpy(x=x, y=x, alpha=np.float32(0.5)).alpha) is float
    assert type(Axpy(x=x, y=x, alpha=np.complex64(1j)).alpha) is complex
    assert type(Axpy(x=x, y=x, alpha=2).alpha) is float


def test_a_message_cannot_be_changed() -> None:
    op = Gemm(a=array(3, 3), b=array(3, 3))
    with pytest.raises(AttributeError):
        op.alpha = 2.0  # type: ignore[misc]
    assert msgspec.structs.replace(op, alpha=2.0).alpha == 2.0


def test_geam_refuses_to_overwrite_what_it_transposes() -> None:
    a, b = ref(3, 3), ref(3, 3)
    assert Geam(a=a, b=b, out=a).out is a
    assert Geam(a=a, b=b, out=b, transpose_a=True).out is b
    for view in (a, a[:], a[0:3]):
        with pytest.raises(ShapeError, match=r"blas\.geam: out is a, which is transposed; give another out"):
            Geam(a=a, b=b, out=view, transpose_a=True)
    with pytest.raises(ShapeError, match=r"out is b, which is transposed"):
        Geam(a=a, b=b, out=b, transpose_b=True)
