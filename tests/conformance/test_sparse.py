"""Sparse matrices: products, conversions and checks, over every format, index and value dtype."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sparse_lab import FORMATS, VALUES, dense_of, drawn, parts, put, vector, wide

import callboard as cb
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.core.operand import operands_of
from callboard.kernel.sparse import Check, Convert, CooRef, CsrRef, FromDense, SpGemm, SpMm, SpMv, ToDense
from callboard.testing.tolerances import assert_close

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)  # one session for all
extents = st.integers(0, 9) | st.sampled_from([17, 64, 100])
seeds = st.integers(0, 2**31)
formats = st.sampled_from(list(FORMATS))
indices = st.sampled_from(["i32", "i64"])
densities = st.sampled_from([0.0, 0.1, 0.5, 1.0])


def submit(session: Any, op: Any) -> Any:
    """Execute it where the backend can; a refusal must say why."""
    reason = session.why_not(op)
    if reason is not None:
        assert len(reason) > 10
        with pytest.raises(UnsupportedOp):
            session.submit(op)
        pytest.skip(reason)
    return session.submit(op)


def factor(draw: Any, session: Any, dtype: str, name: str) -> tuple[Any, Any]:
    """A number, and what to pass for it: itself or a 0-d array."""
    value = draw(
        st.sampled_from([1.0, 0.0, -0.5, 2.0] + ([1 + 0.5j] if dtype[0] == "c" and dtype != "coo" else [])), name
    )
    if not draw(st.booleans(), f"{name} on device"):
        return value, value
    scale = "f32" if dtype in ("f16", "bf16") else dtype
    return value, session.put(np.array(value, DTYPES[scale].np))


def sums_of(session: Any, dtype: str) -> Any:
    """What sums are kept in: cuSPARSE adds to halves in memory where it goes through a matrix against its order."""
    return {"f16": "half", "bf16": "brain"}.get(dtype, dtype) if session.backend.name == "cuda" else dtype


def turned(a: np.ndarray[Any, Any], transpose: bool, conj: bool) -> np.ndarray[Any, Any]:
    return (a.conj() if conj else a).T if transpose else a


# -- products ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(
    data=st.data(),
    form=formats,
    index=indices,
    m=extents,
    n=extents,
    density=densities,
    seed=seeds,
    transpose=st.booleans(),
)
def test_sp_mv(
    session: Any,
    dtype: str,
    data: Any,
    form: str,
    index: str,
    m: int,
    n: int,
    density: float,
    seed: int,
    transpose: bool,
) -> None:
    a = drawn(seed, (n, m) if transpose else (m, n), dtype, density)
    conj = transpose and data.draw(st.booleans(), "conj")
    x, y = vector(seed, n, dtype), vector(seed + 1, m, dtype)
    alpha, at_alpha = factor(data.draw, session, dtype, "alpha")
    beta, at_beta = factor(data.draw, session, dtype, "beta")
    given_out = data.draw(st.sampled_from(["none", "new", "y"]), "out")
    at_y = session.put(y)
    out = {"none": None, "new": session.empty(m, dtype), "y": at_y}[given_out]
    op = SpMv(
        a=put(session, a, form, index), x=session.put(x), out=out, y=at_y, alpha=at_alpha, beta=at_beta,
        transpose=transpose, conj=conj,
    )  # fmt: skip
    got = session.get(submit(session, op))
    b = wide(turned(a, transpose, conj))
    want = alpha * (b @ wide(x)) + (beta * wide(y) if beta != 0 else 0)
    scale = abs(alpha) * (abs(b) @ abs(wide(x))) + abs(beta) * abs(wide(y))
    assert_close(got, want, sums_of(session, dtype), n + 2, scale=scale)
    if given_out != "y":
        np.testing.assert_array_equal(session.get(at_y), y)


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(
    data=st.data(), form=formats, index=indices, m=extents, k=extents, n=extents, density=densities, seed=seeds,
    transpose=st.booleans(),
)  # fmt: skip
def test_sp_mm(
    session: Any, dtype: str, data: Any, form: str, index: str, m: int, k: int, n: int, density: float, seed: int,
    transpose: bool,
) -> None:  # fmt: skip
    a = drawn(seed, (k, m) if transpose else (m, k), dtype, density)
    conj = transpose and data.draw(st.booleans(), "conj")
    b, c = vector(seed, (k, n), dtype), vector(seed + 1, (m, n), dtype)

    def laid(array: np.ndarray[Any, Any], name: str) -> Any:
        how = data.draw(st.sampled_from(["rows", "cols", "wide"]), name)
        if how == "cols":
            return session.put(array.T).T
        if how == "wide":
            padded = session.put(np.concatenate([array, array[:, :1], array[:, :1]], 1)) if array.shape[1] else None
            return session.put(array) if padded is None else padded[:, : array.shape[1]]
        return session.put(array)

    alpha, at_alpha = factor(data.draw, session, dtype, "alpha")
    beta, at_beta = factor(data.draw, session, dtype, "beta")
    at_c = laid(c, "c")
    given_out = data.draw(st.sampled_from(["none", "new", "c"]), "out")
    out = {"none": None, "new": laid(np.full_like(c, np.nan), "out"), "c": at_c}[given_out]
    op = SpMm(
        a=put(session, a, form, index), b=laid(b, "b"), out=out, c=at_c, alpha=at_alpha, beta=at_beta,
        transpose=transpose, conj=conj,
    )  # fmt: skip
    got = session.get(submit(session, op))
    left = wide(turned(a, transpose, conj))
    want = alpha * (left @ wide(b)) + (beta * wide(c) if beta != 0 else 0)
    scale = abs(alpha) * (abs(left) @ abs(wide(b))) + abs(beta) * abs(wide(c))
    assert_close(got, want, sums_of(session, dtype), k + 2, scale=scale)


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(data=st.data(), index=indices, m=extents, k=extents, n=extents, density=densities, seed=seeds)
def test_sp_gemm(
    session: Any, dtype: str, data: Any, index: str, m: int, k: int, n: int, density: float, seed: int
) -> None:
    a, b = drawn(seed, (m, k), dtype, density), drawn(seed + 1, (k, n), dtype, density)
    alpha, at_alpha = factor(data.draw, session, dtype, "alpha")
    op = SpGemm(a=put(session, a, "csr", index), b=put(session, b, "csr", index), alpha=at_alpha)
    if session.why_not(op) is not None:
        assert dtype in ("f16", "bf16")
        assert at_alpha is not alpha
        return
    got = submit(session, op)
    assert isinstance(got, CsrRef)
    pattern = (a != 0).astype(int) @ (b != 0).astype(int)
    assert got.values.shape == got.indices.shape == (np.count_nonzero(pattern),)
    assert got.indices.dtype.name == got.indptr.dtype.name == index
    session.submit(Check(a=got))
    assert_close(
        dense_of(session, got),
        alpha * (wide(a) @ wide(b)),
        sums_of(session, dtype),
        k + 2,
        scale=abs(alpha) * (abs(wide(a)) @ abs(wide(b))),
    )


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(
    index=indices, m=extents, k=extents, n=extents, density=densities, seed=seeds, spare=st.integers(-1, 20),
    deterministic=st.booleans(),
)  # fmt: skip
def test_sp_gemm_into_given_arrays(
    session: Any, dtype: str, index: str, m: int, k: int, n: int, density: float, seed: int, spare: int,
    deterministic: bool,
) -> None:  # fmt: skip
    a, b = drawn(seed, (m, k), dtype, density), drawn(seed + 1, (k, n), dtype, density)
    found = int(np.count_nonzero((a != 0).astype(int) @ (b != 0).astype(int)))
    room = max(found + spare, 0)
    count = session.put(np.array(-7))
    out = CsrRef(session.empty(room, dtype), session.empty(room, index), session.empty(m + 1, index), (m, n))
    op = SpGemm(
        a=put(session, a, "csr", index), b=put(session, b, "csr", index), out=out, count=count,
        deterministic=deterministic,
    )  # fmt: skip
    if room < found:
        with pytest.raises(ShapeError, match=f"{found} entries, and out has room for {room}; give larger arrays"):
            session.submit(op)
        return
    got = session.submit(op)
    assert int(session.get(count)) == found
    exact = CsrRef(got.values[:found], got.indices[:found], got.indptr, got.shape)
    session.submit(Check(a=exact))
    scale = abs(wide(a)) @ abs(wide(b))
    assert_close(dense_of(session, exact), wide(a) @ wide(b), sums_of(session, dtype), k + 2, scale=scale)


# -- conversions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(form=formats, index=indices, m=extents, n=extents, density=densities, seed=seeds, columns=st.booleans())
def test_to_dense(
    session: Any, dtype: str, form: str, index: str, m: int, n: int, density: float, seed: int, columns: bool
) -> None:
    a = drawn(seed, (m, n), dtype, density)
    out = session.empty((n, m), dtype).T if columns else None
    got = submit(session, ToDense(a=put(session, a, form, index), out=out))
    np.testing.assert_array_equal(session.get(got), a)


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(form=formats, index=indices, m=extents, n=extents, density=densities, seed=seeds, columns=st.booleans())
def test_from_dense(
    session: Any, dtype: str, form: str, index: str, m: int, n: int, density: float, seed: int, columns: bool
) -> None:
    a = drawn(seed, (m, n), dtype, density)
    at = session.put(a.T).T if columns else session.put(a)
    got = submit(session, FromDense(dense=at, format=form, index=index))  # type: ignore[arg-type]
    want = parts(a, form, index)
    for name, ref in operands_of(got).items():
        np.testing.assert_array_equal(session.get(ref), want[name], err_msg=name)
        assert ref.dtype is DTYPES[want[name].dtype.name.replace("int", "i")] if name != "values" else True
    assert got.shape == (m, n)


@SHARED
@given(form=formats, index=indices, seed=seeds, room=st.integers(0, 20))
def test_from_dense_into_given_arrays(session: Any, form: str, index: str, seed: int, room: int) -> None:
    a = drawn(seed, (5, 7), "f32", 0.25)
    n = np.count_nonzero(a)
    sizes = {
        "coo": {"rows": room, "cols": room},
        "csr": {"indices": room, "indptr": 6},
        "csc": {"indices": room, "indptr": 8},
    }
    out = FORMATS[form](
        values=session.empty(room, "f32"), shape=(5, 7), **{k: session.empty(v, index) for k, v in sizes[form].items()}
    )
    count = session.empty((), "i64")
    op = FromDense(dense=session.put(a), format=form, index=index, out=out, count=count)  # type: ignore[arg-type]
    if room < n:
        with pytest.raises(ShapeError, match=f"{n} entries, and out has room for {room}; give larger arrays"):
            submit(session, op)
    else:
        submit(session, op)
        for name, want in parts(a, form, index).items():
            np.testing.assert_array_equal(session.get(getattr(out, name))[: want.size], want, err_msg=name)
        assert int(session.get(count)) == n


@pytest.mark.parametrize("value, stored", [(np.nan, 1), (-0.0, 0), (np.inf, 1), (5e-324, 1), (0.0, 0)])
def test_what_counts_as_an_entry(session: Any, value: float, stored: int) -> None:
    for dtype in VALUES:
        tiny = np.array([[value]]).astype(DTYPES[dtype].np)
        got = session.submit(FromDense(dense=session.put(tiny)))
        assert got.values.size == (stored if tiny[0, 0] != 0 else 0), dtype


@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(source=formats, target=formats, index=indices, m=extents, n=extents, density=densities, seed=seeds)
def test_convert(
    session: Any, dtype: str, source: str, target: str, index: str, m: int, n: int, density: float, seed: int
) -> None:
    if source == target:
        return
    a = drawn(seed, (m, n), dtype, density)
    got = submit(session, Convert(a=put(session, a, source, index), format=target))  # type: ignore[arg-type]
    for name, want in parts(a, target, index).items():
        np.testing.assert_array_equal(session.get(getattr(got, name)), want, err_msg=name)


def test_the_transpose_shares_the_arrays(session: Any) -> None:
    a = drawn(3, (6, 4), "f32")
    matrix = put(session, a)
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=matrix.T))), a.T)
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=matrix.T.T))), a)
    assert matrix.T.values is matrix.values


# -- checks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize(
    "form, changes, says",
    [
        ("csr", {"indices": (0, 9)}, r"indices out of range \[0, 5\) \(1 times\)"),
        ("csr", {"indices": (0, -1)}, r"indices out of range \[0, 5\) \(1 times\)"),
        ("csc", {"indices": (2, 4)}, r"indices out of range \[0, 4\) \(1 times\)"),
        ("csr", {"indptr": (0, 1)}, r"indptr does not rise from 0 to the number of entries"),
        ("csr", {"indptr": (2, 99)}, r"indptr does not rise from 0 to the number of entries"),
        ("csr", {"indptr": (4, -(2**31))}, r"indptr does not rise from 0 to the number of entries"),
        ("csr", {"indptr": (4, 3)}, r"indptr does not rise from 0 to the number of entries"),
        ("coo", {"rows": (0, 4)}, r"rows out of range \[0, 4\) \(1 times\); rows fall \(1 times\)"),
        ("coo", {"cols": (1, -7)}, r"cols out of range \[0, 5\) \(1 times\)"),
    ],
)
def test_arrays_that_hold_no_matrix(session: Any, index: str, form: str, changes: dict[str, Any], says: str) -> None:
    a = np.zeros((4, 5), np.float32)
    a[[0, 0, 1, 3, 3], [1, 3, 0, 2, 4]] = [1, 2, 3, 4, 5]
    arrays = parts(a, form, index)
    for name, (at, value) in changes.items():
        arrays[name][at] = value
    matrix = FORMATS[form](**{n: session.put(v) for n, v in arrays.items()}, shape=(4, 5))
    with pytest.raises(ShapeError, match=says):
        session.submit(Check(a=matrix))
    session.submit(Check(a=put(session, a, form, index), ordered=True))


def test_order_and_duplicates(session: Any) -> None:
    values, shape = session.put(np.ones(3, np.float32)), (2, 4)

    def csr(*cols: int) -> CsrRef:
        return CsrRef(values, session.put(np.array(cols, np.int32)), session.put(np.array([0, 2, 3], np.int32)), shape)

    def coo(*cols: int) -> CooRef:
        return CooRef(values, session.put(np.array([0, 0, 1], np.int32)), session.put(np.array(cols, np.int32)), shape)

    for make in (csr, coo):
        session.submit(Check(a=make(1, 3, 0), ordered=True))
        for wrong in ((3, 1, 0), (1, 1, 0)):
            session.submit(Check(a=make(*wrong)))
            with pytest.raises(ShapeError, match=r"do(es)? not rise within a row.* \(1 times\)"):
                session.submit(Check(a=make(*wrong), ordered=True))


# -- wrong inputs ------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_by_name(session: Any) -> None:
    a = put(session, drawn(1, (4, 5), "f32"))
    x = session.put(np.ones(5, np.float32))
    nine = session.put(np.ones(9, np.float32))
    b = session.put(np.ones((5, 2), np.float32))

    def refused(op: Any, says: str) -> None:
        with pytest.raises(ShapeError) as caught:
            session.submit(op)
        assert says in str(caught.value)

    refused(SpMv(a=a, x=nine), "sparse.sp_mv: x is f32[9], expected f32[5]")
    refused(SpMv(a=a, x=nine[:5].reshape(5, 1)), "x is f32[5, 1], expected f32[5]")
    refused(SpMv(a=a, x=session.put(np.ones(5))), "x is f64[5], expected f32[5]")
    refused(SpMv(a=a, x=nine[::2]), "x is f32[5], strides (2,); it must have no gaps")
    refused(SpMv(a=a, x=x, out=nine), "out is f32[9], expected f32[4]")
    refused(SpMv(a=a, x=x, conj=True), "conj without transpose")
    refused(SpMv(a=a, x=x, alpha=1j), "alpha is complex and the arrays are f32")
    refused(SpMv(a=a, x=x, alpha=session.put(np.float64(1))), "with arrays of f32 a 0-d array must be f32")
    refused(SpMv(a=CsrRef(a.values, a.indices, a.indptr, (5, 5)), x=x), "a.indptr is i32[5]; for")
    refused(SpMv(a=CsrRef(a.values[1:], a.indices, a.indptr, (4, 5)), x=x), "a.indices is i32[")
    refused(
        SpMv(a=CsrRef(a.values, session.put(np.zeros(a.nnz, np.int64)), a.indptr, (4, 5)), x=x),
        "a.indptr is i32[5]; indices are all",
    )
    refused(SpMv(a=CsrRef(a.values[::2], a.indices[::2], a.indptr, (4, 5)), x=x), "a.values is")
    refused(SpMv(a=CsrRef(a.indices, a.indices, a.indptr, (4, 5)), x=x), "its dtype must be one of f16, bf16")
    refused(SpMm(a=a, b=b[:4]), "b is f32[4, 2] and op(a) is [4, 5]; b must have 5 rows")
    refused(SpMm(a=a, b=session.put(np.ones((10, 4), np.float32))[::2, ::2]), "rows or columns must have no gaps")
    refused(SpGemm(a=a, b=a), "a is (4, 5) and b is (4, 5); b must have 5 rows")
    refused(SpGemm(a=a, b=put(session, drawn(1, (5, 3), "f32"), "csr", "i64")), "a has i32 indices and b has i64")
    refused(
        SpGemm(a=a, b=put(session, drawn(1, (5, 3), "f32")), count=session.empty((), "i64")),
        "out and count go together",
    )
    refused(Convert(a=a, format="csr"), "a is a CsrRef already")
    refused(ToDense(a=a, out=b), "out is f32[5, 2], expected f32[4, 5]")
    with pytest.raises(ShapeError, match=r"beta is 2\.0 and y is None"):
        SpMv(a=a, x=x, beta=2.0)
    with pytest.raises(TypeError, match=r"sparse\.sp_gemm: b is CooRef; pass a CsrRef"):
        SpGemm(a=a, b=CooRef(a.values, a.indices, a.indices, (5, 5)))  # type: ignore[arg-type]


def test_an_output_that_overlaps_an_input_is_refused(session: Any) -> None:
    if not hasattr(session, "device") or not hasattr(session.device, "sparse"):
        pytest.skip("overlaps are a matter of devices; sessions without one do not look")
    a = put(session, drawn(1, (5, 5), "f32"))
    x = session.put(np.ones(5, np.float32))
    with pytest.raises(ShapeError, match="shares memory with"):
        session.submit(SpMv(a=a, x=x, out=x))


# -- SciPy -------------------------------------------------------------------------------------------------------------


def test_from_and_to_scipy(session: Any) -> None:
    device = getattr(session, "device", None)
    face = getattr(device, "sparse", None)
    if face is None:
        pytest.skip("a session without a device has no methods")
    a = drawn(5, (6, 4), "f64")
    for make in (sp.csr_array, sp.csc_matrix, sp.coo_array):
        for index in ("i32", "i64"):
            matrix = face.from_scipy(make(a), index)
            np.testing.assert_array_equal(dense_of(session, matrix), a)
            session.submit(Check(a=matrix, ordered=True))
            back = session._run(face.to_scipy(matrix))
            assert back.format == make(a).format
            np.testing.assert_array_equal(back.toarray(), a)
    twice = sp.coo_matrix(([1.0, 2.0, 3.0], ([1, 0, 1], [2, 0, 2])), shape=(2, 3))
    np.testing.assert_array_equal(dense_of(session, face.from_scipy(twice)), [[2, 0, 0], [0, 0, 4]])
    wrong = sp.csr_matrix((2, 3))
    wrong.indices, wrong.indptr, wrong.data = np.array([5]), np.array([0, 1, 1]), np.array([1.0])
    with pytest.raises(ShapeError, match="indices holds 5 to 5; the extent is 3"):
        face.from_scipy(wrong)
    with pytest.raises(TypeError, match=r"pass a scipy\.sparse matrix in CSR, CSC, COO or BSR form"):
        face.from_scipy(sp.dok_matrix((2, 2)))
    with pytest.raises(TypeError, match="index = 'i16': use one of 'i32', 'i64'"):
        face.from_scipy(sp.csr_matrix((2, 2)), "i16")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="duplicates = 'add': use one of 'keep', 'sum', 'refuse'"):
        face.from_scipy(sp.csr_matrix((2, 2)), duplicates="add")  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"the matrix holds int64; pass one of f16, .* \(for example matrix.astype\('f8'\)\)"
    ):
        face.from_scipy(sp.csr_matrix((2, 2), dtype=np.int64))


def test_a_blocking_device_gives_scipy_matrices_at_once() -> None:
    a = drawn(6, (5, 7), "f32")
    with cb.sync.device("cpu", isolation="thread", standby=None) as device:
        matrix = device.sparse.from_scipy(sp.csr_array(a))
        device.sparse.check(matrix, ordered=True).result()
        np.testing.assert_array_equal(device.sparse.to_scipy(matrix).toarray(), a)
        product = device.sparse.sp_gemm(matrix, device.sparse.convert(matrix.T, "csr")).result()
        np.testing.assert_allclose(device.sparse.to_scipy(product).toarray(), a @ a.T, atol=1e-5)
        wrong = CsrRef(matrix.values, matrix.indices, device.zeros(6, "i32"), matrix.shape)
        with pytest.raises(ShapeError, match="indptr does not rise"):
            device.sparse.check(wrong).result()


def test_a_product_of_a_transpose_with_an_addend_is_made_of_several_ops() -> None:
    """Decision 26 says so, instead of ``op_a`` and ``beta``."""
    a, b, c = (drawn(seed, (6, 6), "f64", 0.4) for seed in (7, 8, 9))
    with cb.sync.device("cpu", isolation="thread", standby=None) as device:
        left, right, addend = (device.sparse.from_scipy(sp.csr_array(x)) for x in (a, b, c))
        product = device.sparse.sp_gemm(device.sparse.convert(left.T, "csr"), right).result()
        terms = [device.sparse.convert(x, "coo") for x in (product, addend)]
        count = terms[0].nnz
        both = []
        for name in ("values", "rows", "cols"):
            first, second = (getattr(term, name) for term in terms)
            both.append(device.empty((count + second.size,), first.dtype))
            device.copy(first, both[-1][:count])
            device.copy(second, both[-1][count:])
        device.blas.scal(both[0][count:], 2.0)
        total = device.sparse.sort(CooRef(*both, shape=(6, 6)), duplicates="sum").result()
        np.testing.assert_allclose(device.sparse.to_scipy(total).toarray(), a.T @ b + 2 * c, atol=1e-12)
