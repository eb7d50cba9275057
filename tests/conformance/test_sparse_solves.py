"""Solves with sparse triangular matrices, and dense products at the entries of a sparse one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sparse_lab import block_parts, blocky, drawn, put, put_blocks, vector, wide

from callboard.core.dtype import DTYPES
from callboard.core.errors import NumericalError, ShapeError
from callboard.kernel.sparse import Convert, CsrRef, Sddmm, SpSm, SpSv
from callboard.testing.tolerances import assert_close

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)  # one session for all
VALUES = ("f32", "f64", "c64", "c128")
extents = st.integers(1, 9) | st.sampled_from([0, 40])
seeds = st.integers(0, 2**31)


def well(seed: int, n: int, dtype: str) -> np.ndarray[Any, Any]:
    """A matrix whose triangles are well-conditioned; both have entries."""
    a = 0.3 * wide(drawn(seed, (n, n), dtype, 0.3)) / max(1, n) ** 0.5
    np.fill_diagonal(a, 1 + np.arange(n) % 3)
    return a.astype(DTYPES[dtype].np)


def laid(session: Any, array: np.ndarray[Any, Any], how: str) -> Any:
    return session.put(array.T).T if how == "cols" else session.put(array)


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(
    data=st.data(), form=st.sampled_from(["csr", "csc", "coo"]), index=st.sampled_from(["i32", "i64"]), n=extents,
    seed=seeds,
)  # fmt: skip
def test_solves(session: Any, dtype: str, data: Any, form: str, index: str, n: int, seed: int) -> None:
    lower, unit, transpose = (data.draw(st.booleans(), name) for name in ("lower", "unit", "transpose"))
    conj = transpose and data.draw(st.booleans(), "conj")
    many = data.draw(st.sampled_from([None, 0, 1, 3]), "right-hand sides")
    alpha = data.draw(st.sampled_from([1.0, -0.5]), "alpha")
    at_alpha = session.put(np.array(alpha, DTYPES[dtype].np)) if data.draw(st.booleans()) else alpha
    a = well(seed, n, dtype)
    b = vector(seed, n if many is None else (n, many), dtype)
    flags = {"lower": lower, "unit": unit, "transpose": transpose, "conj": conj, "alpha": at_alpha}
    matrix = put(session, a, form, index)
    if many is None:
        op: Any = SpSv(a=matrix, x=session.put(b), **flags)
    else:
        layouts = st.sampled_from(["rows", "cols"])
        out = laid(session, np.full_like(b, np.nan), data.draw(layouts)) if data.draw(st.booleans()) else None
        op = SpSm(a=matrix, b=laid(session, b, data.draw(layouts)), out=out, **flags)
    reason = session.why_not(op)
    if reason is not None:
        assert form == "csc"
        assert conj
        assert "sparse.convert a to csr first" in reason
        return
    got = wide(session.get(session.submit(op)))
    half = wide((np.tril if lower else np.triu)(a))
    if unit:
        np.fill_diagonal(half, 1)
    half = (half.conj() if conj else half).T if transpose else half
    want = np.linalg.solve(half, alpha * wide(b)) if n else np.zeros(b.shape)
    assert_close(got, want, dtype, max(n, 2), kind="solve")


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("kind", ["zero", "missing"])
def test_a_singular_matrix_fails(session: Any, form: str, kind: str) -> None:
    a = np.eye(5) + np.diag([1.0, 2, 3, 4], -1)
    a[3, 3] = 0 if kind == "missing" else 7
    matrix = put(session, a, form)
    if kind == "zero":
        values = session.get(matrix.values)
        values[values == 7] = 0
        matrix = type(matrix)(session.put(values), *(getattr(matrix, n) for n in matrix.__struct_fields__[1:]))
    x = session.put(np.ones(5))
    for op in (SpSv(a=matrix, x=x), SpSm(a=matrix, b=x.reshape(5, 1)), SpSv(a=matrix, x=x, transpose=True)):
        with pytest.raises(NumericalError, match=r"a is singular: entry \[3, 3\] of its diagonal") as caught:
            session.submit(op)
        assert caught.value.info == 4
    unit = np.linalg.solve(np.eye(5) + np.diag([1.0, 2, 3, 4], -1), np.ones(5))
    np.testing.assert_allclose(session.get(session.submit(SpSv(a=matrix, x=x, unit=True))), unit, atol=1e-12)


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_columns_are_solved_with_as_their_rows_are(session: Any, dtype: str, transpose: bool, lower: bool) -> None:
    """Also where both triangles have entries; only one is read."""
    a, b = well(5, 30, dtype), vector(6, (30, 3), dtype)
    cols = put(session, a, "csc")
    rows = session.submit(Convert(a=cols, format="csr"))
    solved = [
        session.get(session.submit(SpSm(a=m, b=session.put(b), lower=lower, transpose=transpose))) for m in (rows, cols)
    ]
    assert_close(wide(solved[1]), wide(solved[0]), dtype, 30, kind="solve")


@pytest.mark.parametrize("dtype", ["f16", "bf16", *VALUES])
@SHARED
@given(data=st.data(), index=st.sampled_from(["i32", "i64"]), m=extents, n=extents, k=extents, seed=seeds)
def test_sddmm(session: Any, dtype: str, data: Any, index: str, m: int, n: int, k: int, seed: int) -> None:
    a, b, c = vector(seed, (m, k), dtype), vector(seed + 1, (k, n), dtype), drawn(seed, (m, n), dtype)
    alpha, beta = data.draw(st.sampled_from([1.0, -2.0, 0.0])), data.draw(st.sampled_from([0.0, 1.0, 0.5]))
    layouts = st.sampled_from(["rows", "cols"])
    pattern = put(session, c, "csr", index)
    before = session.get(pattern.values)
    given_out = data.draw(st.sampled_from(["none", "new", "c"]), "out")
    out = {"none": None, "new": session.empty(before.size, dtype), "c": pattern.values}[given_out]
    scale_dtype = DTYPES["f32" if dtype in ("f16", "bf16") else dtype].np
    at_beta = session.put(np.array(beta, scale_dtype)) if data.draw(st.booleans()) else beta
    op = Sddmm(
        a=laid(session, a, data.draw(layouts)), b=laid(session, b, data.draw(layouts)), c=pattern, out=out, alpha=alpha,
        beta=at_beta,
    )  # fmt: skip
    got = session.get(session.submit(op))
    at = np.nonzero(c)
    want = alpha * (wide(a) @ wide(b))[at] + beta * wide(before)
    scale = abs(alpha) * (abs(wide(a)) @ abs(wide(b)))[at] + abs(beta) * abs(wide(before))
    assert_close(got, want, dtype, k + 2, scale=scale)
    if given_out != "c":
        np.testing.assert_array_equal(session.get(pattern.values), before)


@pytest.mark.parametrize("dtype", ["f16", "bf16", *VALUES])
@SHARED
@given(
    data=st.data(), index=st.sampled_from(["i32", "i64"]), grid=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    block=st.sampled_from([(1, 1), (2, 2), (2, 3), (4, 4), (8, 8), (16, 16), (17, 17), (32, 32)]),
    k=st.sampled_from([0, 1, 5, 8, 16, 32, 64]), seed=seeds,
)  # fmt: skip
def test_sddmm_of_blocks(
    session: Any, dtype: str, data: Any, index: str, grid: tuple[int, int], block: tuple[int, int], k: int, seed: int
) -> None:
    c = blocky(seed, grid, block, dtype)
    a, b = vector(seed, (c.shape[0], k), dtype), vector(seed + 1, (k, c.shape[1]), dtype)
    alpha, beta = data.draw(st.sampled_from([1.0, -2.0, 0.0])), data.draw(st.sampled_from([0.0, 1.0, 0.5]))
    layouts = st.sampled_from(["rows", "cols"])
    pattern = put_blocks(session, c, "bsr", block, index)
    before = session.get(pattern.values)
    out = {"none": None, "new": session.empty(before.shape, dtype), "c": pattern.values}[
        data.draw(st.sampled_from(["none", "new", "c"]), "out")
    ]
    op = Sddmm(
        a=laid(session, a, data.draw(layouts)), b=laid(session, b, data.draw(layouts)), c=pattern, out=out, alpha=alpha,
        beta=beta,
    )  # fmt: skip
    got = session.get(session.submit(op))
    where = block_parts(c, "bsr", block, index)

    def taken(dense: Any) -> Any:
        """The blocks of a dense matrix where c has some."""
        (down, across), rows = block, np.repeat(np.arange(grid[0]), np.diff(where["indptr"]))
        pieces = [
            dense[i * down : (i + 1) * down, j * across : (j + 1) * across]
            for i, j in zip(rows, where["indices"], strict=True)
        ]
        return np.array(pieces, dense.dtype).reshape(before.shape)

    want = alpha * taken(wide(a) @ wide(b)) + beta * wide(before)
    scale = abs(alpha) * taken(abs(wide(a)) @ abs(wide(b))) + abs(beta) * abs(wide(before))
    assert_close(got, want, dtype, k + 2, scale=scale)


def test_what_does_not_fit_is_refused_by_name(session: Any) -> None:
    square, flat = put(session, np.eye(4, dtype=np.float32)), put(session, np.ones((4, 5), np.float32))
    four, five = session.put(np.ones(4, np.float32)), session.put(np.ones((5, 2), np.float32))

    def refused(op: Any, says: str) -> None:
        with pytest.raises(ShapeError) as caught:
            session.submit(op)
        assert says in str(caught.value)

    refused(SpSv(a=flat, x=four), "sparse.sp_sv: a is (4, 5); it must be square")
    refused(SpSv(a=square, x=five[:, 0]), "x is f32[5], strides (2,), expected f32[4]")
    refused(SpSv(a=square, x=four, conj=True), "conj without transpose")
    refused(SpSm(a=square, b=five), "b is f32[5, 2] and a is (4, 4); b must have 4 rows")
    half = CsrRef(session.put(np.ones(4, np.float16)), square.indices, square.indptr, (4, 4))
    refused(SpSv(a=half, x=four), "its dtype must be one of f32, f64, c64, c128")
    refused(SpSv(a=put(session, np.eye(4, dtype=np.float32), "csc"), x=four, conj=True), "conj without transpose")
    with pytest.raises(TypeError, match=r"sparse\.sp_sv: a is BsrRef; pass a"):
        SpSv(a=put_blocks(session, np.eye(4, dtype=np.float32), "bsr", (2, 2)), x=four)  # type: ignore[arg-type]
    refused(Sddmm(a=five, b=five, c=square), "they do not fit")
    refused(Sddmm(a=five.T, b=five, c=square), "they do not fit")
