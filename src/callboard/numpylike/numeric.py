"""Functions of elements that are no ufuncs, products, polynomials, and what samples of functions are used for."""

import math
from typing import Any

import numpy

from callboard.arrays.elementwise import apply
from callboard.arrays.handles import cast
from callboard.core.dtype import DTYPES
from callboard.core.ref import GpuRef
from callboard.numpylike.binding import Array, Dtype, Maybe, function
from callboard.numpylike.shaping import axis_of
from callboard.numpylike.ufuncs import operands, promoted

# -- elements ----------------------------------------------------------------------------------------------------------


@function()
def where(np: Any, condition: Any, x: Any, y: Any) -> Any:
    """``x`` where the condition holds, else ``y``; with the condition alone its indices."""
    condition = np.asarray(condition)
    if x is None and y is None:
        return np.nonzero(condition if condition.ndim else np.reshape(condition, (1,)))
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    return np.xp.where(condition, *operands(np, (x, y)))


@function()
def clip(
    np: Any, a: Array, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None, **kwargs: Any
) -> Any:
    """The nearest numbers between two bounds."""
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    if (a_min is not None and min is not None) or (a_max is not None and max is not None):
        raise ValueError("Passing `min` or `max` keyword argument when `a_min` and `a_max` are provided is forbidden.")
    found = a
    if low is not None:
        found = np.maximum(found, low)
    if high is not None:
        found = np.minimum(found, high)
    return np.copy(found) if found is a else found


@function("", "around")
def round(np: Any, a: Array, decimals: int) -> Any:
    """Rounded to a number of decimals, halves to the even neighbour."""
    if a.dtype.kind == "bool":
        return np.rint(a)
    if decimals == 0:
        return np.copy(a) if a.dtype.is_integer else np.xp.round(a)
    if a.dtype.is_integer:
        if decimals > 0:
            return np.copy(a)
        scaled = apply("round(x / s) * s", x=np.xp.astype(a, DTYPES["f64"]), s=10.0**-decimals)
        return np.xp.astype(scaled, a.dtype)
    factor = 10.0 ** abs(decimals)
    text = "round(x * s) / s" if decimals > 0 else "round(x / s) * s"
    return cast(apply(text, x=a, s=factor), a.dtype)


@function()
def fix(np: Any, x: Array) -> Any:
    """The integers towards 0."""
    return np.xp.trunc(x)


@function()
def real(np: Any, val: Array) -> Any:
    """The real parts."""
    return np.xp.real(val) if val.dtype.is_complex else val


@function()
def imag(np: Any, val: Array) -> Any:
    """The imaginary parts."""
    return np.xp.imag(val) if val.dtype.is_complex else np.zeros_like(val)


@function()
def angle(np: Any, z: Array, deg: bool) -> Any:
    """The angles of complex numbers."""
    found = apply("angle(z)", z=z)
    return np.rad2deg(found) if deg else found


@function()
def real_if_close(np: Any, a: Array, tol: Any = 100) -> Any:
    """The real parts if all imaginary ones are 0 but for rounding, for which it waits."""
    if not a.dtype.is_complex:
        return a
    limit = tol * float(numpy.finfo(a.dtype.np).eps) if tol > 1 else tol
    return np.xp.real(a) if bool(np.all(np.abs(np.xp.imag(a)) < limit)) else a


def _asked(name: str, text: str, plain: bool | None = None) -> None:
    def asked(np: Any, x: Array) -> Any:
        if plain is not None and not x.dtype.is_complex:
            return np.full(x.shape, plain, dtype="?")
        if plain is None and x.dtype.is_complex:
            raise TypeError(f"This operation is not supported for {x.dtype.np} values because it would be ambiguous.")
        return apply(text, x=x)

    asked.__name__, asked.__doc__ = name, f"Whether ``{text}``, of each element."
    function()(asked)


_asked("isposinf", "x == inf")
_asked("isneginf", "x == -inf")
_asked("isreal", "imag(x) == 0", True)
_asked("iscomplex", "imag(x) != 0", False)


@function()
def sinc(np: Any, x: Array) -> Any:
    """``sin(pi x) / (pi x)``."""
    x = x if x.dtype.kind in ("float", "complex") else np.xp.astype(x, DTYPES["f64"])
    return cast(apply("where(x == 0, 1.0, sin(3.141592653589793 * x) / (3.141592653589793 * x))", x=x), x.dtype)


@function()
def i0(np: Any, x: Array) -> Any:
    """The modified Bessel function of order 0, by its power series and its asymptotic one."""
    if x.dtype.is_complex:
        raise TypeError("i0 not supported for complex values")
    x = np.abs(np.xp.astype(x, DTYPES["f64"] if x.dtype.kind != "float" else x.dtype, copy=False))
    small, term = np.ones_like(x), np.ones_like(x)
    half = np.minimum(x, 20.0) / 2
    for k in range(1, 45):
        term = term * (half / k) ** 2
        small = small + term
    large, last, far = np.ones_like(x), np.ones_like(x), np.maximum(x, 20.0)
    for k in range(1, 20):
        last = last * ((2 * k - 1) ** 2 / (8.0 * k)) / far
        large = large + last
    return np.where(x <= 20.0, small, large * np.exp(x) / np.sqrt(2 * math.pi * far))


