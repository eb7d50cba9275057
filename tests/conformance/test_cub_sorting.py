"""Sorts, largest elements, binary searches and histograms."""

import itertools
from typing import Any

import numpy as np
import pytest
from cub_lab import FLOATS, NUMBERS, ORDERED, drawn, lengths, ordered, same, seeds, wide
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel import cub

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)  # one session for all
VALUES = ("i8", "f16", "f32", "i64", "c128", "bool")
shapes = st.builds(
    lambda rows, n: (n,) if rows is None else (rows, min(n, 300 if rows > 3 else n)),
    st.sampled_from([None, 1, 3, 70]), lengths,
)  # fmt: skip


@pytest.mark.parametrize("dtype", ORDERED)
@SHARED
@given(shape=shapes, descending=st.booleans(), seed=seeds)
def test_sort(session: Any, dtype: str, shape: tuple[int, ...], descending: bool, seed: int) -> None:
    keys = drawn(seed, shape, dtype)
    order, ref = ordered(keys, descending), session.put(keys)
    got = session.get(session.submit(cub.Sort(keys=ref, descending=descending)))
    same(got, np.take_along_axis(keys, order, -1))
    places = session.get(session.submit(cub.ArgSort(keys=ref, descending=descending)))
    np.testing.assert_array_equal(places, order)


@SHARED
@given(
    shape=shapes,
    dtype=st.sampled_from(["f16", "f32", "i64", "bool"]),
    value=st.sampled_from(VALUES),
    descending=st.booleans(),
    seed=seeds,
)
def test_sort_pairs(session: Any, shape: tuple[int, ...], dtype: str, value: str, descending: bool, seed: int) -> None:
    keys, order = drawn(seed, shape, dtype), None
    order = ordered(keys, descending)
    values = np.arange(keys.size).reshape(shape).astype(DTYPES[value].np)
    op = cub.SortPairs(keys=session.put(keys), values=session.put(values), descending=descending)
    got = session.submit(op)
    found = session.get(got.keys)
    assert found.tobytes() == np.take_along_axis(keys, order, -1).tobytes(), "keys keep their bits, and their order"
    same(session.get(got.values), np.take_along_axis(values, order, -1))


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_order_of_nan_and_of_zeros(session: Any, dtype: str) -> None:
    """NaN of either sign comes last, or first; zeros of either sign are equal and stay in their order."""
    signed = np.array([np.nan, 0.0, -0.0, -np.inf, -np.nan, 0.0, np.inf, -0.0, 1.0])
    keys = np.copysign(signed, [1, 1, -1, -1, -1, 1, 1, -1, 1]).astype(DTYPES[dtype].np)
    ref = session.put(keys)
    assert session.get(session.submit(cub.ArgSort(keys=ref))).tolist() == [3, 1, 2, 5, 7, 8, 6, 0, 4]
    assert session.get(session.submit(cub.ArgSort(keys=ref, descending=True))).tolist() == [0, 4, 6, 8, 1, 2, 5, 7, 3]
    got = session.get(session.submit(cub.Sort(keys=ref)))
    assert np.isnan(wide(got)[-2:]).all()
    assert np.signbit(wide(got)).tolist()[:7] == [True, False, True, False, True, False, False]


