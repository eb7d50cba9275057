"""Entries and blocks that are stored more than once, side by side: what becomes dense or blocks adds them up."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sparse_lab import FORMATS, VALUES

from callboard.core.dtype import DTYPES
from callboard.kernel.sparse import BlockedEllRef, BsrRef, Convert, CsrRef, SpMv, ToDense

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)  # one session for all
ROWS, COLS, BLOCK = 6, 8, (2, 2)
indices = st.sampled_from(["i32", "i64"])
places = st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, COLS - 1), st.integers(-8, 8)), max_size=32)
"""Row, column and a number; every dtype, bf16 up to 256, adds them up without rounding."""


def matrix(session: Any, form: str, index: str, dtype: str, entries: list[tuple[int, int, int]]) -> tuple[Any, Any]:
    """A sparse matrix with its duplicates side by side, and the dense one."""
    entries = sorted(entries, key=lambda e: (e[1], e[0]) if form == "csc" else e[:2])
    rows, cols, numbers = (np.array([e[i] for e in entries], np.int64) for i in range(3))
    dense = np.zeros((ROWS, COLS))
    np.add.at(dense, (rows, cols), numbers)
    arrays = {"values": numbers.astype(DTYPES[dtype].np)}
    if form == "coo":
        arrays |= {"rows": rows, "cols": cols}
    else:
        major, minor, extent = (cols, rows, COLS) if form == "csc" else (rows, cols, ROWS)
        arrays |= {"indices": minor, "indptr": np.searchsorted(major, np.arange(extent + 1))}
    refs = {n: session.put(a if n == "values" else a.astype(DTYPES[index].np)) for n, a in arrays.items()}
    return FORMATS[form](**refs, shape=(ROWS, COLS)), dense


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(form=st.sampled_from(list(FORMATS)), index=indices, entries=places, columns=st.booleans())
def test_entries_made_dense_are_added_up(
    session: Any, dtype: str, form: str, index: str, entries: Any, columns: bool
) -> None:
    a, want = matrix(session, form, index, dtype, entries)
    out = session.empty((COLS, ROWS), dtype).T if columns else None
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=a, out=out))), want.astype(DTYPES[dtype].np))


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("target", ["bsr", "blocked_ell"])
@SHARED
@given(form=st.sampled_from(list(FORMATS)), index=indices, entries=places)
def test_entries_made_blocks_are_added_up(
    session: Any, dtype: str, target: Any, form: str, index: str, entries: Any
) -> None:
    a, want = matrix(session, form, index, dtype, entries)
    blocks = session.submit(Convert(a=a, format=target, block=BLOCK))
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=blocks))), want.astype(DTYPES[dtype].np))


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("form", ["bsr", "blocked_ell"])
@SHARED
@given(
    index=indices, lines=st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=3, max_size=3), seed=st.integers(0)
)
def test_blocks_made_dense_are_added_up(
    session: Any, dtype: str, form: str, index: str, lines: list[list[int]], seed: int
) -> None:
    lines = [sorted(line) for line in lines]
    numbers, kind = np.random.default_rng(seed), DTYPES[index].np
    stored = [[numbers.integers(-8, 9, BLOCK) for _ in line] for line in lines]
    want = np.zeros((ROWS, COLS))
    for i, (line, blocks) in enumerate(zip(lines, stored, strict=True)):
        for j, block in zip(line, blocks, strict=True):
            want[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += block
    a: BsrRef | BlockedEllRef
    if form == "bsr":
        values = np.array([block for blocks in stored for block in blocks]).reshape(-1, 2, 2)
        flat, starts = (
            np.array([j for line in lines for j in line], kind),
            np.cumsum([0, *map(len, lines)]).astype(kind),
        )
        parts = [session.put(part) for part in (values.astype(DTYPES[dtype].np), flat, starts)]
        a = BsrRef(*parts, shape=(ROWS, COLS))
    else:
        most = max(map(len, lines)) + 1
        wide, held = np.full((ROWS, 2 * most), 7), np.full((3, most), -1, kind)
        for i, (line, blocks) in enumerate(zip(lines, stored, strict=True)):
            held[i, : len(line)] = line
            for at, block in enumerate(blocks):
                wide[2 * i : 2 * i + 2, 2 * at : 2 * at + 2] = block
        a = BlockedEllRef(session.put(wide.astype(DTYPES[dtype].np)), session.put(held), 2, (ROWS, COLS))
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=a))), want.astype(DTYPES[dtype].np))


@pytest.mark.parametrize("dtype, large", [("f16", 2048), ("bf16", 256)])
def test_halves_are_rounded_once(session: Any, dtype: str, large: int) -> None:
    values = session.put(np.array([large, 1, 1]).astype(DTYPES[dtype].np))
    none, ends = session.put(np.zeros(3, np.int32)), session.put(np.array([0, 3, 3], np.int32))
    a = CsrRef(values, none, ends, (2, 2))
    square = BsrRef(values.reshape(3, 1, 1), none, ends, (2, 2))
    made = session.submit(Convert(a=a, format="bsr", block=(2, 2)))
    for source in (a, square, made):
        dense = session.get(session.submit(ToDense(a=source)))
        np.testing.assert_array_equal(dense.astype(float), [[large + 2, 0], [0, 0]])


def test_what_scipy_keeps_is_the_same_matrix_for_every_op(session: Any) -> None:
    face = getattr(getattr(session, "device", None), "sparse", None)
    if face is None:
        pytest.skip("a session without a device has no methods")
    twice = sp.coo_matrix((np.array([1.0, 2.0, 4.0]), ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    kept = face.from_scipy(twice, duplicates="keep")
    for a in (kept, *(session.submit(Convert(a=kept, format=form)) for form in ("csr", "csc"))):
        assert a.nnz == 3
        np.testing.assert_array_equal(session.get(session.submit(ToDense(a=a))), [[3, 0], [0, 4]])
        product = session.submit(SpMv(a=a, x=session.put(np.ones(2))))
        np.testing.assert_array_equal(session.get(product), [3, 4])
