"""Expressions on elements, against NumPy."""

from typing import Any

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from blas_lab import SHARED, dtypes, execute, seeds
from elementwise_lab import NAMES, broadcastable, by_numpy, evaluated, special_values, whole_values
from hypothesis import given
from hypothesis import strategies as st
from tensor_lab import place_tensor, placed, tensor_layouts

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.elementwise import Map, MapMany
from callboard.kernel.elementwise.functions import FUNCTIONS
from callboard.kernel.elementwise.program import compiled
from callboard.testing.tolerances import assert_close

EVERY = [pytest.param(DTYPES[name], id=name) for name in NAMES]
ROUGH = {"gamma": 16, "lgamma": 16, "pow": 16, "tan": 4, "atanh": 4, "acosh": 4, "acos": 4, "erfc": 64, "log1p": 4}
"""Functions whose error is larger: by how much, also near zeros of theirs."""
MANY = [
    "x + y",
    "x - y * y",
    "max(x, y) + min(x, y)",
    "x * y < y",
    "where(x == y, x, y)",
    "x if x != y else 1",
    "abs(x)",
]
MANY += [
    "2 * x + y",
    "square(x) + 1",
    "(x > 0) & (y > 0) | ~(x < y)",
    "-x",
    "f32(x) + y",
    "x / 2",
    "3 - x",
    "x * 0.5 + y",
]


@pytest.mark.parametrize("dtype", EVERY)
def test_every_function(session: Any, dtype: DType) -> None:
    """In one kernel."""
    statements, names = ["first = where(a != a, b, c)"], []  # so that the inputs are a, b, c in this order
    for name, function in FUNCTIONS.items():
        call = f"{name}({', '.join('abc'[: function.arity])})"
        try:
            compiled(call, (dtype,) * function.arity)
        except ShapeError:
            continue
        statements.append(f"r_{name} = {call}")
        names.append(name)
    text, keep = "\n".join(statements), tuple(f"r_{name}" for name in names)
    arrays = [special_values(dtype, seed) for seed in range(3)]
    program = compiled(text, (dtype,) * 3, (), keep)
    results = [program.steps[at].dtype for at in program.results]
    outs = tuple(session.empty(arrays[0].shape, result) for result in results)
    refs = tuple(session.put(array) for array in arrays)
    execute(session, MapMany(expression=text, operands=refs, outs=outs, keep=keep))
    for name, result, out in zip(names, results, outs, strict=True):
        if not (name == "pow" and dtype.kind == "int"):  # NumPy refuses negative exponents
            with np.errstate(all="ignore"):
                check(
                    name,
                    dtype,
                    result,
                    session.get(out),
                    by_numpy(name, arrays[: FUNCTIONS[name].arity], result),
                    arrays,
                )


def check(name: str, dtype: DType, result: DType, got: Any, want: Any, arrays: Any) -> None:
    want = np.asarray(want)
    try:
        if name == "nextafter":
            assert_neighbour(arrays[0], arrays[1], got)
        elif result.kind in ("float", "complex"):
            if want.dtype.kind not in "fc":
                want = want.astype(np.float64)
            if name == "complex":
                got, want = np.where(np.isfinite(got.imag), got, 0), np.where(np.isfinite(got.imag), want, 0)
            with np.errstate(all="ignore"):
                finite = np.isfinite(want.astype(got.dtype)) & np.isfinite(got)
            rough = ROUGH.get(name, 1)
            assert_close(
                got, want, result, kind="elementwise", scale=rough * np.where(finite, np.abs(want) + (rough > 1), 0)
            )
        else:
            np.testing.assert_array_equal(got, want.astype(result.np))
    except AssertionError as e:
        raise AssertionError(f"{name} of {dtype}: {e}") from None


def assert_neighbour(x: Any, y: Any, got: Any) -> None:
    want = np.nextafter(x, y)
    wide = np.float64
    np.testing.assert_array_equal(got.astype(wide), want.astype(got.dtype).astype(wide))


def test_integer_powers(session: Any) -> None:
    x = np.array([1, -1, -1, 2, 0, 3, -2, 7], np.int32)
    n = np.array([-5, -4, -3, -1, -1, 4, 31, 0], np.int32)
    got = session.get(execute(session, Map(expression="x ** n", operands=(session.put(x), session.put(n)))))
    assert got.tolist() == [1, 1, -1, 0, 0, 81, -(2**31), 1]


@SHARED
@given(data=st.data(), text=st.sampled_from(MANY), first=dtypes(*NAMES), second=dtypes(*NAMES), seed=seeds)
def test_any_dtypes_shapes_and_layouts(
    session: Any, data: st.DataObject, text: str, first: DType, second: DType, seed: int
) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=4)))
    arrays, refs = {}, []
    for name, dtype in zip("xy" if "y" in text else "x", (first, second), strict=False):
        ones = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
        own = broadcastable(shape, ones, data.draw(st.integers(0, len(shape))))
        arrays[name] = whole_values(dtype, own, seed + len(refs))
        refs.append(place_tensor(session, arrays[name], data.draw(tensor_layouts(own))))
    try:
        program = compiled(text, tuple(ref.dtype for ref in refs))
    except ShapeError as e:
        hypothesis.event(str(e)[-60:])  # complex numbers have no order, floats no bits
        hypothesis.reject()
    result = program.steps[program.results[0]].dtype
    wide = {name: x.astype(np.float32) if x.dtype == ml_dtypes.bfloat16 else x for name, x in arrays.items()}
    want = np.asarray(evaluated(PYTHON.get(text, text), wide))
    out = None
    if data.draw(st.booleans()):
        out = place_tensor(session, np.zeros(want.shape, result.np), data.draw(tensor_layouts(want.shape)))
    got = session.get(execute(session, Map(expression=text, operands=tuple(refs), out=out)))
    assert got.dtype == result.np
    if DTYPES["bf16"] not in (first, second):
        assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want.astype(result.np))


