"""Sparse matrices with operators, beside SciPy's."""

import asyncio
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import callboard as cb

HOST = sp.random_array((7, 5), density=0.4, rng=np.random.default_rng(0), format="csr") + sp.csr_array(np.eye(7, 5))
FORMATS = "csr", "csc", "coo"


@pytest.fixture
def rng() -> np.random.Generator:
    """Its own in each test, so that the values depend on no other."""
    return np.random.default_rng(1)


def on_device(session: cb.sync.Device, form: str) -> Any:
    return session.sparse.from_scipy(HOST.asformat(form))


@pytest.mark.parametrize("form", FORMATS)
def test_products_with_arrays(session: cb.sync.Device, rng: np.random.Generator, form: str) -> None:
    a = on_device(session, form)
    for x in (
        rng.normal(size=5),
        rng.normal(size=(5, 3)),
        rng.normal(size=(3, 5)).T,
        rng.normal(size=(10, 6))[::2, ::2],
    ):
        np.testing.assert_allclose((a @ session.array(x)).get(), HOST @ x, rtol=1e-12)
    wide = session.array(rng.normal(size=(10, 6)))
    np.testing.assert_allclose((a @ wide[::2, ::2]).get(), HOST @ wide.get()[::2, ::2], rtol=1e-12)
    for x in (rng.normal(size=7), rng.normal(size=(2, 7))):
        np.testing.assert_allclose((session.array(x) @ a).get(), x @ HOST, rtol=1e-12)


@pytest.mark.parametrize("form", FORMATS)
def test_products_with_sparse_matrices_and_numbers(session: cb.sync.Device, form: str) -> None:
    a, square = on_device(session, form), session.sparse.from_scipy((HOST.T @ HOST).asformat(form))
    found = session.sparse.to_scipy(a @ square)
    assert type(found) is sp.csr_array
    np.testing.assert_allclose(found.toarray(), (HOST @ (HOST.T @ HOST)).toarray(), rtol=1e-12)
    for scaled, factor in ((2 * a, 2), (a * np.float64(3), 3), (np.float64(3) * a, 3), (a / 4, 0.25), (-a, -1)):
        assert type(scaled) is type(a)
        np.testing.assert_allclose(session.sparse.to_scipy(scaled).toarray(), HOST.toarray() * factor, rtol=1e-12)


@pytest.mark.parametrize("other", FORMATS)
@pytest.mark.parametrize("form", FORMATS)
def test_sums_and_differences(session: cb.sync.Device, rng: np.random.Generator, form: str, other: str) -> None:
    second = sp.random_array((7, 5), density=0.5, rng=rng, format="csr")
    a, b = on_device(session, form), session.sparse.from_scipy(second.asformat(other))
    for found, want in ((a + b, HOST + second), (a - b, HOST - second), (a - a, HOST - HOST)):
        back = session.sparse.to_scipy(found)
        assert type(back) is sp.csr_array
        assert back.has_canonical_format
        np.testing.assert_array_equal(back.toarray(), want.toarray())
    assert (a - a).nnz == HOST.nnz  # entries that cancel are stored


def test_sums_of_several_dtypes_and_of_none(session: cb.sync.Device) -> None:
    a, none = on_device(session, "csr"), session.sparse.from_scipy(sp.csr_array((7, 5)))
    wide = session.sparse.from_dense(session.array(HOST.toarray()), index="i64")
    found = a.astype("f32") + wide.astype("c64")
    assert (found.values.dtype.name, found.indices.dtype.name) == ("c64", "i64")
    np.testing.assert_allclose(session.sparse.to_scipy(found).toarray(), 2 * HOST.toarray(), rtol=1e-6)
    assert (none + none).nnz == 0
    np.testing.assert_array_equal(session.sparse.to_scipy(none - a).toarray(), -HOST.toarray())


def test_a_sum_that_is_no_number_warns_nobody(session: cb.sync.Device, recwarn: pytest.WarningsRecorder) -> None:
    a = session.sparse.from_scipy(sp.csr_array(np.array([[np.inf, 1.0]])))
    np.testing.assert_array_equal(session.sparse.to_scipy(a - a).toarray(), [[np.nan, 0.0]])
    assert not [one for one in recwarn if issubclass(one.category, RuntimeWarning)]


