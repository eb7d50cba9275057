"""``Numpy``: NumPy's names over the refs of one device (``dev.np``)."""

import functools
import importlib
from typing import Any

import numpy

from callboard.actors.handles import Handle
from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.ref import GpuRef
from callboard.core.ref.tokens import INSTEAD_OF_PICKLING
from callboard.kernel.elementwise.promotion import floating
from callboard.numpylike.binding import TABLE, bound, dtype_of
from callboard.numpylike.functions.picking import HOST
from callboard.numpylike.grids import Columns, Grid, Rows
from callboard.numpylike.missing import unknown
from callboard.numpylike.random import Random
from callboard.numpylike.ufuncs import UFUNCS, Ufunc

__all__ = ["Numpy"]

MODULES = "counting creation fourier linear numeric order padding polynomials quantiles reductions samples shaping"
for _module in MODULES.split():
    importlib.import_module(f"callboard.numpylike.functions.{_module}")
importlib.import_module("callboard.numpylike.drawing")

OF_NUMPY = frozenset(
    [
        "bool",
        "bool_",
        "byte",
        "cdouble",
        "complex128",
        "complex64",
        "complexfloating",
        "csingle",
        "double",
        "float16",
        "float32",
        "float64",
        "floating",
        "generic",
        "half",
        "inexact",
        "int16",
        "int32",
        "int64",
        "int8",
        "int_",
        "intc",
        "integer",
        "intp",
        "long",
        "longlong",
        "number",
        "short",
        "signedinteger",
        "single",
        "ubyte",
        "uint",
        "uint16",
        "uint32",
        "uint64",
        "uint8",
        "uintc",
        "uintp",
        "ulong",
        "ulonglong",
        "unsignedinteger",
        "ushort",
        "dtype",
        "errstate",
        "ndindex",
        "False_",
        "True_",
        "e",
        "euler_gamma",
        "inf",
        "nan",
        "newaxis",
        "pi",
        "index_exp",
        "s_",
        "isscalar",
        "iterable",
        "printoptions",
        "set_printoptions",
        "get_printoptions",
        "broadcast_shapes",
        "einsum_path",
    ]
)
"""Names that are NumPy's own objects: dtypes, constants, what reads no values."""
OF_DTYPES = frozenset(
    [
        "can_cast",
        "common_type",
        "finfo",
        "iinfo",
        "isdtype",
        "issubdtype",
        "min_scalar_type",
        "promote_types",
        "result_type",
        "iscomplexobj",
        "isrealobj",
        "isfortran",
        "ndim",
        "shape",
        "size",
        "may_share_memory",
        "shares_memory",
    ]
)
"""NumPy's functions that read only dtypes, shapes and places in memory."""


SECTIONS = frozenset({"linalg", "fft", "random"})
"""The parts of the namespace."""


def names(section: str) -> set[str]:
    """The names of a part of the namespace, or of the namespace itself when it is empty."""
    if section:
        return {path.partition(".")[2] for path in TABLE if path.startswith(f"{section}.")}
    objects = {*SECTIONS, "mgrid", "ogrid", "r_", "c_", "ndarray"}
    return {*UFUNCS, *OF_NUMPY, *OF_DTYPES, *HOST, *objects, *(path for path in TABLE if "." not in path)}


class _Section(Handle):
    """A part of the namespace: ``np.linalg``."""

    instead_of_pickling = INSTEAD_OF_PICKLING
    _name = ""

    def __init__(self, np: Any) -> None:
        self._np = np

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        path = f"{self._name}.{name}"
        if path not in TABLE:
            raise unknown(self._name, name, dir(self))
        found = self.__dict__[name] = bound(self._np, path)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names(self._name)})

    def __repr__(self) -> str:
        return f"<np.{self._name} of {self._np.xp}>"


class Linalg(_Section):
    """``np.linalg``."""

    _name = "linalg"
    LinAlgError = numpy.linalg.LinAlgError


class Fft(_Section):
    """``np.fft``."""

    _name = "fft"


class Numpy(Handle):
    """NumPy's names, parameters, aliases and defaults over the refs of one device: ``dev.np``.

    Functions take arrays of the device, and what makes one: numbers, lists, arrays of the host, which are copied to the
    device. Results are refs, returned at once. Nothing is copied to the host but by functions that say so.
    See docs/guides/from-numpy.md.

    Args:
        xp: The strict namespace of the device, of which it is made.
    """

    instead_of_pickling = INSTEAD_OF_PICKLING

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.linalg = Linalg(self)
        self.fft = Fft(self)
        self.mgrid, self.ogrid = Grid(self, sparse=False), Grid(self, sparse=True)
        self.r_, self.c_ = Rows(self), Columns(self)

    ndarray = GpuRef
    dtype_of = staticmethod(dtype_of)
    layout = staticmethod(layout_of)
    dtype_in_floats = staticmethod(floating)

    def value_of(self, x: Any) -> Any:
        """A single value, as a number of Python where the device waits for it, else the ref."""
        return x.item() if x._port.services.blocking else x

    @property
    def random(self) -> Random:
        """Random numbers."""
        found: Random = self.__dict__.get("_random") or self.__dict__.setdefault("_random", Random(self))
        return found

    def __getattr__(self, name: str) -> Any:
        found: Any
        if name in UFUNCS:
            found = Ufunc(self, name)
        elif name in TABLE:
            found = bound(self, name)
        elif name in OF_NUMPY:
            found = getattr(numpy, name)
        elif name in OF_DTYPES:
            found = _of_dtypes(getattr(numpy, name))
        elif name in HOST:
            found = functools.partial(HOST[name], self)
        else:
            raise AttributeError(name) if name.startswith("_") else unknown("", name, dir(self))
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names("")})

    @property
    def __name__(self) -> str:
        return f"callboard.np.{self.xp._device}"

    def __repr__(self) -> str:
        return f"<NumPy's names of {self.xp._device}>"


def _of_dtypes(function: Any) -> Any:
    """A function of NumPy that reads dtypes; those of callboard are NumPy's for it."""

    def called(*args: Any, **kwargs: Any) -> Any:
        args = tuple(x.np if isinstance(x, DType) else x for x in args)
        return function(*args, **kwargs)

    called.__name__ = function.__name__
    called.__doc__ = f"``numpy.{function.__name__}``."
    return called
