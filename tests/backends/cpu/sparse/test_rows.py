"""Rows shared among threads: each is multiplied once, by whatever number of threads, and what fails is told."""

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.backends.cpu.sparse import rows as module
from callboard.backends.cpu.sparse.rows import Rows

counts = st.lists(st.integers(0, 9), max_size=30)


def shared(workers: int, counts: list[int]) -> list[tuple[int, int]]:
    """Which rows were multiplied together, by so many threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", str(workers))
        patch.setattr(module, "PARALLEL", 4)
        found: list[tuple[int, int]] = []
        rows = Rows()
        try:
            rows.run(lambda first, last: found.append((first, last)), np.cumsum([0, *counts]))
        finally:
            rows.close()
        return found


@given(workers=st.integers(1, 5), counts=counts)
def test_each_row_is_multiplied_once(workers: int, counts: list[int]) -> None:
    parts = shared(workers, counts)
    assert sorted(row for first, last in parts for row in range(first, last)) == [*range(len(counts))]
    assert len(parts) == max(1, min(workers, sum(counts) // 4))


def test_parts_have_about_as_many_entries() -> None:
    assert sorted(shared(3, [1] * 30)) == [(0, 10), (10, 20), (20, 30)]
    assert sorted(shared(2, [28, 1, 1])) == [(0, 1), (1, 3)]


@pytest.mark.parametrize("wrong", [0, 1])
def test_what_a_part_raises_is_raised_when_all_have_ended(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(module, "PARALLEL", 1)
    both, ended = threading.Barrier(2), []

    def multiply(first: int, last: int) -> None:
        both.wait(30)  # a thread each
        ended.append(first)
        if first == wrong:
            raise ZeroDivisionError(first)

    rows = Rows()
    try:
        with pytest.raises(ZeroDivisionError, match=str(wrong)):
            rows.run(multiply, np.array([0, 1, 2]))
    finally:
        rows.close()
    assert sorted(ended) == [0, 1]


def test_a_product_has_the_same_bits_with_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    import callboard as cb

    rng, n = np.random.default_rng(1), 5000
    lengths = rng.integers(0, 120, n)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = rng.integers(0, n, indptr[-1], np.int32)
    parts = rng.standard_normal(indptr[-1]).astype(np.float32), indices, indptr
    x = rng.standard_normal(n).astype(np.float32)
    assert indptr[-1] > 2 * module.PARALLEL

    def product(threads: str) -> Any:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        with cb.sync.device("cpu", isolation="thread") as device:
            a = cb.kernel.sparse.CsrRef(*map(device.put, parts), (n, n))
            return device.sparse.sp_mv(a, device.put(x)).get()

    one = product("1")
    np.testing.assert_array_equal(product("2"), one)
    np.testing.assert_array_equal(product("3"), one)
