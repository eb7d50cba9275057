"""Sorting, duplicates, and products that give the same bits each time."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sparse_lab import FORMATS, VALUES, drawn, put, vector, wide

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.core.operand import operands_of
from callboard.kernel.sparse import Check, Convert, CooRef, CsrRef, Sort, SpGemm, SpMm, SpMv
from callboard.testing.tolerances import assert_close

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)  # one session for all
seeds = st.integers(0, 2**31)
indices = st.sampled_from(["i32", "i64"])
extents = st.integers(1, 9) | st.sampled_from([0, 40])


def scattered(
    session: Any,
    seed: int,
    form: str,
    shape: tuple[int, int],
    dtype: str,
    index: str,
    entries: int,
    apart: bool = False,
) -> tuple[Any, list[Any]]:
    """Entries in any order, some more than once; the matrix, and its values, majors and minors in that order."""
    rng, kind = np.random.default_rng(seed), DTYPES[index].np
    rows, cols = shape[::-1] if form == "csc" else shape
    places = rng.choice(rows * cols, min(entries, rows * cols), replace=False) if apart else rng.integers(
        0, max(rows * cols, 1), entries if rows * cols else 0
    )  # fmt: skip
    major, minor = places // max(cols, 1), places % max(cols, 1)
    if form != "coo":
        order = np.argsort(major, kind="stable")
        major, minor = major[order], minor[order]
    values = vector(seed, places.size, dtype)
    at = [session.put(part) for part in (values, minor.astype(kind))]
    if form == "coo":
        matrix: Any = CooRef(at[0], session.put(major.astype(kind)), at[1], shape)
    else:
        pointers = np.concatenate([[0], np.cumsum(np.bincount(major, minlength=rows))]).astype(kind)
        matrix = FORMATS[form](at[0], at[1], session.put(pointers), shape)
    return matrix, [values, major, minor]


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(
    form=st.sampled_from(list(FORMATS)), index=indices, m=extents, n=extents, entries=st.integers(0, 60), seed=seeds,
    duplicates=st.sampled_from(["keep", "sum"]),
)  # fmt: skip
def test_sort(
    session: Any, dtype: str, form: str, index: str, m: int, n: int, entries: int, seed: int, duplicates: Any
) -> None:
    matrix, (values, major, minor) = scattered(session, seed, form, (m, n), dtype, index, entries)
    got = session.submit(Sort(a=matrix, duplicates=duplicates))
    assert type(got) is type(matrix)
    assert got.shape == (m, n)
    session.submit(Check(a=got, ordered=True, duplicates="keep" if duplicates == "keep" else "refuse"))
    order = np.lexsort((minor, major))
    values, major, minor = values[order], major[order], minor[order]
    found = dict(zip(operands_of(got), [session.get(part) for part in operands_of(got).values()], strict=True))
    rows = m if form != "csc" else n
    if duplicates == "sum":
        width = n if form != "csc" else m
        places, at = np.unique(major * max(width, 1) + minor, return_inverse=True)
        want = np.zeros(places.size, wide(values).dtype)
        np.add.at(want, at, wide(values))
        size = np.zeros(places.size)
        np.add.at(size, at, abs(wide(values)))
        assert_close(found["values"], want, dtype, 8, scale=size)
        major, minor = places // max(width, 1), places % max(width, 1)
    else:
        np.testing.assert_array_equal(found["values"], values)
    np.testing.assert_array_equal(found["cols" if form == "coo" else "indices"], minor)
    if form == "coo":
        np.testing.assert_array_equal(found["rows"], major)
    else:
        np.testing.assert_array_equal(found["indptr"], np.searchsorted(major, np.arange(rows + 1)))


@pytest.mark.parametrize("form", list(FORMATS))
@pytest.mark.parametrize("index", ["i32", "i64"])
def test_duplicates_that_are_refused(session: Any, form: str, index: str) -> None:
    apart, _ = scattered(session, 3, form, (5, 6), "f32", index, 12, apart=True)
    session.submit(Check(a=session.submit(Sort(a=apart, duplicates="refuse")), ordered=True))
    twice, (_, major, minor) = scattered(session, 3, form, (3, 3), "f32", index, 20)
    spare = 20 - np.unique(major * 9 + minor).size
    with pytest.raises(ShapeError, match=f"sparse.sort: {spare} entries of a are stored more than once; pass dupl"):
        session.submit(Sort(a=twice, duplicates="refuse"))


@SHARED
@given(form=st.sampled_from(list(FORMATS)), index=indices, seed=seeds, room=st.integers(0, 24))
def test_sums_into_given_arrays(session: Any, form: str, index: str, seed: int, room: int) -> None:
    matrix, (_, major, minor) = scattered(session, seed, form, (4, 5), "f64", index, 18)
    found, count = np.unique(major * 9 + minor).size, session.empty((), "i64")
    parts = {n: session.empty(room, index) for n in ("rows", "cols", "indices") if n in operands_of(matrix)}
    if form != "coo":
        parts["indptr"] = session.empty(matrix.indptr.size, index)
    out = type(matrix)(values=session.empty(room, "f64"), **parts, shape=(4, 5))
    op = Sort(a=matrix, duplicates="sum", out=out, count=count)
    if room < found:
        with pytest.raises(ShapeError, match=f"{found} entries, and out has room for {room}; give larger arrays"):
            session.submit(op)
        return
    got = session.submit(op)
    assert int(session.get(count)) == found
    exact = session.submit(Sort(a=matrix, duplicates="sum"))
    for name, part in operands_of(exact).items():
        np.testing.assert_array_equal(session.get(getattr(got, name))[: part.size], session.get(part), err_msg=name)


def test_what_does_not_fit_is_refused_by_name(session: Any) -> None:
    a = put(session, drawn(1, (4, 5), "f32"))
    for op, says in (
        (Sort(a=a, out=a, count=session.empty((), "i64")), "count is given, and the number of entries is known"),
        (Sort(a=a, duplicates="sum", count=session.empty((), "i64")), "out and count go together"),
        (Sort(a=a, out=a.T), "out is a CscRef, expected a CsrRef"),
    ):
        with pytest.raises(ShapeError, match=says):
            session.submit(op)
    with pytest.raises(TypeError, match="duplicates"):
        Sort(a=a, duplicates="drop")  # type: ignore[arg-type]


# -- the same bits -----------------------------------------------------------------------------------------------------

MANY = 20
"""Rows long enough, and often enough, that a library shares one among threads."""


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("form", list(FORMATS))
@pytest.mark.parametrize("transpose", [False, True])
def test_deterministic_products(session: Any, dtype: str, form: str, transpose: bool) -> None:
    a = drawn(7, (700, 600), dtype, 0.1)
    a[::50] = drawn(8, (14, 600), dtype, 0.9)
    matrix = put(session, a, form)
    left = wide(a).T if transpose else wide(a)
    b = vector(2, (left.shape[1], 9), dtype)
    columns = session.empty((9, left.shape[0]), dtype).T
    ops: list[Any] = [
        SpMv(a=matrix, x=session.put(b[:, 0].copy()), transpose=transpose, deterministic=True),
        SpMm(a=matrix, b=session.put(b), transpose=transpose, deterministic=True),
        SpMm(a=matrix, b=session.put(b), out=columns, transpose=transpose, deterministic=True),
    ]
    for op in ops:
        reason = session.why_not(op)
        if reason is not None:
            assert transpose is (form != "csc")
            assert "deterministic" in reason
            assert "sparse.convert" in reason
            with pytest.raises(UnsupportedOp, match="deterministic"):
                session.submit(op)
            continue
        first = session.get(session.submit(op))
        right = wide(b)[:, 0] if isinstance(op, SpMv) else wide(b)
        assert_close(first, left @ right, dtype, left.shape[1] + 2, scale=abs(left) @ abs(right))
        for _ in range(MANY):
            np.testing.assert_array_equal(session.get(session.submit(op)), first)


def test_deterministic_conjugates(session: Any) -> None:
    """Of a CscRef they are its rows as they lie, conjugated, which no library multiplies by."""
    a, x = drawn(1, (6, 5), "c64"), vector(1, 6, "c64")
    op = SpMv(a=put(session, a, "csc"), x=session.put(x), transpose=True, conj=True, deterministic=True)
    if session.why_not(op) is not None:
        with pytest.raises(UnsupportedOp, match=r"conjugate a\.values and leave conj out"):
            session.submit(op)
        op = SpMv(a=put(session, a.conj(), "csc"), x=session.put(x), transpose=True, deterministic=True)
    np.testing.assert_allclose(session.get(session.submit(op)), a.conj().T @ x, atol=1e-5)


@pytest.mark.parametrize("dtype", VALUES)
def test_deterministic_sparse_products(session: Any, dtype: str) -> None:
    a, b = put(session, drawn(1, (200, 150), dtype, 0.2)), put(session, drawn(2, (150, 180), dtype, 0.2))
    first = session.submit(SpGemm(a=a, b=b, deterministic=True))
    for _ in range(10):
        again = session.submit(SpGemm(a=a, b=b, deterministic=True))
        for name, part in operands_of(first).items():
            np.testing.assert_array_equal(session.get(getattr(again, name)), session.get(part), err_msg=name)


# -- SciPy -------------------------------------------------------------------------------------------------------------


def test_duplicates_from_scipy(session: Any) -> None:
    face = getattr(getattr(session, "device", None), "sparse", None)
    if face is None:
        pytest.skip("a session without a device has no methods")
    twice = sp.coo_matrix(([1.0, 2.0, 3.0], ([1, 0, 1], [2, 0, 2])), shape=(2, 3))
    assert face.from_scipy(twice).nnz == 2
    kept = face.from_scipy(twice, duplicates="keep")
    np.testing.assert_array_equal(session.get(kept.values), [2, 1, 3])
    with pytest.raises(ShapeError, match="1 entries occur more than once; pass duplicates='sum' or 'keep'"):
        face.from_scipy(twice, duplicates="refuse")
    rows = session.submit(Convert(a=session.submit(Sort(a=kept, duplicates="sum")), format="csr"))
    assert isinstance(rows, CsrRef)
    assert rows.nnz == 2
