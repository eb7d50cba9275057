"""Conversions, ranges, gathers and scatters, against NumPy: every dtype, any strides, indices of every integer type."""

from typing import Any

import numpy as np
import pytest
from blas_lab import SHARED, dtypes, seeds
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.array import Arange, Cast, Gather, Scatter, TakeAlong

Array = np.ndarray[Any, Any]

NUMBERED = ["f16", "bf16", "f32", "f64", "c64", "c128", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"]
INDICES = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
VIEWS = {
    "whole": (...,),
    "backwards": (slice(None, None, -1), ...),
    "every second": (slice(None, None, 2), ...),
    "last axis backwards": (..., slice(None, None, -1)),
    "inner": (slice(1, 4), ..., slice(1, 3)),
}
views = st.sampled_from(list(VIEWS.values()))
shapes = st.sampled_from([(4, 6), (5, 3, 4), (4, 1, 6), (4, 0)])


def small(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """Numbers that every dtype but bool and the unsigned ones holds exactly; those get their magnitudes."""
    array: Array = np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)
    if dtype.kind in ("uint", "bool") or dtype.name == "f4_e2m1":
        array = np.abs(array)
    return (array * (1 + 0.5j if dtype.is_complex else 1)).astype(dtype.np)


@pytest.mark.parametrize("name", DTYPES)
@SHARED
@given(to=dtypes(*DTYPES), seed=seeds, shape=shapes, view=views, transposed=st.booleans())
def test_cast(
    session: Any, name: str, to: DType, seed: int, shape: tuple[int, ...], view: Any, transposed: bool
) -> None:
    dtype = DTYPES[name]
    if dtype.is_complex and not (to.is_complex or to.kind == "bool"):
        return
    host = small(dtype, shape, seed)
    if to.kind == "uint":
        host = np.abs(host.astype(np.float64)).astype(dtype.np)
    ref, want = session.put(host)[view], host[view]
    if transposed:
        ref, want = ref.T, want.T
    got = session.get(session.submit(Cast(src=ref, dtype=to.name)))
    assert got.dtype == to.np
    np.testing.assert_array_equal(got.astype(np.complex128), want.astype(to.np).astype(np.complex128))


@pytest.mark.parametrize("to", ["i8", "u8", "i16", "u32", "i64", "u64"])
@pytest.mark.parametrize("source", ["i8", "u8", "i16", "u16", "i32", "i64", "u64"])
def test_integers_wrap_around(session: Any, source: str, to: str) -> None:
    info = np.iinfo(DTYPES[source].np)
    host = np.array([info.min, info.max, info.max // 2, 1], DTYPES[source].np)
    got = session.get(session.submit(Cast(src=session.put(host), dtype=to)))
    np.testing.assert_array_equal(got, host.astype(DTYPES[to].np))


@pytest.mark.parametrize("to", ["f16", "bf16", "f32", "bool"])
def test_floats_are_rounded_to_the_nearest(session: Any, to: str) -> None:
    host = np.array([0.1, -2.5, 65519.9, 1e-8, np.inf, -np.inf, np.nan, -0.0, 1 + 2**-11, 1 + 3 * 2**-9], "f8")
    got = session.get(session.submit(Cast(src=session.put(host), dtype=to)))
    with np.errstate(all="ignore"):
        want = host.astype(DTYPES[to].np)
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


def test_cast_into_a_view(session: Any) -> None:
    host = np.arange(6, dtype="i4").reshape(2, 3)
    around = session.put(np.zeros((3, 4), "f4"))
    session.submit(Cast(src=session.put(host), dtype="f32", out=around[:2, 1:]))
    want = np.zeros((3, 4), "f4")
    want[:2, 1:] = host
    np.testing.assert_array_equal(session.get(around), want)


@pytest.mark.parametrize("name", NUMBERED)
@pytest.mark.parametrize("start, step, length", [(0, 1, 11), (5, -2, 4), (-3, 3, 1), (7, 0, 3), (2, 1, 0)])
def test_arange(session: Any, name: str, start: int, step: int, length: int) -> None:
    dtype = DTYPES[name]
    got = session.get(session.submit(Arange(length=length, dtype=name, start=start, step=step)))
    want = (np.arange(length) * step + start).astype(dtype.np)
    assert got.dtype == dtype.np
    np.testing.assert_array_equal(got.astype(np.complex128), want.astype(np.complex128))


def test_arange_of_large_and_broken_numbers(session: Any) -> None:
    got = session.get(session.submit(Arange(length=3, dtype="i64", start=2**62, step=2**60 + 1)))
    np.testing.assert_array_equal(got, [2**62, 2**62 + 2**60 + 1, 2**62 + 2**61 + 2])
    got = session.get(session.submit(Arange(length=3, dtype="u64", start=2**64 - 2, step=1)))
    np.testing.assert_array_equal(got, np.array([2**64 - 2, 2**64 - 1, 0], "u8"))
    got = session.get(session.submit(Arange(length=1000, dtype="f64", start=0.1, step=0.1)))
    np.testing.assert_array_equal(got, 0.1 + np.arange(1000) * 0.1)
    got = session.get(session.submit(Arange(length=4, dtype="c64", start=1j, step=1 - 0.5j)))
    np.testing.assert_array_equal(got, (1j + np.arange(4) * (1 - 0.5j)).astype("c8"))


index_shapes = st.sampled_from([(), (1,), (3,), (2, 4), (2, 1, 3), (0,)])


def indices_of(drawn: Any, shape: tuple[int, ...], extent: int, name: str) -> Array:
    low = 0 if DTYPES[name].kind == "uint" else -extent
    return np.random.default_rng(drawn).integers(low, extent, shape).astype(DTYPES[name].np)


@pytest.mark.parametrize("name", ["bool", "i16", "f32", "c64", "c128", "f8_e5m2"])
@SHARED
@given(seed=seeds, picked=index_shapes, kinds=st.tuples(*[st.sampled_from(INDICES)] * 2), view=views, data=st.data())
def test_gather(session: Any, name: str, seed: int, picked: tuple[int, ...], kinds: Any, view: Any, data: Any) -> None:
    host = small(DTYPES[name], (5, 4, 3), seed)
    ref, own = session.put(host)[view], host[view]
    axes = data.draw(st.integers(1, 2))
    arrays = [indices_of(seed + i, picked, own.shape[i], kinds[i]) for i in range(axes)]
    if axes == 2 and len(picked) > 1:
        arrays[1] = arrays[1][:1]  # broadcasts
    place = data.draw(st.integers(0, own.ndim - axes))
    want = own[tuple(a.astype(np.int64) for a in arrays)]
    want = np.moveaxis(want, range(len(picked)), range(place, place + len(picked)))
    op = Gather(src=ref, indices=tuple(map(session.put, arrays)), place=place)
    got = session.get(session.submit(op))
    np.testing.assert_array_equal(got.astype(np.complex128), want.astype(np.complex128))


@SHARED
@given(seed=seeds, picked=index_shapes, kind=st.sampled_from(INDICES), place=st.integers(0, 2), view=views)
def test_scatter(session: Any, seed: int, picked: tuple[int, ...], kind: str, place: int, view: Any) -> None:
    host = small(DTYPES["f32"], (30, 4, 3), seed)
    ref, want = session.put(host), host.copy()
    inside = want[view]
    extent, count = inside.shape[0], int(np.prod(picked))
    distinct = np.random.default_rng(seed).permutation(extent)[:count]
    if distinct.size < count:
        return  # an element that is named twice keeps any of its values
    index = distinct.reshape(picked).astype(DTYPES[kind].np)
    rest = inside.shape[1:]
    values = small(DTYPES["f32"], (*rest[:place], *picked, *rest[place:]), seed + 1) + 10
    inside[index.astype(np.int64)] = np.moveaxis(values, range(place, place + len(picked)), range(len(picked)))
    op = Scatter(out=ref[view], values=session.put(values), indices=(session.put(index),), place=place)
    session.submit(op)
    np.testing.assert_array_equal(session.get(ref), want)


@SHARED
@given(seed=seeds, axis=st.integers(-3, 2), kind=st.sampled_from(INDICES), ones=st.booleans(), view=views)
def test_take_along(session: Any, seed: int, axis: int, kind: str, ones: bool, view: Any) -> None:
    host = small(DTYPES["f64"], (5, 4, 3), seed)
    own = host[view]
    shape = [1 if ones else n for n in own.shape]
    shape[axis] = 2
    index = indices_of(seed, tuple(shape), own.shape[axis], kind)
    got = session.get(session.submit(TakeAlong(src=session.put(host)[view], indices=session.put(index), axis=axis)))
    full = np.broadcast_to(index.astype(np.int64), [2 if a == axis % 3 else n for a, n in enumerate(own.shape)])
    np.testing.assert_array_equal(got, np.take_along_axis(own, full, axis))


@pytest.mark.parametrize("wrong", [3, -4, 127])
def test_an_index_out_of_range_fails_the_op(session: Any, wrong: int) -> None:
    src, index = session.put(np.arange(3.0)), session.put(np.array([0, wrong, 2], "i1"))
    text = rf"indices\[0\] holds {wrong}, out of range for axis 0 of src, which is f64\[3\] \(1 of 3 are\)"
    with pytest.raises(ShapeError, match=text):
        session.get(session.submit(Gather(src=src, indices=(index,))))
    with pytest.raises(ShapeError, match="indices holds"):
        session.get(session.submit(TakeAlong(src=src, indices=index)))
    out = session.put(np.zeros(3))
    with pytest.raises(ShapeError, match="out of range for axis 0 of out"):
        session.get(session.submit(Scatter(out=out, values=src, indices=(index,))))


def test_an_unsigned_index_beyond_63_bits_is_not_negative(session: Any) -> None:
    src, index = session.put(np.arange(3.0)), session.put(np.array([2**64 - 1], "u8"))
    with pytest.raises(ShapeError, match="out of range"):
        session.get(session.submit(Gather(src=src, indices=(index,))))


def test_what_does_not_fit_is_refused_before_it_is_sent(session: Any) -> None:
    a, i = session.put(np.zeros((2, 3), "c8")), session.put(np.zeros(2, "i4"))
    refusals = [
        (lambda: Cast(src=a, dtype="f32"), "take its real part first"),
        (lambda: Arange(length=-1, dtype="f32"), "length is -1"),
        (lambda: Arange(length=2, dtype="i32", step=0.5), "step is not an integer"),
        (lambda: Arange(length=2, dtype="f32", start=1j), "start is complex"),
        (lambda: Gather(src=a, indices=(a,)), r"indices\[0\] is c64\[2, 3\]; indices are integers"),
        (lambda: Gather(src=a, indices=(i, i, i)), "indices has 3 arrays"),
        (lambda: Gather(src=a, indices=()), "it must have 1 to 8"),
        (lambda: Gather(src=a, indices=(i,), place=2), "place is 2"),
        (lambda: TakeAlong(src=a, indices=i), "both have the same axes"),
        (lambda: TakeAlong(src=a, indices=i.reshape(1, 2), axis=2), "axis is 2"),
        (lambda: Scatter(out=a, values=a[:1], indices=(i,)), r"it must be c64\[2, 3\]"),
    ]
    for make, text in refusals:
        with pytest.raises(ShapeError, match=text):
            session.submit(make())