def test_sums_that_do_not_fit_are_refused(session: cb.sync.Device) -> None:
    a, dense = on_device(session, "csr"), session.array(np.ones((7, 5)))
    with pytest.raises(cb.ShapeError, match=r"\+: a CsrRef of shape \(7, 5\) and a CscRef of shape \(5, 7\)"):
        a + a.T
    for wrong in (lambda: a + 1, lambda: np.float32(1) - a, lambda: a - dense, lambda: dense + a):
        with pytest.raises(TypeError, match=r"the result is dense; take dev\.sparse\.to_dense\(a\) instead of a"):
            wrong()
    for wrong in (lambda: a + np.ones((7, 5)), lambda: np.ones((7, 5)) - a):
        with pytest.raises(TypeError, match=r"of a CsrRef .*array of the host \(float64.*dev\.put\(array\)"):
            wrong()
    for wrong in (lambda: a + HOST, lambda: HOST - a, lambda: a @ HOST.T, lambda: HOST.T @ a):
        with pytest.raises(TypeError, match=r"a matrix of the host \(float64.*dev\.sparse\.from_scipy\(matrix\)"):
            wrong()
    with pytest.raises(TypeError, match="unsupported operand"):
        a - "x"
    blocks = session.sparse.from_scipy(sp.bsr_array(np.eye(4), blocksize=(2, 2)))
    with pytest.raises(TypeError, match=r"-: a BsrRef of shape \(4, 4\) consists of blocks.*'csr'"):
        blocks - blocks


def test_dtypes_are_promoted(session: cb.sync.Device, rng: np.random.Generator) -> None:
    a, x = on_device(session, "csr"), rng.normal(size=5).astype(np.float32)
    assert (a.astype("f32") @ session.array(x)).dtype.name == "f32"
    found = a @ session.array(x)
    assert found.dtype.name == "f64"
    np.testing.assert_allclose(found.get(), HOST @ x, rtol=1e-12)
    complex_ = a @ session.array(x.astype(np.complex64))
    assert complex_.dtype.name == "c128"
    ones = session.array(np.arange(5))
    np.testing.assert_allclose((a @ ones).get(), HOST @ np.arange(5), rtol=1e-12)


def test_what_does_not_fit_is_refused(session: cb.sync.Device) -> None:
    a = on_device(session, "csr")
    with pytest.raises(cb.ShapeError, match=r"x is f64\[7\]"):
        a @ session.array(np.ones(7))
    with pytest.raises(cb.ShapeError, match=r"f64\[2, 5, 1\]; it must have 1 or 2 axes"):
        a @ session.array(np.ones((2, 5, 1)))
    with pytest.raises(cb.ShapeError, match="b must have 5 rows"):
        a @ a
    for wrong in ("x", None):
        with pytest.raises(TypeError):
            a @ wrong
    for product in (lambda: a @ np.ones(5), lambda: np.ones((2, 7)) @ a):
        with pytest.raises(TypeError, match=r"@ of a CsrRef .*array of the host \(float64.*dev\.put\(array\)"):
            product()
    with pytest.raises(AttributeError, match=r"CsrRef has no 'toarray'; use dev\.sparse\.to_dense\(a\)"):
        a.toarray()
    assert not hasattr(a, "nothing")
    blocks = session.sparse.from_scipy(sp.bsr_array(np.eye(4), blocksize=(2, 2)))
    np.testing.assert_allclose((blocks @ session.array(np.ones(4))).get(), np.ones(4))
    with pytest.raises(TypeError, match=r"a BsrRef of shape \(4, 4\) with a sparse matrix.*'csr'"):
        blocks @ blocks


async def test_nothing_waits_in_asyncio(rng: np.random.Generator) -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        a = dev.sparse.from_scipy(HOST)
        x = rng.normal(size=5)
        np.testing.assert_allclose(await (2 * a @ dev.put(x)).get(), 2 * HOST @ x, rtol=1e-12)
        gram = await (a.T @ a)
        assert gram.shape == (5, 5)
        assert (await asyncio.wait_for(dev.sparse.to_scipy(gram), 30)).nnz == gram.nnz
        total = await (a + 2 * a)
        np.testing.assert_allclose((await dev.sparse.to_scipy(total)).toarray(), 3 * HOST.toarray())
        with pytest.raises(cb.ShapeError, match="its extents depend on data: await it first"):
            (a + a) + a
