"""Sparse matrices with operators, beside SciPy's."""

import asyncio
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import callboard as cb

RNG = np.random.default_rng(0)
HOST = sp.random_array((7, 5), density=0.4, rng=RNG, format="csr") + sp.csr_array(np.eye(7, 5))
FORMATS = "csr", "csc", "coo"


def on_device(session: cb.sync.Device, form: str) -> Any:
    return session.sparse.from_scipy(HOST.asformat(form))


@pytest.mark.parametrize("form", FORMATS)
def test_products_with_arrays(session: cb.sync.Device, form: str) -> None:
    a = on_device(session, form)
    for x in (
        RNG.normal(size=5),
        RNG.normal(size=(5, 3)),
        RNG.normal(size=(3, 5)).T,
        RNG.normal(size=(10, 6))[::2, ::2],
    ):
        np.testing.assert_allclose((a @ session.array(x)).get(), HOST @ x, rtol=1e-12)
    wide = session.array(RNG.normal(size=(10, 6)))
    np.testing.assert_allclose((a @ wide[::2, ::2]).get(), HOST @ wide.get()[::2, ::2], rtol=1e-12)
    for x in (RNG.normal(size=7), RNG.normal(size=(2, 7))):
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


def test_dtypes_are_promoted(session: cb.sync.Device) -> None:
    a, x = on_device(session, "csr"), RNG.normal(size=5).astype(np.float32)
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


async def test_nothing_waits_in_asyncio() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        a = dev.sparse.from_scipy(HOST)
        x = RNG.normal(size=5)
        np.testing.assert_allclose(await (2 * a @ dev.put(x)).get(), 2 * HOST @ x, rtol=1e-12)
        gram = await (a.T @ a)
        assert gram.shape == (5, 5)
        assert (await asyncio.wait_for(dev.sparse.to_scipy(gram), 10)).nnz == gram.nnz
