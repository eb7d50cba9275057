"""SciPy's BLAS (and LAPACK) routines as functions of addresses.

SciPy publishes them for Cython as C function pointers (``scipy.linalg.cython_blas``), with Fortran's conventions: every
argument is an address, matrices are column-major. Called this way they take leading dimensions, increments and results
in place, nothing is copied, and the GIL is not held; the wrappers in ``scipy.linalg.blas`` hold it and copy every array
that is not contiguous.
"""

import ctypes
import importlib.util
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import scipy

from callboard.core.dtype import DType
from callboard.core.errors import BackendUnavailable

__all__ = ["INT_MAX", "integer", "letter", "number", "prefix", "routine"]

INT_MAX = 2**31 - 1
"""The largest extent, leading dimension or increment: the routines take C ints."""


class _Complex64(ctypes.Structure):
    _fields_ = (("real", ctypes.c_float), ("imag", ctypes.c_float))


class _Complex128(ctypes.Structure):
    _fields_ = (("real", ctypes.c_double), ("imag", ctypes.c_double))


_RESULTS: dict[str, Any] = {
    "void": None,
    "int": ctypes.c_int,
    "s": ctypes.c_float,
    "d": ctypes.c_double,
    "__pyx_t_float_complex": _Complex64,
    "__pyx_t_double_complex": _Complex128,
}

_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@cache
def routine(name: str) -> Callable[..., Any]:
    """The routine of this name (``"dgemm"``, ``"zrot"``).

    Raises:
        BackendUnavailable: This SciPy does not have it, or takes integers of 64 bits.
    """
    blas, lapack = _published("blas"), _published("lapack")
    capsule = blas.get(name) or lapack.get(name)
    if capsule is None:
        raise BackendUnavailable(f"this SciPy has no {name}; install scipy>=1.14")
    signature = _capsule_name(capsule)
    result, _, arguments = signature.decode().rstrip(")").partition(" (")
    types = arguments.split(", ")
    if "int *" not in types:
        raise BackendUnavailable(f"{name} of this SciPy takes integers of 64 bits; install SciPy's wheel from PyPI")
    kind = _RESULTS[result if result in _RESULTS else result.rpartition("_")[2]]
    prototype = ctypes.CFUNCTYPE(kind, *[ctypes.c_void_p] * len(types))
    return prototype(_capsule_pointer(capsule, signature))


_loading = threading.Lock()
"""An extension cannot be initialised twice, and is no module of ``sys.modules`` before it has been."""


@cache
def _published(part: str) -> dict[str, Any]:
    """The function pointers of ``scipy.linalg.cython_blas`` or ``cython_lapack``.

    Each is an extension that needs no other; the package around it takes ten times as long to import, and a host that
    is started in the middle of a loss is waited for.
    """
    name = f"scipy.linalg.cython_{part}"
    with _loading:  # the contexts and actors of a process have threads of their own
        module = sys.modules.get(name)
        if module is None:
            spec = PathFinder.find_spec(name, [str(Path(scipy.__file__).parent / "linalg")])
            if spec is None or spec.loader is None:
                raise BackendUnavailable(f"this SciPy has no {name}; install scipy>=1.14")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    pointers: dict[str, Any] = module.__pyx_capi__
    return pointers


def prefix(dtype: DType) -> str:
    """The first letter of the routines for a dtype."""
    return {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}[dtype.name]


def integer(value: int) -> Any:
    """An integer argument."""
    return ctypes.byref(ctypes.c_int(value))


def letter(value: str) -> Any:
    """A character argument (``"N"``, ``"U"``)."""
    return ctypes.byref(ctypes.c_char(value.encode()))


def number(dtype: DType) -> Callable[[Any], Any]:
    """A function that makes a number an argument."""
    real = ctypes.c_float if dtype.real.itemsize == 4 else ctypes.c_double
    if dtype.is_complex:
        pair = real * 2
        return lambda value: pair(value.real, value.imag)
    return lambda value: ctypes.byref(real(value))
