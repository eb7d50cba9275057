"""NumPy's ufuncs: one expression of elements each, with ``out``, ``where``, ``dtype`` and the methods of ``np.add``."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy

from callboard.arrays.dtypes import result_type
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import cast
from callboard.core.dtype import DTYPES, as_dtype
from callboard.core.ref import GpuRef
from callboard.core.ref.naming import ABOUT_ARGUMENTS, renamed
from callboard.kernel.elementwise.promotion import floating, join
from callboard.numpylike.binding import check_cast, dtype_of, written

__all__ = ["UFUNCS", "Ufunc", "operands"]

UFUNCS: dict[str, str] = {
    **{
        name: name
        for name in ["add", "subtract", "multiply", "divide", "equal", "not_equal", "less", "less_equal", "greater"]
    },
    **{
        name: name
        for name in ["greater_equal", "logical_and", "logical_or", "logical_xor", "logical_not", "sign", "exp", "expm1"]
    },
    **{
        name: name
        for name in [
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "square",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "isnan",
            "isinf",
        ]
    },
    **{
        name: name
        for name in ["isfinite", "signbit", "copysign", "nextafter", "maximum", "minimum", "floor_divide", "hypot"]
    },
    **{
        name: name
        for name in ["remainder", "logaddexp", "negative", "positive", "floor", "ceil", "trunc", "bitwise_and"]
    },
    **{name: name for name in ["bitwise_or", "bitwise_xor"]},
    **{f"arc{name}": f"a{name}" for name in ["sin", "cos", "tan", "sinh", "cosh", "tanh"]},
    **{f"a{name}": f"a{name}" for name in ["sin", "cos", "tan", "sinh", "cosh", "tanh"]},
    "absolute": "abs",
    "abs": "abs",
    "arctan2": "atan2",
    "atan2": "atan2",
    "bitwise_count": "bitwise_count(x1)",
    "bitwise_invert": "bitwise_invert",
    "bitwise_not": "bitwise_invert",
    "bitwise_left_shift": "bitwise_left_shift",
    "bitwise_right_shift": "bitwise_right_shift",
    "cbrt": "cbrt(x1)",
    "conj": "conj",
    "conjugate": "conj",
    "deg2rad": "deg2rad(x1)",
    "degrees": "rad2deg(x1)",
    "exp2": "exp2(x1)",
    "fabs": "abs(x1)",
    "float_power": "pow(x1, x2)",
    "fmax": "fmax(x1, x2)",
    "fmin": "fmin(x1, x2)",
    "fmod": "fmod(x1, x2)",
    "heaviside": "where(isnan(x1), x1, where(x1 == 0, x2, where(x1 < 0, 0.0, 1.0)))",
    "invert": "bitwise_invert",
    "ldexp": "x1 * exp2(floor(x2 / 2)) * exp2(x2 - floor(x2 / 2))",
    "left_shift": "bitwise_left_shift",
    "logaddexp2": "where(x1 == x2, x1 + 1, maximum(x1, x2) + log1p(exp2(-abs(x1 - x2))) * 1.4426950408889634)",
    "mod": "remainder",
    "pow": "pow",
    "power": "pow",
    "rad2deg": "rad2deg(x1)",
    "radians": "deg2rad(x1)",
    "reciprocal": "reciprocal",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "spacing": "copysign(nextafter(abs(x1), inf) - abs(x1), x1)",
    "true_divide": "divide",
}
"""What each ufunc is made of: a function of ``xp``, or an expression of ``x1`` and ``x2``."""
IN_FLOATS = frozenset({"fabs", "heaviside", "ldexp", "logaddexp2", "rint", "spacing"})
"""Ufuncs whose expressions need floating arguments: integers and bools are converted as NumPy does."""
REDUCED = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
SEGMENTED = {"add": "sum", "multiply": "product", "maximum": "max", "minimum": "min"}
"""The reductions of segments of a line, in ``dev.cub``."""
RUNNING = {"add": "cumsum", "multiply": "cumprod"}
IDENTITIES: dict[str, float] = {
    "add": 0,
    "multiply": 1,
    "logical_and": True,
    "logical_or": False,
    "logical_xor": False,
    "bitwise_and": -1,
}
IDENTITIES |= {"bitwise_or": 0, "bitwise_xor": 0, "hypot": 0, "logaddexp": -math.inf, "logaddexp2": -math.inf}
WEAK = bool, int, float, complex


def operands(np: Any, values: Sequence[Any]) -> list[Any]:
    """Arrays, and Python's numbers, which take the dtype beside them; at least one is an array.

    A number of NumPy has its own dtype (NEP 50): it stays a number where the arrays' dtype holds it, and else the
    arrays are converted.
    """
    found = [
        x if isinstance(x, GpuRef) or type(x) in WEAK or isinstance(x, numpy.generic) else np.asarray(x) for x in values
    ]
    arrays = [x.dtype for x in found if isinstance(x, GpuRef)]
    if not arrays:
        at = next((i for i, x in enumerate(found) if isinstance(x, numpy.generic)), 0)
        found[at] = np.asarray(found[at])
        arrays = [found[at].dtype]
    common = functools.reduce(join, arrays)
    for i, x in enumerate(found):
        if isinstance(x, numpy.generic):
            found[i] = x.item() if join(common, as_dtype(x.dtype)) is common else np.asarray(x)
    return found


class Ufunc:
    """One ufunc on one device: ``np.add(x, y)``, ``np.add.reduce(x)``.

    Args:
        np: The namespace.
        name: Its name in NumPy.
    """

    def __init__(self, np: Any, name: str) -> None:
        self._np = np
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"NumPy's ``{name}`` of arrays of the device."
        text = UFUNCS[name]
        self.nin = 2 if "x2" in text else 1
        self._function: Callable[..., Any] = functools.partial(_expressed, text)
        if "(" not in text and "*" not in text:
            self._function = getattr(np.xp, text)
            self.nin = getattr(numpy, name, numpy.add).nin
        self.nout = 1
        self.nargs = self.nin + 1
        self.identity = IDENTITIES.get(name)

    def __repr__(self) -> str:
        return f"<ufunc {self.__name__!r} of {self._np.xp}>"

    def __call__(
        self,
        *args: Any,
        out: Any = None,
        where: Any = True,
        dtype: Any = None,
        casting: Any = "same_kind",
        order: Any = "K",
        subok: bool = True,
        signature: Any = None,
        sig: Any = None,
    ) -> Any:
        if len(args) == self.nargs and out is None:
            args, out = args[:-1], args[-1]
        if len(args) != self.nin:
            were = "was" if len(args) == 1 else "were"
            raise TypeError(f"{self.__name__}() takes {self.nin} positional arguments but {len(args)} {were} given")
        try:
            given = operands(self._np, args)
            if dtype is not None:
                given = [self._as(x, dtype_of(dtype), casting) for x in given]
            found = self._compute(given)
            return found if out is None and where is True else self._placed(found, out, where)
        except ABOUT_ARGUMENTS as e:
            renamed(e, f"np.{self.__name__}")
            raise

    def _as(self, x: Any, dtype: Any, casting: str) -> Any:
        if not isinstance(x, GpuRef):
            return x
        check_cast(x.dtype, dtype, casting)
        return self._np.xp.astype(x, dtype, copy=False)

    def _compute(self, given: list[Any]) -> Any:
        name = self.__name__
        if name == "float_power":
            given = [
                cast(x, DTYPES["c128" if x.dtype.is_complex else "f64"]) if isinstance(x, GpuRef) else x for x in given
            ]
        elif name in IN_FLOATS:
            given = [cast(x, floating(x.dtype)) if isinstance(x, GpuRef) else float(x) for x in given]
        elif name == "reciprocal" and given[0].dtype.is_integer:
            return cast(self._np.xp.trunc(self._function(*given)), given[0].dtype)
        elif name in ("maximum", "minimum") and any(isinstance(x, GpuRef) and x.dtype.is_complex for x in given):
            raise TypeError("complex numbers have no order on a device; take np.abs, np.real")
        return self._function(*given)

    def _placed(self, found: Any, out: Any, where: Any) -> Any:
        np = self._np
        out = out[0] if isinstance(out, tuple) else out
        if where is not True:
            mask = np.asarray(where, dtype="?")
            shape = np.xp.broadcast_shapes(found.shape, mask.shape)
            if out is None:
                return np.xp.where(mask, found, np.zeros_like(found))
            if out.shape != shape:
                raise ValueError(f"out is {out.layout!r}, and the result has the shape {shape}")
            check_cast(found.dtype, out.dtype)
            out[...] = np.xp.where(mask, np.xp.astype(found, out.dtype), out)
            return out
        return written(np, out, found)

    # -- methods -------------------------------------------------------------------------------------------------------

    def outer(self, A: Any, B: Any, /, **options: Any) -> Any:
        """The function of each pair of elements."""
        np = self._np
        a, b = np.asarray(A), np.asarray(B)
        return self(np.reshape(a, (*a.shape, *(1,) * b.ndim)), b, **options)

    def reduce(
        self,
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        """The elements along some axes combined."""
        np, a = self._np, self._np.asarray(array)
        if self.nin != 2:
            raise ValueError("reduce only supported for binary functions")
        name = REDUCED.get(self.__name__)
        if name in ("all", "any"):
            return getattr(np, name)(a, axis=axis, out=out, keepdims=keepdims, where=where)
        if name is not None:
            options = {} if dtype is None else {"dtype": dtype}
            return getattr(np, name)(a, axis=axis, out=out, keepdims=keepdims, initial=initial, where=where, **options)
        if where is not True:
            if self.identity is None and initial is None:
                raise ValueError(f"reduction operation {self.__name__!r} does not have an identity; pass initial=")
            a = np.where(where, a, self.identity if initial is None else initial)
        if dtype is not None:
            a = a.astype(dtype_of(dtype))
        axes = (axis,) if isinstance(axis, int) else tuple(range(a.ndim) if axis is None else axis)
        axes = tuple(sorted(one % a.ndim for one in axes))
        found = a
        for one in reversed(axes):
            found = self._folded(found, one, initial)
        if keepdims:
            found = np.expand_dims(found, axes)
        return found if out is None else written(np, out, found)

    def _folded(self, a: Any, axis: int, initial: Any) -> Any:
        front = (slice(None),) * axis
        n = a.shape[axis]
        if not n:
            start = self.identity if initial is None else initial
            if start is None:
                raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
            return self._np.full((*a.shape[:axis], *a.shape[axis + 1 :]), start, dtype=a.dtype)
        if self.__name__ in ("subtract", "divide", "true_divide", "floor_divide", "power", "pow", "remainder", "mod"):
            found = a[(*front, 0)] if initial is None else self(initial, a[(*front, 0)])
            for at in range(1, n):
                found = self(found, a[(*front, at)])
            return found
        while n > 1:  # pairs, in log2(n) steps
            paired = self(a[(*front, slice(0, n // 2 * 2, 2))], a[(*front, slice(1, n // 2 * 2, 2))])
            a = paired if n % 2 == 0 else self._np.concatenate([paired, a[(*front, slice(n - 1, n))]], axis=axis)
            n = a.shape[axis]
        found = a[(*front, 0)]
        return found if initial is None else self(initial, found)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Running results along an axis."""
        np, a = self._np, self._np.asarray(array)
        if self.__name__ in RUNNING:
            return getattr(np, RUNNING[self.__name__])(a, axis=axis, dtype=dtype, out=out)
        if dtype is not None:
            a = a.astype(dtype_of(dtype))
        lines = np.moveaxis(a, axis, 0)
        found = [lines[0]] if lines.shape[0] else []
        for at in range(1, lines.shape[0]):
            found.append(self(found[-1], lines[at]))
        stacked = np.stack(found, axis=axis) if found else a
        return stacked if out is None else written(np, out, stacked)

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> NoReturn:
        """Refused: its parts may overlap, and each may have another length."""
        name = self.__name__
        kernel = SEGMENTED.get(name)
        other = f", or dev.cub.segmented_reduce(x, offsets, operation={kernel!r})" if kernel else ""
        raise TypeError(f"np.{name}.reduceat is not on a device: use np.{name}.reduce of each part{other}")

    def at(self, a: Any, indices: Any, b: Any = None, /) -> None:
        """``a[indices] = function(a[indices], b)`` in place, each index as often as it occurs; of ``add``: 1-d."""
        np = self._np
        if self.nin == 1:
            a[indices] = self(a[indices])
            return
        if self.__name__ not in ("add", "subtract") or a.ndim != 1:
            raise TypeError(f"np.{self.__name__}.at: only np.add.at and np.subtract.at of 1-d arrays are there")
        places = np.where(np.asarray(indices) < 0, np.asarray(indices) + a.shape[0], np.asarray(indices)).reshape(-1)
        weights = np.broadcast_to(np.asarray(b), places.shape)
        a[...] = self(a, np.bincount(places, weights, a.shape[0]).astype(a.dtype))


def _expressed(text: str, x1: Any, x2: Any = None) -> Any:
    return apply(text, x1=x1) if x2 is None else apply(text, x1=x1, x2=x2)


def promoted(np: Any, *values: Any) -> list[Any]:
    """Arrays of the dtype that the values promote to."""
    found = operands(np, values)
    dtype = result_type(*found)
    return [cast(x, dtype) if isinstance(x, GpuRef) else np.xp.full((), x, dtype=dtype) for x in found]
