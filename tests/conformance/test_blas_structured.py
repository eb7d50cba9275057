"""Matrices of which BLAS stores a part: symmetric, Hermitian, triangular and banded ones, and vectors."""

from typing import Any

import numpy as np
import pytest
from blas_lab import (
    SHARED,
    Factor,
    attempt,
    complex_factors,
    dtypes,
    execute,
    extents,
    factors,
    matrix_layouts,
    messages,
    place_matrix,
    place_vector,
    poisoned,
    seeds,
    steps,
    values,
    wide,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.blas_structures import banded, inside, packed, stored, symmetric, within

import callboard.kernel.blas as blas
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.blas.level3 import Rank2K
from callboard.kernel.blas.symmetric import HermitianRank1, SymmetricProduct, SymmetricRank2
from callboard.kernel.blas.triangular import TriangularVector
from callboard.testing.tolerances import assert_close

PRODUCTS = messages(SymmetricProduct)
RANK_1 = messages(HermitianRank1)
UPDATES = messages(HermitianRank1, SymmetricRank2)
TRIANGULAR = messages(TriangularVector)
BLAS = ("f32", "f64", "c64", "c128")


def placed(session: Any, array: Any, storage: str, layout: str) -> Any:
    """A stored matrix on the device."""
    if storage == "packed":
        return place_vector(session, array, 1)
    columns = layout.replace("rows", "columns") if storage == "banded" else layout
    return place_matrix(session, array, columns)


def drawn_factors(data: st.DataObject, dtype: DType, n: int) -> list[Factor]:
    return [data.draw(complex_factors() if dtype.is_complex else factors()) for _ in range(n)]


@pytest.mark.parametrize("cls", PRODUCTS, ids=lambda cls: cls.__name__)
@SHARED
@given(data=st.data(), dtype=dtypes(*BLAS), n=extents, k=st.integers(0, 3), seed=seeds, lower=st.booleans())
def test_products(
    session: Any, cls: Any, data: st.DataObject, dtype: DType, n: int, k: int, seed: int, lower: bool
) -> None:
    if dtype not in cls.dtypes:
        dtype = cls.dtypes[0]
    matrix = symmetric(values(dtype, (n, n), seed), cls.hermitian)
    if cls.storage == "banded":
        matrix = within(matrix, k, k)
    half = stored(matrix, cls.storage, lower, k, cls.hermitian)
    at_a = placed(session, half, cls.storage, data.draw(matrix_layouts))
    runs = [1, 2] if cls is blas.Hemv else [1, 2, -1, -3]
    at_x = place_vector(session, x := values(dtype, (n,), seed + 1), data.draw(st.sampled_from(runs)))
    out = place_vector(session, poisoned(dtype, (n,)), data.draw(st.sampled_from(runs)))
    alpha, beta = drawn_factors(data, dtype, 2)
    y = values(dtype, (n,), seed + 2) if beta.on_device or beta.value != 0 else None
    at_y = None if y is None else place_vector(session, y, data.draw(steps))
    op = cls(
        a=at_a.ref,
        x=at_x.ref,
        out=out.ref if data.draw(st.booleans()) else None,
        y=None if at_y is None else at_y.ref,
        alpha=alpha.of(session, dtype),
        beta=beta.of(session, dtype),
        lower=lower,
    )
    got = session.get(execute(session, op))
    want, scale = alpha.value * (wide(matrix) @ wide(x)), abs(alpha.value) * (abs(wide(matrix)) @ abs(wide(x)))
    if y is not None and beta.value != 0:
        want, scale = want + beta.value * wide(y), scale + abs(beta.value) * abs(wide(y))
    assert_close(got, want, dtype, n + 2, scale=scale)
    out.check_surroundings(session)


@pytest.mark.parametrize("cls", TRIANGULAR, ids=lambda cls: cls.__name__)
@SHARED
@given(data=st.data(), dtype=dtypes(*BLAS), n=extents, k=st.integers(0, 3), seed=seeds, lower=st.booleans())
def test_triangular(
    session: Any, cls: Any, data: st.DataObject, dtype: DType, n: int, k: int, seed: int, lower: bool
) -> None:
    transpose, conj, unit = (data.draw(st.booleans(), name) for name in ("transpose", "conj", "unit"))
    matrix = np.where(inside(n, lower), values(dtype, (n, n), seed) / 8, dtype.np.type(0)).astype(dtype.np)
    matrix[np.diag_indices(n)] = 2
    if cls.storage == "banded":
        matrix = within(matrix, k, k)
    half = stored(matrix, cls.storage, lower, k)
    whole = wide(matrix)
    if unit:
        half = half.copy()
        if cls.storage == "square":
            half[np.diag_indices(n)] = np.nan
        whole[np.diag_indices(n)] = 1
    at_a = placed(session, half, cls.storage, data.draw(matrix_layouts))
    at_x = place_vector(session, x := values(dtype, (n,), seed + 1), data.draw(steps))
    op = cls(a=at_a.ref, x=at_x.ref, lower=lower, transpose=transpose, conj=conj, unit_diagonal=unit)
    result, refused = attempt(session, op)
    if refused:
        assert dtype.is_complex
        assert conj
        assert "conj of a without a transposition in memory" in refused
        return
    whole = whole.T if transpose else whole
    whole = whole.conj() if conj else whole
    solves = cls.__name__.endswith("sv")
    want = np.linalg.solve(whole, wide(x)) if solves else whole @ wide(x)
    scale = abs(np.linalg.inv(whole)) @ abs(whole) @ abs(want) if solves else abs(whole) @ abs(wide(x))
    assert_close(session.get(result), want, dtype, 2 * n + 2, scale=scale)
    at_x.check_surroundings(session)


@pytest.mark.parametrize("cls", UPDATES, ids=lambda cls: cls.__name__)
@SHARED
@given(data=st.data(), dtype=dtypes(*BLAS), n=extents, seed=seeds, lower=st.booleans())
def test_updates(session: Any, cls: Any, data: st.DataObject, dtype: DType, n: int, seed: int, lower: bool) -> None:
    if dtype not in cls.dtypes:
        dtype = cls.dtypes[0]
    rank_1, mask = cls in RANK_1, inside(n, lower)
    hermitian = rank_1 or cls.hermitian
    x, y, a = values(dtype, (n,), seed), values(dtype, (n,), seed + 1), values(dtype, (n, n), seed + 2)
    if hermitian:
        a[np.diag_indices(n)] = a.diagonal().real
    real = rank_1 or not dtype.is_complex
    alpha = data.draw(factors() if real else complex_factors())
    runs = st.sampled_from([1, 2] if dtype.is_complex and not cls.packed else [1, 2, -1, -3])
    at_x, at_y = place_vector(session, x, data.draw(runs)), place_vector(session, y, data.draw(runs))
    storage = "packed" if cls.packed else "square"
    at_a = placed(session, stored(a, storage, lower, 0, hermitian), storage, data.draw(matrix_layouts))
    factor = alpha.of(session, dtype.real if rank_1 else dtype)
    second = {} if rank_1 else {"y": at_y.ref}
    got = session.get(execute(session, cls(x=at_x.ref, a=at_a.ref, alpha=factor, lower=lower, **second)))
    u, v = wide(x), wide(y)
    if rank_1:
        added = alpha.value * np.outer(u, u.conj())
        scale = abs(wide(a)) + abs(added)
    else:
        added = alpha.value * np.outer(u, v.conj() if hermitian else v)
        added = added + (added.conj().T if hermitian else added.T)
        scale = abs(wide(a)) + 2 * abs(alpha.value) * np.outer(abs(u), abs(v)) + abs(added)
    want = wide(a) + added
    if storage == "packed":
        want, scale = (packed(one, lower, hermitian) for one in (want, scale))
        assert_close(got, want, dtype, 4, scale=scale)
    else:
        assert_close(got[mask], want[mask], dtype, 4, scale=scale[mask])
        assert np.isnan(got[~mask]).all(), "the other triangle is written"
    at_a.check_surroundings(session)


@pytest.mark.parametrize("cls", messages(Rank2K), ids=lambda cls: cls.__name__)
@SHARED
@given(data=st.data(), dtype=dtypes(*BLAS), n=extents, k=extents, seed=seeds, lower=st.booleans())
def test_rank_2k(
    session: Any, cls: Any, data: st.DataObject, dtype: DType, n: int, k: int, seed: int, lower: bool
) -> None:
    if dtype not in cls.dtypes:
        dtype = cls.dtypes[0]
    transpose, layout = data.draw(st.booleans(), "transpose"), data.draw(matrix_layouts)
    a, b, c = values(dtype, (n, k), seed), values(dtype, (n, k), seed + 1), values(dtype, (n, n), seed + 2)
    if cls.hermitian:
        c[np.diag_indices(n)] = c.diagonal().real
    alpha = data.draw(complex_factors() if dtype.is_complex else factors())
    beta = data.draw(factors())
    if not (beta.on_device or beta.value):
        c[...] = np.nan
    given = [(x.conj().T if cls.hermitian else x.T).copy() if transpose else x for x in (a, b)]
    at_a, at_b = (place_matrix(session, x, layout) for x in given)
    at_c = place_matrix(session, stored(c, "square", lower, 0), layout)
    if n and k and (at_a.ref.strides[-1] == 1) != (at_c.ref.strides[-1] == 1):
        return  # a single row or column counts as row-major
    op = cls(
        a=at_a.ref,
        b=at_b.ref,
        c=at_c.ref,
        alpha=alpha.of(session, dtype),
        beta=beta.of(session, dtype.real if cls.hermitian else dtype),
        transpose=transpose,
        lower=lower,
    )
    result, refused = attempt(session, op)
    if refused:
        assert "both must be row-major or both column-major" in refused
        assert 1 in (n, k) or not (n and k)
        return
    u, v = wide(a), wide(b)
    left, right = (alpha.value * u @ v.conj().T, np.conj(alpha.value) * v @ u.conj().T)
    if not cls.hermitian:
        left, right = alpha.value * u @ v.T, alpha.value * v @ u.T
    want, scale = left + right, 2 * abs(alpha.value) * (abs(u) @ abs(v).T + abs(v) @ abs(u).T)
    if beta.value:
        want, scale = want + beta.value * wide(c), scale + abs(beta.value * wide(c))
    mask = inside(n, lower)
    assert_close(session.get(result)[mask], want[mask], dtype, 2 * k + 2, scale=scale[mask])
    at_c.check_surroundings(session)


@SHARED
@given(
    data=st.data(), dtype=dtypes(*BLAS), m=extents, n=extents, below=st.integers(0, 3), above=st.integers(0, 3),
    seed=seeds,
)  # fmt: skip
def test_gbmv(
    session: Any, data: st.DataObject, dtype: DType, m: int, n: int, below: int, above: int, seed: int
) -> None:
    n = max(n, 1)
    transpose = data.draw(st.booleans(), "transpose")
    conj = transpose and data.draw(st.booleans(), "conj")
    matrix = within(values(dtype, (m, n), seed), below, above)
    at_a = placed(session, banded(matrix, below, above), "banded", data.draw(matrix_layouts))
    whole = wide(matrix).T if transpose else wide(matrix)
    whole = whole.conj() if conj else whole
    size, terms = whole.shape
    at_x = place_vector(session, x := values(dtype, (terms,), seed + 1), data.draw(steps))
    at_y = place_vector(session, y := values(dtype, (size,), seed + 2), data.draw(steps))
    alpha, beta = drawn_factors(data, dtype, 2)
    op = blas.Gbmv(
        a=at_a.ref,
        x=at_x.ref,
        y=at_y.ref,
        alpha=alpha.of(session, dtype),
        beta=beta.of(session, dtype),
        below=below,
        rows=None if m == n else m,
        transpose=transpose,
        conj=conj,
    )
    want, scale = alpha.value * (whole @ wide(x)), abs(alpha.value) * (abs(whole) @ abs(wide(x)))
    want, scale = want + beta.value * wide(y), scale + abs(beta.value) * abs(wide(y))
    assert_close(session.get(execute(session, op)), want, dtype, terms + 2, scale=scale)


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_her_clears_the_imaginary_diagonal(session: Any, name: str) -> None:
    x = session.put(np.ones(3, DTYPES[name].np))
    for a in (np.full((3, 3), 1 + 2j, DTYPES[name].np), np.full((3, 3), 1 + 2j, DTYPES[name].np)):
        for ref in (session.put(a), session.put(a).T):
            execute(session, blas.Her(x=x, a=ref))
            np.testing.assert_array_equal(session.get(ref).diagonal(), [2, 2, 2])


REFUSED = {
    "packed": (lambda x: blas.Spmv(a=x(5), x=x(3)), r"a is f32\[5\]; packed for x of 3 elements it must be \[6\]"),
    "a band of rows": (lambda x: blas.Sbmv(a=x(2, 3), x=x(3)), "a band is column-major; pass the .T of a row-major"),
    "a band of other columns": (lambda x: blas.Tbmv(a=x(4, 2).T, x=x(3)), r"a band is \[diagonals, 3\]"),
    "a band of nothing": (lambda x: blas.Tbsv(a=x(3, 0).T, x=x(3)), "with one diagonal or more"),
    "below": (lambda x: blas.Gbmv(a=x(3, 2).T, x=x(3), below=2), "below is 2 and a is .*: it must be from 0 to 1"),
    "x of gbmv": (lambda x: blas.Gbmv(a=x(3, 2).T, x=x(4)), r"op\(b\) is \[3, 3\]; x must have 3 elements"),
    "rows without columns": (lambda x: blas.Gbmv(a=x(0, 2).T, x=x(0), rows=3), "pass at least one column"),
    "two lengths": (lambda x: blas.Syr2(x=x(3), y=x(4), a=x(3, 3)), "pass vectors of one length"),
    "two shapes": (lambda x: blas.Syr2k(a=x(3, 2), b=x(2, 3), c=x(3, 3)), "pass matrices of one shape"),
    "two orders": (lambda x: blas.Syr2k(a=x(3, 2), b=x(2, 3).T, c=x(3, 3)), "both must be row-major or both column"),
    "her backwards": (lambda x: blas.Her(x=x(3, t="c64")[::-1], a=x(3, 3, t="c64")), "backwards, and a is row-major"),
    "complex alpha": (lambda x: blas.Her(x=x(3, t="c64"), a=x(3, 3, t="c64"), alpha=1j), "pass a real number"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit(session: Any, what: str) -> None:
    make, says = REFUSED[what]
    with pytest.raises(ShapeError, match=says):
        session.submit(make(lambda *shape, t="f32": session.put(np.ones(shape, DTYPES[t].np))))
