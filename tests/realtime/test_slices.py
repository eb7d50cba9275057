"""Large arrays, in slices on several threads: the same results, and the first wrong row by its number."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.realtime.base.checks import rows
from callboard.realtime.base.cpu import slices
from callboard.realtime.spatial.grid import bounds


@pytest.fixture(scope="module", autouse=True)
def _small_slices() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "SLICE", 1 << 13)
        patch.setattr(slices, "WIDTH", 3)
        slices._threads.cache_clear()
        yield
        slices._threads().shutdown()
        slices._threads.cache_clear()


@given(n=st.integers(0, 3000), dtype=st.sampled_from(["f8", "f4", "i4"]), order=st.sampled_from("CF"))
@settings(deadline=None)
def test_rows_are_a_copy_and_bounds_are_their_ends(n: int, dtype: str, order: Any) -> None:
    given = np.asarray(np.random.default_rng(n).uniform(-99, 99, (n, 3)).astype(dtype), order=order)
    made = rows("points", given, 3, dtype="f8")
    np.testing.assert_array_equal(made, given)
    assert made.flags.c_contiguous
    assert not np.shares_memory(made, given)
    for points in (made, made[::2], made[:, ::-1]):
        low, high = bounds(points)
        np.testing.assert_array_equal(low, points.min(0) if len(points) else 0)
        np.testing.assert_array_equal(high, points.max(0) if len(points) else 0)


@given(at=st.sets(st.integers(0, 2999), min_size=1, max_size=4), what=st.sampled_from([np.nan, np.inf, -np.inf]))
@settings(deadline=None)
def test_the_first_row_that_is_not_finite_is_named(at: set[int], what: float) -> None:
    given = np.zeros((3000, 3))
    given[sorted(at), 1] = what
    with pytest.raises(ValueError, match=rf"points: row {min(at)} is \[0.0, {what}, 0.0\]"):
        rows("points", given, 3, dtype="f8")
    with pytest.raises(ValueError, match=rf"points: row {min(at)} is"):
        rows("points", np.where(np.isfinite(given), given, 1e300), 3)  # infinite as f32


def test_every_row_is_visited_once_and_by_several_threads() -> None:
    seen = np.zeros(5000, int)
    both = threading.Barrier(3)
    names = set()

    def visit(first: int, end: int) -> None:
        if threading.current_thread().name not in names:
            names.add(threading.current_thread().name)
            both.wait(60)
        seen[first:end] += 1

    slices.sliced(visit, 5000, 5000 * 24)
    assert (seen == 1).all()
    assert len(names) == 3
    slices.sliced(visit, 0, 0)


def test_an_error_of_a_part_is_the_callers() -> None:
    def refuse(first: int, end: int) -> None:
        if first:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        slices.sliced(refuse, 5000, 5000 * 24)
