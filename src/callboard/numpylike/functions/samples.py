"""Lines of samples: convolutions, slopes, integrals, covariances."""

from typing import Any

import numpy

from callboard.arrays.elementwise import apply
from callboard.core.dtype import DTYPES
from callboard.numpylike.binding import Array, Dtype, Maybe, function
from callboard.numpylike.functions.shaping import axis_of
from callboard.numpylike.ufuncs import promoted


@function()
def convolve(np: Any, a: Array, v: Array, mode: str) -> Any:
    """The convolution of two lines, as one product of matrices."""
    a, v = (np.atleast_1d(x) for x in (a, v))
    if a.ndim > 1 or v.ndim > 1:
        raise ValueError("object too deep for desired array")
    if not a.size or not v.size:
        raise ValueError(("a" if not a.size else "v") + " cannot be empty")
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    a, v = promoted(np, a, v)
    return _slid(np, a, np.flip(v), mode)


@function()
def correlate(np: Any, a: Array, v: Array, mode: str) -> Any:
    """The correlation of two lines."""
    if not a.size or not v.size:
        raise ValueError("array cannot be empty")
    a, v = promoted(np, np.atleast_1d(a), np.conj(np.atleast_1d(v)))
    if v.shape[0] <= a.shape[0]:
        return _slid(np, a, v, mode)
    return np.flip(_slid(np, v, a, mode))


