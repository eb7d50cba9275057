"""The CUDA side of the array library on the stand-ins: kernel arguments, and reports of faults."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.backends.cuda.array.indexing import joint_steps
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel.array import Arange, Cast, Gather, Scatter, TakeAlong

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
VIEWS = [(...,), (slice(None, None, -1), ..., slice(None, None, 2)), (slice(1, 3), ...)]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "source, to", [("f32", "f64"), ("i8", "bf16"), ("c64", "c128"), ("f64", "bool"), ("u8", "f8_e4m3")]
)
def test_cast(session: Any, source: str, to: str, view: Any) -> None:
    host = np.arange(24).reshape(4, 3, 2).astype(DTYPES[source].np)
    for ref, own in ((session.put(host)[view], host[view]), (session.put(host)[view].T, host[view].T)):
        got = session.get(session.submit(Cast(src=ref, dtype=to)))
        np.testing.assert_array_equal(got.astype("c16"), own.astype(DTYPES[to].np).astype("c16"))


def test_a_cast_to_the_same_dtype_is_a_copy(session: Any) -> None:
    host = np.arange(6, dtype="f4").reshape(2, 3)
    np.testing.assert_array_equal(session.get(session.submit(Cast(src=session.put(host).T, dtype="f32"))), host.T)


def test_a_0d_array_is_converted(session: Any) -> None:
    assert session.get(session.submit(Cast(src=session.put(np.float32(2.5)), dtype="i32"))) == 2


@pytest.mark.parametrize("name", ["f16", "f64", "c64", "i8", "u64"])
def test_arange(session: Any, name: str) -> None:
    got = session.get(session.submit(Arange(length=5, dtype=name, start=1, step=3)))
    np.testing.assert_array_equal(got.astype("c16"), 1 + 3 * np.arange(5))
    assert session.get(session.submit(Arange(length=0, dtype=name))).size == 0


@SHARED
@given(axes=st.integers(1, 2), place=st.integers(0, 1), view=st.sampled_from(VIEWS), wide=st.booleans())
def test_gather_and_scatter(session: Any, axes: int, place: int, view: Any, wide: bool) -> None:
    host = np.arange(24, dtype="c16" if wide else "i2").reshape(4, 3, 2)
    ref, own = session.put(host)[view], host[view]
    arrays = [np.array([[0, 1], [-1, 0]])[: 2 - i] for i in range(axes)]
    refs = tuple(session.put(a.astype(t)) for a, t in zip(arrays, ("i1", "i8"), strict=False))
    want = np.moveaxis(own[tuple(arrays)], (0, 1), (place, place + 1))
    np.testing.assert_array_equal(session.get(session.submit(Gather(src=ref, indices=refs, place=place))), want)
    out = session.put(host)
    session.submit(Scatter(out=out[view], values=session.put(want + 100), indices=refs, place=place))
    changed = host.copy()
    changed[view][tuple(arrays)] = own[tuple(arrays)] + 100
    np.testing.assert_array_equal(session.get(out), changed)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along(session: Any, axis: int) -> None:
    host = np.arange(24.0).reshape(4, 3, 2)
    index = np.zeros((1, 1, 1), "i4") - 1
    got = session.get(session.submit(TakeAlong(src=session.put(host), indices=session.put(index), axis=axis)))
    np.testing.assert_array_equal(got, np.take(host, [-1], axis))


def test_what_is_out_of_range_is_counted(session: Any) -> None:
    src, index = session.put(np.arange(3.0)), session.put(np.array([9, 0, -4], "i8"))
    with pytest.raises(ShapeError, match=r"indices\[0\] holds 9, .* \(2 of 3 are\)"):
        session.get(session.submit(Gather(src=src, indices=(index,))))


def test_a_scatter_out_of_range_writes_nothing(session: Any) -> None:
    host = np.arange(6.0).reshape(3, 2)
    out, index = session.put(host), session.put(np.array([0, 3], "i8"))
    with pytest.raises(ShapeError, match=r"indices\[0\] holds 3, out of range for axis 0 of out"):
        session.submit(Scatter(out=out, values=session.put(np.full((2, 2), 9.0)), indices=(index,)))
    np.testing.assert_array_equal(session.get(out), host)


def test_neighbouring_axes_are_merged() -> None:
    assert joint_steps((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ((24,), [(1,), (1,)])
    assert joint_steps((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ((2, 12), [(12, 1), (0, 1)])
    assert joint_steps((1, 1), [(5, 1)]) == ((), [])