@function()
def divmod(np: Any, x1: Any, x2: Any) -> Any:
    """The quotients rounded down, and the remainders."""
    return np.floor_divide(x1, x2), np.remainder(x1, x2)


@function()
def modf(np: Any, x: Array) -> Any:
    """The fractions, and the integers towards 0, as floats."""
    x = np.xp.astype(x, np.dtype_in_floats(x.dtype), copy=False)
    whole = np.xp.trunc(x)
    return apply("where(isinf(x), copysign(0.0, x), copysign(x - w, x))", x=x, w=whole), whole


@function()
def frexp(np: Any, x: Array) -> Any:
    """Mantissas of magnitude 0.5 to 1, and exponents of 2."""
    x = np.xp.astype(x, np.dtype_in_floats(x.dtype), copy=False)
    plain = "(x != 0) & isfinite(x)"
    e = apply(f"where({plain}, floor(log2(abs(x))) + 1, 0.0)", x=x)
    m = apply("where(e == 0, x, x * exp2(-floor(e / 2)) * exp2(floor(e / 2) - e))", e=e, x=x)
    e, m = apply("where(abs(m) >= 1, e + 1, e)", m=m, e=e), apply("where(abs(m) >= 1, m / 2, m)", m=m)
    m = np.where(np.isfinite(x), m, x)
    return cast(m, x.dtype), np.xp.astype(e, DTYPES["i32"])


