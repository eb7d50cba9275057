"""Eigenvalues of general matrices at the ends of the range, where ``geev`` of the CPU is given a scaled matrix."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from callboard.core.errors import NumericalError
from callboard.kernel.solver import Geev, GeevValues
from callboard.testing.session import LibrarySession

LIMITS = {"f4": 40, "f8": 459, "c8": 40, "c16": 459}
"""Base 2 logarithms of what LAPACK takes as it is."""


@pytest.fixture(scope="module")
def session() -> Iterator[LibrarySession]:
    with LibrarySession("cpu") as session:
        yield session


def eig(session: LibrarySession, a: Any) -> tuple[Any, Any]:
    ref = session.put(a)
    result = session.submit(Geev(a=ref))
    w, v = session.get(result.w), session.get(result.v)
    np.testing.assert_array_equal(session.get(session.submit(GeevValues(a=ref))), w)
    return w, v


@pytest.mark.parametrize("exponent", range(-3, 3))
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("dtype, limit", LIMITS.items())
def test_either_side_of_the_limits(session: LibrarySession, dtype: str, limit: int, sign: int, exponent: int) -> None:
    """The eigenvalues are exact: powers of two and 1.5 times that."""
    a = np.diag(np.array([1, 1.5, -0.5, 1 + 1j if dtype[0] == "c" else 1.25], dtype))
    for size in (2.0 ** (sign * limit + exponent), np.nextafter(2.0 ** (sign * limit + exponent), 0)):
        scaled = (a * size).astype(dtype)
        w, v = eig(session, scaled)
        np.testing.assert_array_equal(w, scaled.diagonal())
        np.testing.assert_array_equal(abs(v), np.eye(4))


@pytest.mark.parametrize("dtype, limit", LIMITS.items())
def test_a_power_of_two_does_not_change_vectors(session: LibrarySession, dtype: str, limit: int) -> None:
    generator = np.random.default_rng(1)
    a = (generator.standard_normal((9, 9)) + (1j * generator.standard_normal((9, 9)) if dtype[0] == "c" else 0)).astype(
        dtype
    )
    for exponents in ((limit + 2, 2 * limit), (-limit - 5, -2 * limit)):
        (w, v), (other_w, other_v) = (eig(session, a * a.real.dtype.type(2.0) ** e) for e in exponents)
        np.testing.assert_array_equal(v, other_v)
        np.testing.assert_array_equal(w * a.real.dtype.type(2.0) ** (exponents[1] - exponents[0]), other_w)


@pytest.mark.parametrize("dtype", LIMITS)
def test_ends_of_the_range(session: LibrarySession, dtype: str) -> None:
    info = np.finfo(dtype)
    for least in (info.tiny, info.smallest_subnormal):
        w, _ = eig(session, np.diag(np.array([4, 3], dtype)) * least)
        np.testing.assert_array_equal(w, np.array([4, 3]) * least)
    w, _ = eig(session, np.diag(np.array([info.max, -info.max], dtype)))
    np.testing.assert_array_equal(w, [info.max, -info.max])
    w, _ = eig(session, np.array([[0, info.max / 2], [-info.max / 2, 0]], dtype))
    np.testing.assert_allclose(np.sort(w.imag) / info.max, [-0.5, 0.5], rtol=8 * info.eps)
    w, v = eig(session, np.full((2, 2), info.max, dtype))
    assert np.isinf(w.real).sum() == 1, "2 * max is more than the dtype holds"
    assert np.isfinite(v).all()
    w, _ = eig(session, np.zeros((3, 3), dtype))
    np.testing.assert_array_equal(w, 0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_at_any_scale(session: LibrarySession, wrong: float) -> None:
    with pytest.raises(NumericalError, match="finite"):
        session.submit(Geev(a=session.put(np.array([[1e300, 0], [0, wrong]]))))