@pytest.mark.parametrize("part", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("signs", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_nans_of_all_bits_keep_their_order(session: Any, dtype: str, signs: tuple[int, ...], part: float) -> None:
    """Also where each has bits of its own, and where all keys are NaN."""
    rng, n, kind = np.random.default_rng(3), 70_000, DTYPES[dtype].np
    keys = rng.standard_normal(n).astype(kind)
    word = np.dtype(f"u{kind.itemsize}")
    nan = np.array([np.nan], kind).view(word)[0] | rng.integers(0, 50, n).astype(word)
    nan = np.where(rng.choice(signs, n) == 1, nan | word.type(1 << 8 * kind.itemsize - 1), nan)
    keys = np.where(rng.random(n) < part, nan, keys.view(word)).view(kind)
    values = rng.integers(0, 2**16, n).astype(np.uint16)
    refs = session.put(keys), session.put(values)
    for descending in (False, True):
        order = ordered(keys, descending)
        got = session.submit(cub.SortPairs(keys=refs[0], values=refs[1], descending=descending))
        assert session.get(got.keys).tobytes() == keys[order].tobytes()
        same(session.get(got.values), values[order])
        alone = session.get(session.submit(cub.Sort(keys=refs[0], descending=descending)))
        same(alone, keys[order])


def test_more_keys_than_a_block_sorts(session: Any) -> None:
    keys = np.random.default_rng(1).permutation(1_200_000).astype(np.float32)
    same(session.get(session.submit(cub.Sort(keys=session.put(keys)))), np.sort(keys))
    backward = np.arange(1024, dtype=np.int32)[::-1].copy()
    same(session.get(session.submit(cub.Sort(keys=session.put(backward)))), backward[::-1])
    few = np.array([5, 3, 9], np.int32)  # padding must not be among them
    same(session.get(session.submit(cub.Sort(keys=session.put(few)))), np.sort(few))


def test_few_long_rows(session: Any) -> None:
    keys = np.random.default_rng(1).standard_normal((3, 70_000)).astype(np.float32)
    ref = session.put(keys)
    same(session.get(session.submit(cub.Sort(keys=ref, descending=True))), np.sort(keys)[:, ::-1])
    same(session.get(session.submit(cub.ArgSort(keys=ref))), np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(
        session.get(session.submit(cub.Scan(x=ref, operation="min"))), np.minimum.accumulate(keys, axis=1)
    )


@SHARED
@given(
    sizes=st.lists(st.sampled_from([0, 0, 1, 2, 31, 33, 300, 1025]), min_size=1, max_size=9), descending=st.booleans(),
    index=st.sampled_from(["i32", "i64"]), dtype=st.sampled_from(["f16", "f32", "i64"]), seed=seeds,
)  # fmt: skip
def test_segmented_sort(session: Any, sizes: list[int], descending: bool, index: str, dtype: str, seed: int) -> None:
    keys, values = drawn(seed, sum(sizes), dtype), np.arange(sum(sizes))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(DTYPES[index].np)
    refs = [session.put(array) for array in (keys, values, offsets)]
    got = session.submit(cub.SegmentedSort(keys=refs[0], values=refs[1], offsets=refs[2], descending=descending))
    want = [a + ordered(keys[a:b], descending) for a, b in itertools.pairwise(offsets)]
    order = np.concatenate(want).astype(np.int64)
    same(session.get(got.keys), keys[order])
    same(session.get(got.values), values[order])


@SHARED
@given(n=lengths, dtype=st.sampled_from(["f16", "i32", "u8"]), seed=seeds)
def test_merge_sort(session: Any, n: int, dtype: str, seed: int) -> None:
    keys, values = drawn(seed, min(n, 2100), dtype, odd=False, few=True), np.arange(min(n, 2100), dtype=np.int16)
    texts: Any = {"cuda": "return a * a < b * b;", "python": "a * a < b * b"}
    got = session.submit(cub.MergeSort(keys=session.put(keys), values=session.put(values), **texts))
    order = np.argsort(wide(keys) * wide(keys), kind="stable")
    same(session.get(got.keys), keys[order])
    same(session.get(got.values), values[order])


@pytest.mark.parametrize("dtype", ["f16", "f32", "i64", "bool"])
@SHARED
@given(shape=shapes, part=st.floats(0, 1), largest=st.booleans(), seed=seeds)
def test_top_k(session: Any, dtype: str, shape: tuple[int, ...], part: float, largest: bool, seed: int) -> None:
    x = drawn(seed, shape, dtype)
    k = int(part * part * shape[-1])
    got = session.submit(cub.TopK(x=session.put(x), k=k, largest=largest))
    order = ordered(x, largest)[..., :k]
    np.testing.assert_array_equal(session.get(got.indices), order)
    same(session.get(got.values), np.take_along_axis(x, order, -1))


# -- searches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ORDERED)
@SHARED
@given(n=lengths, m=st.sampled_from([0, 1, 300]), seed=seeds)
def test_bounds(session: Any, dtype: str, n: int, m: int, seed: int) -> None:
    x = drawn(seed, n, dtype)
    x = x[ordered(x)]
    values = drawn(seed + 1, (2, m), dtype)
    refs = session.put(x), session.put(values)
    for op, side in ((cub.LowerBound, "left"), (cub.UpperBound, "right")):
        got = session.get(session.submit(op(x=refs[0], values=refs[1])))
        np.testing.assert_array_equal(got, np.searchsorted(wide(x), wide(values), side=side))  # type: ignore[call-overload]


# -- histograms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
@SHARED
@given(n=lengths, bins=st.sampled_from([1, 2, 7, 255, 257, 20_000]), seed=seeds)
def test_histogram_even(session: Any, dtype: str, n: int, bins: int, seed: int) -> None:
    x = drawn(seed, n, dtype)
    lower, upper = (-3.5, 6.5) if dtype in FLOATS else (0.0, 100.0)
    out = session.put(np.full(bins, 5))  # it is overwritten
    session.submit(cub.HistogramEven(x=session.put(x), bins=bins, lower=lower, upper=upper, out=out))
    exact = wide(x).astype(np.float64)
    inside = exact[(exact >= lower) & (exact < upper)]
    at = np.minimum(np.floor((inside - lower) * (bins / (upper - lower))).astype(int), bins - 1)
    np.testing.assert_array_equal(session.get(out), np.bincount(at, minlength=bins))


def test_samples_below_the_first_bin(session: Any) -> None:
    """Cut off towards 0 they would be in it."""
    x = session.put(np.array([-0.5, -0.01, 0.0, 0.99, 1.0, np.nan, 4.0], np.float32))
    got = session.submit(cub.HistogramEven(x=x, bins=4, lower=0, upper=4))
    assert session.get(got).tolist() == [2, 1, 0, 0]


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64", "i8", "u16", "i64", "u64"])
@SHARED
@given(n=lengths, levels=st.sampled_from([2, 3, 100]), seed=seeds)
def test_histogram_range(session: Any, dtype: str, n: int, levels: int, seed: int) -> None:
    x, borders = (
        drawn(seed, n, dtype),
        np.sort(wide(drawn(seed + 1, levels, dtype, odd=False))).astype(DTYPES[dtype].np),
    )
    got = session.get(session.submit(cub.HistogramRange(x=session.put(x), levels=session.put(borders))))
    samples, edges = wide(x), wide(borders)
    want = [int(((samples >= a) & (samples < b)).sum()) for a, b in itertools.pairwise(edges)]
    assert got.tolist() == want


def test_histograms_of_channels(session: Any) -> None:
    x = np.random.default_rng(2).integers(0, 256, (50, 40, 4)).astype(np.uint8)
    got = session.get(session.submit(cub.HistogramEven(x=session.put(x), bins=256, lower=0, upper=256, channels=3)))
    np.testing.assert_array_equal(got, [np.bincount(x[..., c].reshape(-1), minlength=256) for c in range(3)])
    levels = np.array([0, 10, 11, 200], np.uint8)
    got = session.get(session.submit(cub.HistogramRange(x=session.put(x), levels=session.put(levels), channels=4)))
    np.testing.assert_array_equal(got, [np.histogram(x[..., c][x[..., c] < 200], levels)[0] for c in range(4)])


def test_bounds_of_bins_that_are_no_numbers(session: Any) -> None:
    x = session.put(np.ones(3, "f4"))
    for lower, upper in ((0, np.inf), (np.nan, 1), (2, 1)):
        with pytest.raises(ShapeError, match="they must be finite, the lower one less"):
            session.submit(cub.HistogramEven(x=x, bins=2, lower=lower, upper=upper))
