"""Functions of elements that are no ufuncs, products, polynomials, and what samples of functions are used for."""

import math
from typing import Any

import numpy

from callboard.arrays.elementwise import apply
from callboard.arrays.handles import cast
from callboard.core.dtype import DTYPES
from callboard.core.ref import GpuRef
from callboard.numpylike.binding import Array, Dtype, function
from callboard.numpylike.functions.shaping import axis_of
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