@function()
def isclose(np: Any, a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    """Whether elements are equal within tolerances."""
    a, b = promoted(np, a, b)
    if a.dtype.kind not in ("float", "complex"):
        a, b = (np.xp.astype(x, DTYPES["f64"]) for x in (a, b))
    close = np.abs(a - b) <= atol + np.multiply(rtol, np.abs(b))
    found = (close & np.isfinite(b)) | (a == b)
    return found | (np.isnan(a) & np.isnan(b)) if equal_nan else found


@function()
def allclose(np: Any, a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    """Whether all elements are equal within tolerances."""
    return np.value_of(np.all(isclose(np, a, b, rtol, atol, equal_nan)))


@function()
def array_equal(np: Any, a1: Any, a2: Any, equal_nan: bool) -> Any:
    """Whether two arrays have one shape and equal elements."""
    a1, a2 = np.asarray(a1), np.asarray(a2)
    if a1.shape != a2.shape:
        return False
    same = a1 == a2
    inexact = all(x.dtype.kind in ("float", "complex") for x in (a1, a2))
    return np.value_of(np.all(same | (np.isnan(a1) & np.isnan(a2)) if equal_nan and inexact else same))


@function()
def array_equiv(np: Any, a1: Any, a2: Any) -> Any:
    """Whether two arrays broadcast to equal elements."""
    a1, a2 = np.asarray(a1), np.asarray(a2)
    try:
        numpy.broadcast_shapes(a1.shape, a2.shape)
    except ValueError:
        return False
    return np.value_of(np.all(a1 == a2))


# -- products ----------------------------------------------------------------------------------------------------------


@function("", "linalg.matmul")
def matmul(np: Any, x1: Any, x2: Any) -> Any:
    """Products of matrices, over stacks of them."""
    return np.xp.matmul(*_pair(np, x1, x2))


def _pair(np: Any, a: Any, b: Any) -> list[Any]:
    return [np.asarray(x) for x in (a, b)]


@function()
def dot(np: Any, a: Array, b: Array) -> Any:
    """The product along the last axis of the first and the second last one of the second."""
    if not a.ndim or not b.ndim:
        return a * b
    if b.ndim <= 2:
        return np.xp.matmul(a, b) if a.ndim <= 2 or b.ndim == 1 else np.xp.tensordot(a, b, axes=1)
    return np.xp.tensordot(a, b, axes=((a.ndim - 1,), (b.ndim - 2,)))


@function()
def vdot(np: Any, a: Array, b: Array) -> Any:
    """The product of two lines, the first one conjugated."""
    return np.xp.vecdot(np.ravel(a), np.ravel(b))


@function()
def inner(np: Any, a: Array, b: Array) -> Any:
    """The product along the last axes."""
    if not a.ndim or not b.ndim:
        return a * b
    return np.xp.tensordot(a, b, axes=((a.ndim - 1,), (b.ndim - 1,)))


@function("", "linalg.outer")
def outer(np: Any, a: Any = None, b: Any = None, x1: Any = None, x2: Any = None) -> Any:
    """The products of each pair of elements."""
    left, right = (np.asarray(x if y is None else y) for x, y in ((a, x1), (b, x2)))
    return np.reshape(np.ravel(left), (-1, 1)) * np.ravel(right)


@function("", "linalg.vecdot")
def vecdot(np: Any, x1: Array, x2: Array, axis: int = -1) -> Any:
    """Products of vectors along an axis, the first one conjugated."""
    return np.xp.vecdot(x1, x2, axis=axis)


@function()
def matvec(np: Any, x1: Array, x2: Array) -> Any:
    """Products of matrices and vectors."""
    return np.xp.matmul(x1, np.xp.expand_dims(x2, axis=-1))[..., 0]


@function()
def vecmat(np: Any, x1: Array, x2: Array) -> Any:
    """Products of conjugated vectors and matrices."""
    return np.xp.matmul(np.xp.expand_dims(np.conj(x1), axis=-2), x2)[..., 0, :]


@function("", "linalg.tensordot")
def tensordot(np: Any, a: Any = None, b: Any = None, axes: Any = 2, x1: Any = None, x2: Any = None) -> Any:
    """The product along several axes."""
    left, right = (np.asarray(x if y is None else y) for x, y in ((a, x1), (b, x2)))
    if not isinstance(axes, int):
        axes = tuple((one,) if isinstance(one, int) else tuple(one) for one in axes)
        if any(len({a % x.ndim for a in one}) < len(one) for one, x in zip(axes, (left, right), strict=True) if x.ndim):
            raise ValueError("duplicate axes are not allowed in tensordot")
    return np.xp.tensordot(left, right, axes=axes)


@function()
def kron(np: Any, a: Array, b: Array) -> Any:
    """Kronecker's product."""
    rank = max(a.ndim, b.ndim)
    a, b = (np.reshape(x, (*(1,) * (rank - x.ndim), *x.shape)) for x in (a, b))
    product = np.reshape(a, tuple(n for e in a.shape for n in (e, 1))) * np.reshape(
        b, tuple(n for e in b.shape for n in (1, e))
    )
    return np.reshape(product, tuple(m * n for m, n in zip(a.shape, b.shape, strict=True)))


@function()
def einsum(np: Any, *operands: Any, optimize: Any = False, **kwargs: Any) -> Any:
    """Sums of products by an equation."""
    dtype = kwargs.pop("dtype", None)
    taken: list[Any]
    if isinstance(operands[0], str):
        taken = [operands[0], *(np.asarray(x) for x in operands[1:])]
    else:
        pairs = len(operands) // 2 * 2
        taken = [np.asarray(x) if i % 2 == 0 and i < pairs else _labels(x) for i, x in enumerate(operands)]
    if dtype is not None:
        taken = [x.astype(np.dtype_of(dtype)) if isinstance(x, GpuRef) else x for x in taken]
    return np.xp.einsum(*taken)


def _labels(given: Any) -> list[Any]:
    found = given.tolist() if isinstance(given, GpuRef | numpy.ndarray) else given
    return [one if one is Ellipsis else int(one) for one in found]


@function("", "linalg.cross")
def cross(
    np: Any,
    a: Any = None,
    b: Any = None,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: Any = None,
    x1: Any = None,
    x2: Any = None,
) -> Any:
    """Products of vectors of two or three components."""
    left, right = (np.asarray(x if y is None else y) for x, y in ((a, x1), (b, x2)))
    if axis is not None:
        axisa = axisb = axisc = axis
    left, right = (np.moveaxis(x, axis_of(at, x.ndim), -1) for x, at in ((left, axisa), (right, axisb)))
    sizes = left.shape[-1], right.shape[-1]
    if not set(sizes) <= {2, 3}:
        raise ValueError("incompatible dimensions for cross product\n(dimension must be 2 or 3)")
    p, q = ([x[..., i] for i in range(n)] for x, n in zip((left, right), sizes, strict=True))
    last = p[0] * q[1] - p[1] * q[0]
    if sizes == (2, 2):
        return last
    zero = np.zeros_like(p[0])
    pz, qz = p[2] if sizes[0] == 3 else zero, q[2] if sizes[1] == 3 else zero
    parts = np.broadcast_arrays(p[1] * qz - pz * q[1], pz * q[0] - p[0] * qz, last)
    return np.moveaxis(np.stack(parts, axis=-1), -1, axisc)


@function()
def trace(np: Any, a: Array, offset: int, axis1: int, axis2: int, dtype: Dtype) -> Any:
    """The sums along diagonals."""
    return np.xp.sum(diagonal(np, a, offset, axis1, axis2), axis=-1, dtype=dtype)


@function()
def diagonal(np: Any, a: Array, offset: int, axis1: int, axis2: int) -> Any:
    """The view of the diagonals."""
    if a.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    return np.xp.linalg.diagonal(np.moveaxis(a, (axis1, axis2), (-2, -1)), offset=offset)


# -- samples -----------------------------------------------------------------------------------------------------------


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


# -- polynomials -------------------------------------------------------------------------------------------------------


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
