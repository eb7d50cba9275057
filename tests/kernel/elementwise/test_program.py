"""Dtypes of expressions: promotion, numbers, steps that are made once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType, as_dtype, dtypes_of
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.kernel.elementwise.program import compiled
from callboard.kernel.elementwise.promotion import ELEMENTS, Weak, floating, join, join_weak
from callboard.kernel.elementwise.reduction import compiled_reduction
from callboard.kernel.elementwise.shapes import broadcast, spread

F32, F16, U8, I64 = dtypes_of("f32 f16 u8 i64")
OF_NUMPY = [d for d in ELEMENTS if d.name != "bf16"]
WEAK: tuple[tuple[Weak, Any], ...] = (("bool", True), ("int", 1), ("float", 1.5), ("complex", 1j))


def result(text: str, *dtypes: DType, **numbers: Weak) -> str:
    program = compiled(text, dtypes, tuple(numbers.items()))
    return program.steps[program.results[0]].dtype.name


def test_arrays_are_promoted_as_numpy_promotes_them() -> None:
    for a in OF_NUMPY:
        for b in OF_NUMPY:
            assert join(a, b) is as_dtype(np.promote_types(a.np, b.np)), (a, b)


def test_promotion_is_symmetric_and_holds_both() -> None:
    for a in ELEMENTS:
        assert join(a, a) is a
        for b in ELEMENTS:
            assert join(a, b) is join(b, a)
            assert join(join(a, b), a) is join(a, b)


def test_numbers_are_weak_as_in_numpy() -> None:
    for dtype in OF_NUMPY:
        for kind, number in WEAK:
            want = np.result_type(dtype.np, number) if kind == "bool" else (np.ones(1, dtype.np) + number).dtype
            assert join_weak(dtype, kind) is as_dtype(want), (dtype, kind)
        assert floating(dtype).np == np.sqrt(np.ones(1, dtype.np)).dtype


def test_brain_floats_meet_others_in_the_smallest_type_that_holds_both() -> None:
    bf16 = DTYPES["bf16"]
    found = {d.name: join(bf16, d).name for d in ELEMENTS}
    assert found == {
        **dict.fromkeys(("bool", "i8", "u8", "bf16"), "bf16"),
        **dict.fromkeys(("i16", "u16", "f16", "f32"), "f32"),
        **dict.fromkeys(("i32", "u32", "i64", "u64", "f64"), "f64"),
        "c64": "c64",
        "c128": "c128",
    }


def test_results_of_expressions() -> None:
    assert result("x * 2.5", F16) == "f16"
    assert result("x / 2", U8) == "f64"
    assert result("x * n", U8, n="float") == "f64"
    assert result("where(x > 0, 1, 0)", F32) == "i64"
    assert result("where(x > 0, 1, 0.5)", F32) == "f64"
    assert result("abs(x) + 1j", F32) == "c64"
    assert result("x < y", U8, I64) == "bool"
    assert result("bitwise_count(x)", I64) == "u8"
    assert result("flag & x", U8, flag="bool") == "u8"


def test_equal_steps_are_made_once_and_unused_ones_not_at_all() -> None:
    program = compiled("t = sin(x) + 1; u = exp(x); z = sin(x) * sin(x) + t", (F32,))
    assert [step.function for step in program.steps] == ["operand", "sin", "constant", "add", "multiply", "add"]
    zeros = compiled("x + 0.0 + -0.0", (F32,))
    assert [str(s.value) for s in zeros.steps if s.function == "constant"] == ["0.0", "-0.0"]


def test_powers_by_a_few_numbers_are_other_functions() -> None:
    for text, name in (("x ** 2", "square"), ("x ** 0.5", "sqrt"), ("x ** -1", "reciprocal"), ("x ** 3", "pow")):
        assert compiled(text, (F32,)).steps[-1].function == name
    assert compiled("x ** 1", (F32,)).steps[-1].function == "operand"
    assert compiled("x ** -1", (I64,)).steps[-1].function == "pow"


def test_values_of_numbers_are_computed_for_each_call() -> None:
    program = compiled("x * (a * b + 1)", (F32,), (("a", "int"), ("b", "float")))
    assert program.values([3, 0.5]) == [2.5]
    flags = compiled("x * flag", (F32,), (("flag", "bool"),))
    assert flags.values([1]) == [1.0]
    assert compiled("x + 1", (F32,)).values(None) == []


@pytest.mark.parametrize("number", [-1, 256, 2**70])
def test_an_integer_that_does_not_fit_is_refused(number: int) -> None:
    with pytest.raises(ShapeError, match=r"with u8 it must lie in \[0, 255\]"):
        compiled(f"x + {number}", (U8,))
    with pytest.raises(ShapeError, match="n is"):
        compiled("x + n", (U8,), (("n", "int"),)).values([number])


@pytest.mark.parametrize(
    "text, dtype, why",
    [
        ("x < 1", "c64", "does not support complex"),
        ("x - x", "bool", "not subtracted"),
        ("x & 1", "f32", "bits"),
        ("f32(x)", "c64", r"take real\(\)"),
        ("erf(x)", "c128", "does not support complex"),
        ("sum(x) + 1", "f32", "cb.reduction"),
    ],
)
def test_functions_that_a_dtype_has_not(text: str, dtype: str, why: str) -> None:
    with pytest.raises(ShapeError, match=why):
        compiled(text, (DTYPES[dtype],))


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple), min_size=1, max_size=4))
def test_shapes_broadcast_as_in_numpy(shapes: list[tuple[int, ...]]) -> None:
    try:
        want = np.broadcast_shapes(*shapes)
    except ValueError:
        want = None
    assert broadcast(shapes) == want
    if want is not None and 0 not in want:
        for shape in shapes:
            array = np.broadcast_to(np.empty(shape, "i1"), want)
            steps = spread(layout_of(DTYPES["i8"], shape), want)
            assert [s for s, n in zip(steps, want, strict=True) if n > 1] == [
                s for s, n in zip(array.strides, want, strict=True) if n > 1
            ]


def test_dtypes_of_reductions() -> None:
    for dtype in OF_NUMPY:
        for name in ("sum", "prod", "mean", "any", "min", "argmax"):
            if dtype.is_complex and name in ("min", "argmax"):
                continue
            want = np.asarray(getattr(np, name)(np.ones(3, dtype.np))).dtype
            assert compiled_reduction(f"{name}(x)", (dtype,)).result is as_dtype(want), (name, dtype)
    assert compiled_reduction("sum(x)", (F16,)).accumulator is F16
    assert compiled_reduction("mean(x)", (F16,)).accumulator is F32
    assert compiled_reduction("sum(x)", (U8,), (), F32).result is F32
    with pytest.raises(ShapeError, match="takes no dtype"):
        compiled_reduction("max(x)", (U8,), (), F32)
