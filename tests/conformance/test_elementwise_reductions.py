"""Reductions of expressions, against NumPy."""

import warnings
from typing import Any

import hypothesis
import numpy as np
import pytest
from blas_lab import SHARED, dtypes, execute, seeds
from elementwise_lab import NAMES, broadcastable, whole_values
from hypothesis import given
from hypothesis import strategies as st
from tensor_lab import place_tensor, placed, tensor_layouts

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.elementwise import Reduce
from callboard.kernel.elementwise.reduction import compiled_reduction
from callboard.testing.tolerances import assert_close

BY_NUMPY: dict[str, Any] = {
    "sum": np.sum,
    "prod": np.prod,
    "mean": np.mean,
    "min": np.min,
    "max": np.max,
    "any": np.any,
    "all": np.all,
    "argmin": np.argmin,
    "argmax": np.argmax,
}
ORDERED = ("min", "max", "argmin", "argmax")


@SHARED
@given(data=st.data(), name=st.sampled_from([*BY_NUMPY]), dtype=dtypes(*NAMES), other=dtypes(*NAMES), seed=seeds)
def test_any_axes_dtypes_and_layouts(
    session: Any, data: st.DataObject, name: str, dtype: DType, other: DType, seed: int
) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 5]), max_size=4)))
    if name not in ORDERED and shape and data.draw(st.booleans()):
        shape = (*shape[:-1], 0)
    arrays, refs = [], []
    for own_dtype in (dtype, other):
        ones = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
        own = broadcastable(shape, ones, 0)
        arrays.append(whole_values(own_dtype, own, seed + len(refs), 1 if name == "prod" else 2))
        refs.append(place_tensor(session, arrays[-1], data.draw(tensor_layouts(own))))
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    axes = tuple(data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(0, len(shape)))])
    if name.startswith("arg"):
        axes = axes[:1]
    given_axes = data.draw(st.sampled_from([None, axes])) if not name.startswith("arg") or axes else None
    keepdims = data.draw(st.booleans())
    text = f"{name}(x * y)"
    try:
        reduction = compiled_reduction(text, tuple(ref.dtype for ref in refs))
    except ShapeError as e:
        hypothesis.event(str(e)[-60:])  # complex numbers have no order
        hypothesis.reject()
    wide = [a.astype(np.float32) if a.dtype == DTYPES["bf16"].np else a for a in arrays]
    axis: Any = None if given_axes is None else given_axes
    if name.startswith("arg") and axis is not None:
        (axis,) = axis
    with np.errstate(all="ignore"):
        product = wide[0] * wide[1]
        want = np.asarray(_reduced(name, product, axis, keepdims))
    out = None
    if data.draw(st.booleans()):
        out = place_tensor(session, np.zeros(want.shape, reduction.result.np), data.draw(tensor_layouts(want.shape)))
    op = Reduce(expression=text, operands=tuple(refs), axes=given_axes, keepdims=keepdims, out=out)
    got = session.get(execute(session, op))
    assert got.dtype == reduction.result.np
    if DTYPES["bf16"] not in (dtype, other):
        assert got.dtype == want.dtype
    if name == "mean":
        assert_close(got, want, reduction.result, kind="elementwise", scale=np.abs(want) + 1)
    else:
        np.testing.assert_array_equal(got, want.astype(got.dtype))


def _reduced(name: str, product: Any, axis: Any, keepdims: bool) -> Any:
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        return BY_NUMPY[name](product, axis=axis, keepdims=keepdims)


SHAPES = [(1,), (255,), (4096,), (100_003,), (300_000,), (700, 33), (3, 4099), (40_000, 5), (6, 500, 7), (2, 3, 5000)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("name", ["sum", "max", "argmax"])
def test_sizes_around_blocks_and_parts(session: Any, name: str, shape: tuple[int, ...]) -> None:
    x = whole_values(DTYPES["f32"], shape, 3, 100)
    for ref, array in ((session.put(x), x), (session.put(np.ascontiguousarray(x.T)).T, x), (placed(session, x, 1), x)):
        for axis in (None, *range(len(shape))):
            axes = None if axis is None else (axis,)
            got = session.get(execute(session, Reduce(expression=f"{name}(x)", operands=(ref,), axes=axes)))
            np.testing.assert_array_equal(got, BY_NUMPY[name](array.astype("f8"), axis=axis))


@pytest.mark.parametrize("name", ["min", "max", "argmin", "argmax"])
def test_a_nan_wins(session: Any, name: str) -> None:
    x = whole_values(DTYPES["f32"], (5000,), 1)
    x[[4000, 4321]] = np.nan
    got = session.get(execute(session, Reduce(expression=f"{name}(x)", operands=(session.put(x),))))
    np.testing.assert_array_equal(got, 4000 if name.startswith("arg") else np.nan)


def test_functions_around_a_reduction(session: Any) -> None:
    x = np.random.default_rng(1).standard_normal((50, 300)).astype("f4")
    ref = session.put(x)
    op = Reduce(expression="sqrt(sum(x * x) / n) * 2", operands=(ref,), axes=(1,), scalars=(300,), numbers=("n",))
    want = np.sqrt((x.astype("f8") ** 2).sum(1) / 300) * 2
    assert_close(session.get(execute(session, op)), want, "f32", 300)


def test_equal_calls_give_equal_bits(session: Any) -> None:
    x = np.random.default_rng(1).standard_normal(300_001).astype("f4")
    ref = session.put(x)
    op = Reduce(expression="sum(x * x)", operands=(ref,))
    first, second = (session.get(execute(session, op)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_sums_are_accumulated_in_a_wider_type(session: Any) -> None:
    halves = np.full(4096, 100, np.float16)  # their sum is beyond f16
    got = session.get(execute(session, Reduce(expression="mean(x)", operands=(session.put(halves),))))
    assert got.dtype == np.float16
    assert got == 100
    small = np.full(1000, 100, np.int8)
    got = session.get(execute(session, Reduce(expression="sum(x)", operands=(session.put(small),))))
    assert got.dtype == np.int64
    assert got == 100_000
    got = session.get(execute(session, Reduce(expression="sum(x)", operands=(session.put(small),), dtype="i8")))
    assert got.dtype == np.int8
    assert got == np.int64(100_000).astype(np.int8)


@pytest.mark.parametrize(
    "text, axes, why",
    [
        ("sum(x) + x", None, "is outside"),
        ("x + 1", None, "once"),
        ("sum(sum(x))", None, "once"),
        ("sum(x)", (2,), "out of range"),
        ("sum(x)", (0, -2), "twice"),
        ("argmax(x)", (0, 1), "along one axis"),
        ("max(x)", (1,), "of no elements"),
    ],
    ids=lambda v: v if isinstance(v, str) and "(" in v else "",
)
def test_what_is_refused(session: Any, text: str, axes: Any, why: str) -> None:
    shape = (3, 0, 2) if text == "argmax(x)" else (3, 0) if text == "max(x)" else (3, 4)
    with pytest.raises(ShapeError, match=why):
        session.submit(Reduce(expression=text, operands=(session.empty(shape),), axes=axes))
