"""Polynomials: coefficients, the highest power first."""

from typing import Any

import numpy

from callboard.numpylike.binding import Array, Maybe, function


@function()
def polyval(np: Any, p: Array, x: Array) -> Any:
    """A polynomial, its highest coefficient first."""
    found = np.zeros_like(x)
    for k in range(p.shape[0]):
        found = found * x + p[k]
    return found


@function()
def poly(np: Any, seq_of_zeros: Array) -> Any:
    """The polynomial with these roots, or the characteristic one of a matrix."""
    zeros = np.atleast_1d(seq_of_zeros)
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] and zeros.shape[0]:
        zeros = np.linalg.eigvals(zeros)
    elif zeros.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if not zeros.size:
        return np.asarray(1.0)
    found = np.ones((1,), dtype=zeros.dtype)
    one = np.ones((1,), dtype=zeros.dtype)
    for k in range(zeros.shape[0]):
        found = np.convolve(found, np.concatenate([one, -zeros[k : k + 1]]))
    if found.dtype.is_complex and zeros._port.services.blocking:
        host = numpy.sort_complex(zeros.get())
        if numpy.allclose(host, numpy.sort_complex(host.conj()), rtol=0, atol=1e-13 * max(1.0, abs(host).max())):
            found = np.real(found)
    return found


@function()
def polyfit(np: Any, x: Array, y: Array, deg: Any, rcond: Any, full: bool, w: Maybe, cov: Any) -> Any:
    """The polynomial of a degree that is nearest to points."""
    deg = int(deg)
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if not 1 <= y.ndim <= 2:
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")
    if not x.size:
        raise TypeError("expected non-empty vector for x")
    x, y = x + 0.0, y + 0.0
    rcond = x.shape[0] * float(numpy.finfo(x.dtype.np).eps) if rcond is None else rcond
    left, right = np.vander(x, deg + 1), y
    if w is not None:
        w = w + 0.0
        if w.ndim != 1 or w.shape[0] != y.shape[0]:
            raise TypeError(
                "expected a 1-d array for weights" if w.ndim != 1 else "expected w and y to have the same length"
            )
        column = np.reshape(w, (-1, 1))
        left, right = left * column, right * (column if right.ndim == 2 else w)
    scale = np.sqrt(np.sum(left * left, axis=0))
    c, residuals, rank, s = np.linalg.lstsq(left / scale, right, rcond)
    c = (c.T / scale).T
    if full:
        return c, residuals, rank, s, rcond
    if cov:
        base = np.linalg.inv(np.matmul((left / scale).T, left / scale))
        base = base / np.reshape(scale, (-1, 1)) / scale
        factor: Any = 1
        if cov != "unscaled":
            if x.shape[0] <= deg + 1:
                raise ValueError("the number of data points must exceed order to scale the covariance matrix")
            factor = residuals / (x.shape[0] - deg - 1)
        return c, base * factor if y.ndim == 1 else np.reshape(base, (*base.shape, 1)) * factor
    return c


def _combined(name: str, sign: int) -> None:
    def combined(np: Any, a1: Array, a2: Array) -> Any:
        a1, a2 = (np.atleast_1d(x) for x in (a1, a2))
        n = max(a1.shape[0], a2.shape[0])
        p, q = (np.pad(x, (n - x.shape[0], 0)) for x in (a1, a2))
        return p + q if sign > 0 else p - q

    combined.__name__, combined.__doc__ = name, "Of two polynomials."
    function()(combined)


_combined("polyadd", 1)
_combined("polysub", -1)


@function()
def polymul(np: Any, a1: Array, a2: Array) -> Any:
    """The product of two polynomials."""
    return np.convolve(a1, a2)


@function()
def polyder(np: Any, p: Array, m: int) -> Any:
    """The derivative of a polynomial."""
    m = int(m)
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    for _ in range(m):
        n = p.shape[0] - 1
        p = p[:-1] * np.xp.arange(n, 0, -1)
    return p


@function()
def polyint(np: Any, p: Array, m: int, k: Any) -> Any:
    """The integral of a polynomial."""
    constants = numpy.atleast_1d(numpy.zeros(m) if k is None else numpy.asarray(k, dtype=float))
    constants = numpy.repeat(constants, m) if constants.size == 1 and m > 1 else constants
    if m < 0 or len(constants) < m:
        raise ValueError(
            "Order of integral must be positive (see polyder)"
            if m < 0
            else "k must be a scalar or a rank-1 array of length 1 or >m."
        )
    for i in range(m):
        n = p.shape[0]
        p = np.concatenate([p / np.xp.arange(n, 0, -1), np.asarray([float(constants[i])])])
    return p


@function()
def roots(np: Any, p: Array) -> Any:
    """The roots of a polynomial, by the eigenvalues of its companion matrix. It waits for the coefficients."""
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    host = p.get()
    filled = numpy.nonzero(host)[0]
    if not len(filled):
        return np.asarray([])
    trailing = len(host) - filled[-1] - 1
    host = host[int(filled[0]) : int(filled[-1]) + 1]
    host = host if host.dtype.kind in "fc" else host.astype(float)
    found = np.zeros((0,))
    if len(host) > 1:
        companion = numpy.diag(numpy.ones(len(host) - 2, host.dtype), -1)
        companion[0, :] = -host[1:] / host[0]
        found = np.linalg.eigvals(companion)
    return np.concatenate([found, np.zeros((trailing,), dtype=found.dtype)])