PYTHON = {
    "max(x, y) + min(x, y)": "maximum(x, y) + minimum(x, y)",
    "x if x != y else 1": "where(x != y, x, 1)",
}
"""What NumPy's arrays take otherwise."""


@pytest.mark.parametrize("size", [1, 3, 4, 5, 127, 1024, 4099, 100_003])
def test_sizes_around_packs_and_blocks(session: Any, size: int) -> None:
    x, y = whole_values(DTYPES["f32"], (size,), 1), whole_values(DTYPES["u8"], (size,), 2)
    for first in (0, 1):  # at an address of a pack's alignment, and at one of an element's
        refs = placed(session, x, first), placed(session, y, first)
        op = Map(expression="alpha * x + y", operands=refs, scalars=(2.5,), numbers=("alpha",))
        np.testing.assert_array_equal(session.get(execute(session, op)), np.float32(2.5) * x + y)


def test_rows_beside_a_vector(session: Any) -> None:
    """Packs along the rows, and where a row is not a multiple of one, elements."""
    for columns in (8, 12, 9, 1024):
        x, y = whole_values(DTYPES["f32"], (37, columns), 1), whole_values(DTYPES["f32"], (columns,), 2)
        z = whole_values(DTYPES["f32"], (37, 1), 3)
        refs = tuple(session.put(a) for a in (x, y, z))
        got = session.get(execute(session, Map(expression="x * y + z", operands=refs)))
        np.testing.assert_array_equal(got, x * y + z)


def test_a_result_in_place_of_an_operand(session: Any) -> None:
    x, y = whole_values(DTYPES["f32"], (700,), 1), whole_values(DTYPES["f32"], (700,), 2)
    at_x, at_y = session.put(x), session.put(y)
    execute(session, Map(expression="x = x * y - x", operands=(at_x, at_y), out=at_x))
    np.testing.assert_array_equal(session.get(at_x), x * y - x)
    before = session.get(at_x)
    exchange = "t = a; a = b; b = t"
    execute(session, MapMany(expression=exchange, operands=(at_x, at_y), outs=(at_x, at_y), keep=("a", "b")))
    np.testing.assert_array_equal(session.get(at_x), y)
    np.testing.assert_array_equal(session.get(at_y), before)


@pytest.mark.parametrize("dtype", EVERY)
def test_numbers_take_the_dtype_beside_them(session: Any, dtype: DType) -> None:
    x = whole_values(dtype, (9,), 1)
    ref = session.put(x)
    for number in (True, 2, 0.5, 0.5j):
        bools = ("n",) if number is True else ()
        op = Map(expression="x + n", operands=(ref,), scalars=(number,), numbers=("n",), bools=bools)
        got = session.get(execute(session, op))
        if dtype is DTYPES["bf16"]:
            want = (x.astype(np.float32) + number).astype(np.complex64 if number == 0.5j else x.dtype)
        else:
            want = x + number
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_halves_are_rounded_when_they_are_stored(session: Any) -> None:
    """Not between operations: 60000 * 2 is infinite in f16, and its half is not."""
    x = np.array([60000, 1.5], np.float16)
    ref = session.put(x)
    got = session.get(execute(session, Map(expression="x * 2 / 2", operands=(ref,))))
    np.testing.assert_array_equal(got, x)
    got = session.get(execute(session, Map(expression="f16(x * 2) / 2", operands=(ref,))))
    np.testing.assert_array_equal(got, np.array([np.inf, 1.5], np.float16))


def test_integers_wrap_around_and_round_down(session: Any) -> None:
    x = np.array([7, -7, 7, -7, -(2**31), 5], np.int32)
    y = np.array([2, 2, -2, -2, -1, 0], np.int32)
    refs = session.put(x), session.put(y)
    quotient = session.get(execute(session, Map(expression="x // y", operands=refs)))
    rest = session.get(execute(session, Map(expression="x % y", operands=refs)))
    assert quotient.tolist() == [3, -4, -4, 3, -(2**31), 0]
    assert rest.tolist() == [1, 1, -1, -1, 0, 0]


def test_unsigned_and_signed_integers_of_64_bits_compare_by_value(session: Any) -> None:
    x, y = np.array([2**63 + 5, 3, 0], np.uint64), np.array([-1, 3, -5], np.int64)
    got = session.get(execute(session, Map(expression="x > y", operands=(session.put(x), session.put(y)))))
    assert got.tolist() == [True, False, True]