def _slid(np: Any, a: Any, v: Any, mode: str) -> Any:
    """The products of ``v`` with the parts of the longer line ``a``."""
    modes = {"full": (v.shape[0] - 1,) * 2, "valid": (0, 0), "same": (v.shape[0] // 2, (v.shape[0] - 1) // 2)}
    if isinstance(mode, int) and 0 <= mode < 3:
        mode = ("valid", "same", "full")[mode]
    if not isinstance(mode, str | int):
        raise TypeError(f"convolve mode must be a str, but is {mode!r}")
    if mode not in modes:
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    before, after = modes[mode]
    zeros = [np.zeros((n,), dtype=a.dtype) for n in (before, after)]
    line = np.concatenate([zeros[0], a, zeros[1]])
    n, m = v.shape[0], line.shape[0] - v.shape[0] + 1
    parts = line._view(np.layout(line.dtype, (m, n), (1, 1)), line.offset)
    if a.dtype.kind == "bool":
        return np.any(parts & v, axis=1)
    return np.xp.matmul(np.copy(parts), v)


@function()
def gradient(np: Any, f: Array, *varargs: Any, axis: Any, edge_order: int) -> Any:
    """Differences at each point, of second order inside."""
    places = (
        tuple(range(f.ndim))
        if axis is None
        else tuple(axis_of(a, f.ndim) for a in ((axis,) if isinstance(axis, int) else axis))
    )
    if len(varargs) not in (0, 1, len(places)):
        raise TypeError("invalid number of arguments")
    given = list(varargs) or [1.0]
    if any(numpy.ndim(h) > 1 for h in given):
        raise ValueError("distances must be either scalars or 1d")
    given = given * len(places) if len(given) == 1 and not numpy.ndim(given[0]) else given
    if len(given) != len(places):
        raise TypeError("invalid number of arguments")
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    f = f if f.dtype.kind in ("float", "complex") else np.xp.astype(f, DTYPES["f64"])
    found = [
        _slope(np, f, a, np.asarray(h) if numpy.ndim(h) else h, edge_order) for a, h in zip(places, given, strict=True)
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(np: Any, f: Any, axis: int, h: Any, edge_order: int) -> Any:
    n = f.shape[axis]
    if n < edge_order + 1:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are "
            "required."
        )
    front = (slice(None),) * axis

    def at(key: Any) -> Any:
        return (*front, key)

    out = np.empty_like(f)
    inner, low, high = f[at(slice(1, -1))], f[at(slice(None, -2))], f[at(slice(2, None))]
    if numpy.ndim(h) == 0:
        h = float(h)
        out[at(slice(1, -1))] = (high - low) / (2.0 * h)
        steps: Any = None
        first = last = h
    else:
        if h.ndim != 1 or h.shape[0] != n:
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
        h = np.xp.astype(h, DTYPES["f64"], copy=False) if h.dtype.kind != "float" else h
        steps = np.reshape(h[1:] - h[:-1], tuple(-1 if i == axis else 1 for i in range(f.ndim)))
        a, b = steps[at(slice(None, -1))], steps[at(slice(1, None))]
        text = "-(b / (a * (a + b))) * l + (b - a) / (a * b) * m + a / (b * (a + b)) * h"
        out[at(slice(1, -1))] = apply(text, b=b, a=a, l=low, m=inner, h=high)
        first, last = steps[at(slice(0, 1))], steps[at(slice(-1, None))]
    if edge_order == 1:
        out[at(slice(0, 1))] = (f[at(slice(1, 2))] - f[at(slice(0, 1))]) / first
        out[at(slice(-1, None))] = (f[at(slice(-1, None))] - f[at(slice(-2, -1))]) / last
        return out
    second = first if steps is None else steps[at(slice(1, 2))]
    before = last if steps is None else steps[at(slice(-2, -1))]
    f0, f1, f2 = (f[at(slice(i, i + 1))] for i in range(3))
    out[at(slice(0, 1))] = (
        -(2.0 * first + second) / (first * (first + second)) * f0
        + (first + second) / (first * second) * f1
        - first / (second * (first + second)) * f2
    )
    g0, g1, g2 = f[at(slice(-3, -2))], f[at(slice(-2, -1))], f[at(slice(-1, None))]
    out[at(slice(-1, None))] = (
        last / (before * (before + last)) * g0
        - (last + before) / (before * last) * g1
        + (2.0 * last + before) / (last * (before + last)) * g2
    )
    return out


@function()
def trapezoid(np: Any, y: Array, x: Maybe, dx: Any, axis: int) -> Any:
    """The integral by the trapezoidal rule."""
    axis = axis_of(axis, y.ndim)
    front = (slice(None),) * axis
    if x is not None:
        if x.ndim == 1:
            dx = np.reshape(np.diff(x), tuple(-1 if i == axis else 1 for i in range(y.ndim)))
        else:
            dx = np.diff(x, axis=axis)
    return np.sum(dx * (y[(*front, slice(1, None))] + y[(*front, slice(None, -1))]) / 2.0, axis=axis)


@function()
def unwrap(np: Any, p: Array, discont: Any, axis: int, period: Any) -> Any:
    """Angles without jumps of more than half a period."""
    axis = axis_of(axis, p.ndim)
    steps = np.diff(p, axis=axis)
    limit = period / 2 if discont is None else discont
    whole = p.dtype.is_integer and isinstance(period, int)
    half, boundary = (period // 2, period % 2 == 0) if whole else (period / 2, True)
    inside = np.mod(steps + half, period) - half
    if boundary:
        inside = np.where((inside == -half) & (steps > 0), half, inside)
    correct = np.where(np.abs(steps) < limit, 0, inside - steps)
    front = (slice(None),) * axis
    dtype = p.dtype if whole or p.dtype.kind == "float" else DTYPES["f64"]
    out = np.array(p, dtype=dtype, copy=True)
    out[(*front, slice(1, None))] = out[(*front, slice(1, None))] + np.cumsum(correct, axis=axis)
    return out


@function()
def cov(
    np: Any, m: Array, y: Maybe, rowvar: bool, bias: bool, ddof: Any, fweights: Maybe, aweights: Maybe, dtype: Dtype
) -> Any:
    """The covariance of variables."""
    if m.ndim > 2 or (y is not None and y.ndim > 2):
        raise ValueError("m has more than 2 dimensions" if m.ndim > 2 else "y has more than 2 dimensions")
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    to = dtype or np.dtype_of(numpy.result_type(m.dtype.np, *(() if y is None else (y.dtype.np,)), numpy.float64))
    x = np.xp.astype(np.atleast_2d(m), to, copy=False)
    x = x.T if not rowvar and m.ndim != 1 else x
    if not x.shape[0]:
        return np.zeros((0, 0), dtype=to)
    if y is not None:
        other = np.xp.astype(np.atleast_2d(y), to, copy=False)
        x = np.concatenate([x, other.T if not rowvar and other.shape[0] != 1 else other], axis=0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    w: Any = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if given.ndim != 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if given.shape[0] != x.shape[1]:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if (
            name == "fweights"
            and given.dtype.kind not in ("int", "uint")
            and not bool(np.all(given == np.round(given)))
        ):
            raise TypeError("fweights must be integer")
        if bool(np.any(given < 0)):
            raise ValueError(f"{name} cannot be negative")
        w = given * 1.0 if w is None else w * given
    total = float(x.shape[1]) if w is None else np.sum(w)
    middle = np.mean(x, axis=1, keepdims=True) if w is None else np.sum(x * w, axis=1, keepdims=True) / total
    if w is None or aweights is None:
        factor = total - ddof
    else:
        factor = total - ddof * np.sum(w * aweights) / total
    if isinstance(factor, float) and factor <= 0:
        factor = 0.0
    x = x - middle
    weighted = x if w is None else x * w
    return np.squeeze(np.xp.matmul(x, np.conj(weighted).T) / factor)


@function()
def corrcoef(np: Any, x: Array, y: Maybe, rowvar: bool, dtype: Dtype) -> Any:
    """The correlation of variables."""
    c = np.cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return c / c
    spread = np.sqrt(np.real(np.diag(c)))
    c = c / np.reshape(spread, (-1, 1)) / spread
    if c.dtype.is_complex:
        return apply("complex(maximum(minimum(real(c), 1), -1), maximum(minimum(imag(c), 1), -1))", c=c)
    return np.clip(c, -1, 1)
