"""Matrices of blocks: BSR and blocked-ELL, over every index and value dtype."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sparse_lab import VALUES, block_parts, blocky, drawn, put, put_blocks, vector, wide

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel.sparse import (
    BlockedEllRef,
    BsrRef,
    Check,
    Convert,
    FromDense,
    SpMm,
    SpMv,
    ToDense,
    Transpose,
)
from callboard.testing.tolerances import assert_close

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)  # one session for all
grids = st.tuples(st.integers(0, 6), st.integers(0, 6))
sides = st.sampled_from([1, 2, 3, 4, 8, 17])
seeds = st.integers(0, 2**31)
indices = st.sampled_from(["i32", "i64"])
densities = st.sampled_from([0.0, 0.3, 1.0])


def submit(session: Any, op: Any) -> Any:
    """Execute it; None where the backend says why it cannot."""
    reason = session.why_not(op)
    if reason is None:
        return session.submit(op)
    assert len(reason) > 10
    return None


def factor(draw: Any, session: Any, dtype: str, name: str) -> tuple[Any, Any]:
    """A number, and what to pass for it: itself or a 0-d array."""
    value = draw(st.sampled_from([1.0, 0.0, -0.5]), name)
    if not draw(st.booleans(), f"{name} on device"):
        return value, value
    scale = "f32" if dtype in ("f16", "bf16") else dtype
    return value, session.put(np.array(value, DTYPES[scale].np))


# -- products ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(data=st.data(), grid=grids, down=sides, across=sides, square=st.booleans(), index=indices, seed=seeds)
def test_sp_mv(
    session: Any,
    dtype: str,
    data: Any,
    grid: tuple[int, int],
    down: int,
    across: int,
    square: bool,
    index: str,
    seed: int,
) -> None:
    block = (down, down if square else across)
    a = blocky(seed, grid, block, dtype, data.draw(densities))
    transpose = data.draw(st.booleans(), "transpose")
    conj = transpose and data.draw(st.booleans(), "conj")
    m, n = a.shape[::-1] if transpose else a.shape
    x, y = vector(seed, n, dtype), vector(seed + 1, m, dtype)
    alpha, at_alpha = factor(data.draw, session, dtype, "alpha")
    beta, at_beta = factor(data.draw, session, dtype, "beta")
    at_y = session.put(y)
    out = {"none": None, "y": at_y}[data.draw(st.sampled_from(["none", "y"]), "out")]
    op = SpMv(
        a=put_blocks(session, a, "bsr", block, index), x=session.put(x), out=out, y=at_y, alpha=at_alpha, beta=at_beta,
        transpose=transpose, conj=conj, deterministic=data.draw(st.booleans(), "deterministic"),
    )  # fmt: skip
    got = submit(session, op)
    if got is None:
        assert transpose
        return
    left = (wide(a).conj() if conj else wide(a)).T if transpose else wide(a)
    want = alpha * (left @ wide(x)) + (beta * wide(y) if beta != 0 else 0)
    scale = abs(alpha) * (abs(left) @ abs(wide(x))) + abs(beta) * abs(wide(y))
    assert_close(session.get(got), want, dtype, n + 2, scale=scale)


@pytest.mark.parametrize("form", ["bsr", "blocked_ell"])
@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(
    data=st.data(), grid=grids, n=st.sampled_from([0, 1, 2, 7, 40]), down=sides, across=sides, index=indices, seed=seeds
)
def test_sp_mm(
    session: Any,
    dtype: str,
    form: str,
    data: Any,
    grid: tuple[int, int],
    n: int,
    down: int,
    across: int,
    index: str,
    seed: int,
) -> None:
    block = (down, down if form == "blocked_ell" or data.draw(st.booleans(), "square") else across)
    a = blocky(seed, grid, block, dtype, data.draw(densities))
    transpose = data.draw(st.integers(0, 4), "transpose") == 0
    conj = transpose and data.draw(st.booleans(), "conj")
    m, k = a.shape[::-1] if transpose else a.shape
    b, c = vector(seed, (k, n), dtype), vector(seed + 1, (m, n), dtype)

    def laid(array: np.ndarray[Any, Any], name: str) -> Any:
        how = data.draw(st.sampled_from(["rows", "cols", "wide"]), name)
        if how == "wide" and n:
            return session.put(np.concatenate([array, array[:, :1]], 1))[:, :n]
        return session.put(array.T).T if how == "cols" else session.put(array)

    alpha, at_alpha = factor(data.draw, session, dtype, "alpha")
    beta, at_beta = factor(data.draw, session, dtype, "beta")
    at_c = laid(c, "c")
    out = {"none": None, "new": laid(np.full_like(c, np.nan), "out"), "c": at_c}[
        data.draw(st.sampled_from(["none", "new", "c"]), "given")
    ]
    matrix = put_blocks(session, a, form, block, index, data.draw(st.integers(0, 2), "padding"))
    if form == "blocked_ell" and data.draw(st.booleans(), "may be unpadded"):
        padded = bool((session.get(matrix.indices) < 0).any())
        matrix = BlockedEllRef(matrix.values, matrix.indices, matrix.block, matrix.shape, padded)
    op = SpMm(
        a=matrix, b=laid(b, "b"), out=out, c=at_c, alpha=at_alpha, beta=at_beta, transpose=transpose, conj=conj,
        deterministic=data.draw(st.booleans(), "deterministic"),
    )  # fmt: skip
    got = submit(session, op)
    if got is None:
        assert transpose
        return
    left = (wide(a).conj() if conj else wide(a)).T if transpose else wide(a)
    want = alpha * (left @ wide(b)) + (beta * wide(c) if beta != 0 else 0)
    scale = abs(alpha) * (abs(left) @ abs(wide(b))) + abs(beta) * abs(wide(c))
    assert_close(session.get(got), want, dtype, k + 2, scale=scale)


@pytest.mark.parametrize("dtype", ["f16", "f32", "c64"])
def test_padding_is_not_read(session: Any, dtype: str) -> None:
    """Anywhere in a block row, also in one that has nothing else; what its values hold does not matter."""
    block, a = (2, 2), blocky(4, (4, 5), (2, 2), dtype, 0.5)
    a[2:4] = 0
    arrays = block_parts(a, "blocked_ell", block, "i32", 2)
    arrays["indices"] = np.roll(arrays["indices"], 1, 1)
    values = np.roll(arrays["values"].reshape(8, -1, 2), 1, 1)
    values[np.repeat(arrays["indices"], 2, 0) < 0] = np.nan
    at = BlockedEllRef(session.put(values.reshape(8, -1)), session.put(arrays["indices"]), 2, (8, 10))
    b, c = vector(1, (10, 3), dtype), vector(2, (8, 3), dtype)
    got = session.submit(SpMm(a=at, b=session.put(b), c=session.put(c), beta=0.5))
    want, scale = wide(a) @ wide(b) + 0.5 * wide(c), abs(wide(a)) @ abs(wide(b)) + abs(wide(c))
    assert_close(session.get(got), want, dtype, 12, scale=scale)
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=at))), a)


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("form", ["bsr", "blocked_ell", "unpadded"])
@pytest.mark.parametrize("side", [2, 16])
def test_the_same_bits_each_time(session: Any, dtype: str, form: str, side: int) -> None:
    block = (side, side)
    a = blocky(3, (20, 24), block, dtype, 1.0 if form == "unpadded" else 0.3)
    matrix = put_blocks(session, a, "bsr" if form == "bsr" else "blocked_ell", block)
    if form == "unpadded":
        matrix = BlockedEllRef(matrix.values, matrix.indices, side, matrix.shape, padded=False)
    b = session.put(vector(2, (a.shape[1], 33), dtype))
    ops: list[Any] = [SpMm(a=matrix, b=b, deterministic=True)]
    if form == "bsr":
        ops.append(SpMv(a=matrix, x=session.put(vector(2, a.shape[1], dtype)), deterministic=True))
    for op in ops:
        first = session.get(session.submit(op))
        for _ in range(20):
            np.testing.assert_array_equal(session.get(session.submit(op)), first)


# -- conversions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["bsr", "blocked_ell"])
@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(data=st.data(), grid=grids, down=sides, across=sides, index=indices, density=densities, seed=seeds)
def test_dense_and_back(
    session: Any, dtype: str, form: str, data: Any, grid: tuple[int, int], down: int, across: int, index: str,
    density: float, seed: int,
) -> None:  # fmt: skip
    block = (down, down if form == "blocked_ell" else across)
    a = blocky(seed, grid, block, dtype, density)
    at = session.put(a.T).T if data.draw(st.booleans(), "columns") else session.put(a)
    got = session.submit(FromDense(dense=at, format=form, index=index, block=block))  # type: ignore[arg-type]
    for name, want in block_parts(a, form, block, index).items():
        np.testing.assert_array_equal(session.get(getattr(got, name)), want, err_msg=name)
    assert got.shape == a.shape
    session.submit(Check(a=got, ordered=True))
    out = session.empty(a.shape[::-1], dtype).T if data.draw(st.booleans(), "into columns") else None
    matrix = put_blocks(session, a, form, block, index, data.draw(st.integers(0, 2), "padding"))
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=matrix, out=out))), a)


@SHARED
@given(form=st.sampled_from(["bsr", "blocked_ell"]), index=indices, seed=seeds, room=st.integers(0, 12))
def test_from_dense_into_given_arrays(session: Any, form: str, index: str, seed: int, room: int) -> None:
    a, block = blocky(seed, (3, 4), (2, 2), "f32"), (2, 2)
    arrays = block_parts(a, form, block, index)
    if form == "bsr":
        out: Any = BsrRef(
            session.empty((room, 2, 2), "f32"), session.empty(room, index), session.empty(4, index), (6, 8)
        )
        found = arrays["indices"].size
    else:
        out = BlockedEllRef(session.empty((6, 2 * room), "f32"), session.empty((3, room), index), 2, (6, 8))
        found = arrays["indices"].shape[1]
    count = session.empty((), "i64")
    op = FromDense(dense=session.put(a), format=form, index=index, block=block, out=out, count=count)  # type: ignore[arg-type]
    if room < found:
        with pytest.raises(ShapeError, match=f"{found} blocks.*, and out has room for {room}; give larger arrays"):
            session.submit(op)
        return
    got = session.submit(op)
    assert int(session.get(count)) == found
    if form == "bsr":
        exact: Any = BsrRef(got.values[:found], got.indices[:found], got.indptr, got.shape)
    else:
        exact = got
        session.submit(Check(a=got, ordered=True))
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=exact))), a)


@pytest.mark.parametrize("index", ["i32", "i64"])
def test_more_block_columns_than_are_counted_at_once(session: Any, index: str) -> None:
    """The device counts 131,072 of them at a time."""
    a = np.zeros((4, 300_000), np.float32)
    rng = np.random.default_rng(1)
    a[rng.integers(0, 2, 500), rng.integers(0, 300_000, 500)] = 1 + rng.random(500)
    a[:2, [0, 131_071, 131_072, 262_143, 262_144, 299_999]] = 3
    want = sp.csr_array(a).tobsr((2, 1))
    want.sort_indices()
    for op in (
        FromDense(dense=session.put(a), format="bsr", index=index, block=(2, 1)),  # type: ignore[arg-type]
        Convert(a=put(session, a, "csr", index), format="bsr", block=(2, 1)),
    ):
        got = session.submit(op)
        for name, part in (("indptr", want.indptr), ("indices", want.indices), ("values", want.data)):
            np.testing.assert_array_equal(session.get(getattr(got, name)), part, err_msg=name)
    most = int(np.diff(want.indptr).max())
    got = session.submit(FromDense(dense=session.put(a[:, ::2].copy()), format="blocked_ell", block=(1, 1)))
    assert got.indices.shape[1] <= most
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=got))), a[:, ::2])


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(grid=grids, down=sides, across=sides, index=indices, density=densities, seed=seeds)
def test_transpose(
    session: Any, dtype: str, grid: tuple[int, int], down: int, across: int, index: str, density: float, seed: int
) -> None:
    a = blocky(seed, grid, (down, across), dtype, density)
    got = session.submit(Transpose(a=put_blocks(session, a, "bsr", (down, across), index)))
    assert got.shape == a.shape[::-1]
    assert got.block == (across, down)
    for name, want in block_parts(a.T, "bsr", (across, down), index).items():
        np.testing.assert_array_equal(session.get(getattr(got, name)), want, err_msg=name)


# -- checks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize(
    "form, changes, says",
    [
        ("bsr", {"indices": (0, 3)}, r"indices out of range \[0, 3\) \(1 times\)"),
        ("bsr", {"indices": (1, -1)}, r"indices out of range \[0, 3\) \(1 times\)"),
        ("bsr", {"indptr": (0, 1)}, "indptr does not rise from 0 to the number of blocks"),
        ("bsr", {"indptr": (2, 9)}, "indptr does not rise from 0 to the number of blocks"),
        ("blocked_ell", {"indices": ((0, 0), 3)}, r"indices out of range \[-1, 3\) \(1 times\)"),
        ("blocked_ell", {"indices": ((0, 0), -2)}, r"indices out of range \[-1, 3\) \(1 times\)"),
    ],
)
def test_arrays_that_hold_no_matrix(session: Any, index: str, form: str, changes: dict[str, Any], says: str) -> None:
    a = np.kron(np.array([[1, 0, 1], [0, 1, 0]]), np.ones((2, 2))).astype(np.float32)
    arrays = block_parts(a, form, (2, 2), index)
    for name, (at, value) in changes.items():
        arrays[name][at] = value
    at = {n: session.put(v) for n, v in arrays.items()}
    matrix: Any = BsrRef(**at, shape=(4, 6)) if form == "bsr" else BlockedEllRef(**at, block=2, shape=(4, 6))
    with pytest.raises(ShapeError, match=says):
        session.submit(Check(a=matrix))
    session.submit(Check(a=put_blocks(session, a, form, (2, 2), index, 1), ordered=True))


def test_order_and_duplicates(session: Any) -> None:
    values = session.put(np.ones((3, 1, 1), np.float32))

    def bsr(*cols: int) -> BsrRef:
        indptr = session.put(np.array([0, 2, 3], np.int32))
        return BsrRef(values, session.put(np.array(cols, np.int32)), indptr, (2, 4))

    def ell(*cols: int) -> BlockedEllRef:
        at = np.array([cols, (0, -1, -1)], np.int32)
        return BlockedEllRef(session.put(np.ones((2, 3), np.float32)), session.put(at), 1, (2, 4))

    for wrong, how in (
        (bsr(3, 1, 0), "order"),
        (bsr(1, 1, 0), "twice"),
        (ell(3, 1, 2), "order"),
        (ell(1, 1, 2), "twice"),
    ):
        session.submit(Check(a=wrong))
        with pytest.raises(ShapeError, match=r"indices do not rise within a block row.* \(1 times\)"):
            session.submit(Check(a=wrong, ordered=True))
        if how == "twice":
            session.submit(Check(a=wrong, ordered=True, duplicates="keep"))
        else:
            with pytest.raises(ShapeError, match=r"indices fall within a block row.* \(1 times\)"):
                session.submit(Check(a=wrong, ordered=True, duplicates="keep"))
    session.submit(Check(a=ell(-1, 1, 2)))
    some = ell(0, 1, 2)
    with pytest.raises(ShapeError, match=r"indices out of range \[0, 4\) \(2 times\)"):
        session.submit(Check(a=BlockedEllRef(some.values, some.indices, 1, some.shape, padded=False)))
    with pytest.raises(ShapeError, match=r"padding at its end \(1 times\)"):
        session.submit(Check(a=ell(-1, 1, 2), ordered=True))


# -- wrong inputs ------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_by_name(session: Any) -> None:
    a = blocky(1, (2, 3), (2, 2), "f32", 1.0)
    bsr, ell = put_blocks(session, a, "bsr", (2, 2)), put_blocks(session, a, "blocked_ell", (2, 2))
    x, dense = session.put(np.ones(6, np.float32)), session.put(a)

    def refused(op: Any, says: str) -> None:
        with pytest.raises(ShapeError) as caught:
            session.submit(op)
        assert says in str(caught.value)

    refused(SpMv(a=BsrRef(bsr.values, bsr.indices, bsr.indptr, (5, 6)), x=x), "blocks of 2 x 2 must divide (5, 6)")
    refused(
        SpMv(a=BsrRef(bsr.values, bsr.indices[:5], bsr.indptr, (4, 6)), x=x), "a.indices is i32[5]; for values f32[6"
    )
    refused(SpMv(a=BsrRef(bsr.values, bsr.indices, bsr.indptr, (6, 6)), x=x), "it must have 4")
    flat = bsr.values.reshape(24)
    refused(SpMv(a=BsrRef(flat, bsr.indices, bsr.indptr, (4, 6)), x=x), "a.values is f32[24]; it must have 3 axes")
    b = session.put(np.ones((6, 2), np.float32))
    refused(SpMm(a=BlockedEllRef(ell.values, ell.indices, 4, (4, 6)), b=b), "a.block is 4; it must divide the shape")
    refused(SpMm(a=BlockedEllRef(ell.values, ell.indices[:1], 2, (4, 6)), b=b), "a.indices is i32[1, 3]; for values")
    refused(SpMm(a=BlockedEllRef(ell.values, ell.indices, 2, (8, 6)), b=b), "it must have 8 rows")
    refused(FromDense(dense=dense, format="bsr"), "consists of blocks; pass block=(rows, columns)")
    refused(FromDense(dense=dense, format="bsr", block=(3, 2)), "block is (3, 2); blocks have at least")
    refused(FromDense(dense=dense, format="bsr", block=(0, 2)), "block is (0, 2); blocks have at least")
    refused(FromDense(dense=dense, format="blocked_ell", block=(2, 3)), "those of a BlockedEllRef are square")
    refused(FromDense(dense=dense, block=(2, 2)), "a CsrRef has no blocks; leave block out")
    with pytest.raises(TypeError, match=r"sparse\.sp_mv: a is BlockedEllRef; pass a"):
        SpMv(a=ell, x=x)  # type: ignore[arg-type]


def test_from_and_to_scipy(session: Any) -> None:
    face = getattr(getattr(session, "device", None), "sparse", None)
    if face is None:
        pytest.skip("a session without a device has no methods")
    a = drawn(5, (6, 4), "f64")
    for index in ("i32", "i64"):
        matrix = face.from_scipy(sp.bsr_array(a, blocksize=(3, 2)), index)
        assert matrix.block == (3, 2)
        session.submit(Check(a=matrix, ordered=True))
        np.testing.assert_array_equal(session.get(session.submit(ToDense(a=matrix))), a)
        back = session._run(face.to_scipy(matrix))
        assert back.format == "bsr"
        np.testing.assert_array_equal(back.toarray(), a)
    with pytest.raises(TypeError, match=r"SciPy has no form for a BlockedEllRef; dev\.sparse\.convert it to 'bsr'"):
        face.to_scipy(put_blocks(session, a, "blocked_ell", (2, 2)))
