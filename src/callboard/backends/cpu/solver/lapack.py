"""LAPACK routines on NumPy arrays, and the operand handling common to all plans.

The routines are called by address (see :mod:`callboard.backends.cpu.blas.routines`): nothing is copied behind our back
and the GIL is not held. They are column-major and overwrite their inputs, so a plan gives them copies of its own.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cpu.blas.routines import integer, letter, prefix, routine
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DType
from callboard.core.errors import LibraryError
from callboard.core.layout import Layout
from callboard.core.op import Op, info_of
from callboard.core.operand import Operand
from callboard.kernel.solver.failures import not_finite

__all__ = ["Array", "Work", "check_finite", "checker", "lapack", "name_of", "outputs", "staged", "tag_of"]

Array = np.ndarray[Any, Any]


class Work(NamedTuple):
    """A placeholder for a workspace and its length, which the routine is queried for first.

    Attributes:
        dtype: The dtype of its elements.
    """

    dtype: Any


def name_of(dtype: DType, real: str, complex_: str | None = None) -> str:
    """The routine for a dtype: ``name_of(f32, "orgqr", "ungqr")`` is ``"sorgqr"``."""
    return prefix(dtype) + (complex_ if complex_ is not None and dtype.is_complex else real)


def lapack(name: str, *arguments: Any) -> int:
    """Call a routine; ``info`` is appended to the arguments.

    Args:
        name: Name in LAPACK, ``"dgetrf"``.
        arguments: Arrays (by address), integers, letters, and :class:`Work`.

    Returns:
        ``info``, not negative.

    Raises:
        LibraryError: A negative ``info``: an argument that the routine does not take.
    """
    lengths = [-1 for x in arguments if isinstance(x, Work)]
    if lengths:
        works = _call(name, arguments, [1] * len(lengths), lengths)
        # A length travels as a number of the array's type; f32 may have rounded it down.
        lengths = [max(1, int(np.ceil(float(w[0].real) * (1 + 2**-20)))) for w in works]
    info = ctypes.c_int()
    _call(name, arguments, lengths, lengths, info)
    return info.value


def _call(
    name: str, arguments: tuple[Any, ...], sizes: list[int], lengths: list[int], info: ctypes.c_int | None = None
) -> list[Array]:
    info = ctypes.c_int() if info is None else info
    works: list[Array] = []
    converted: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Work):
            work = np.empty(sizes[len(works)], argument.dtype)
            converted += (work.ctypes.data, integer(lengths[len(works)]))
            works.append(work)
        elif isinstance(argument, int):
            converted.append(integer(argument))
        elif isinstance(argument, str):
            converted.append(letter(argument))
        else:
            converted.append(argument.ctypes.data)
    routine(name)(*converted, ctypes.byref(info))
    if info.value < 0:
        raise LibraryError(f"{name}: argument {-info.value} is not accepted", "lapack", info.value)
    return works


# -- operands ----------------------------------------------------------------------------------------------------------


def tag_of(op: Op[Any, Any]) -> str:
    """The name of the op in error messages."""
    return info_of(type(op)).tag


def staged(operand: Operand) -> Callable[[int], Array]:
    """A function from an address to a column-major copy; of a vector, a matrix of one column."""
    view = viewer(operand.layout)
    if operand.ndim == 1:
        return lambda address: np.array(view(address)[:, None], order="F")
    return lambda address: np.array(view(address), order="F")


def outputs(op: Op[Any, Any], *names: str) -> list[Callable[[int], Array]]:
    """Viewers of these outputs, given or made."""
    inferred = op.infer()
    found: list[Layout] = []
    for name in names:
        given = getattr(op, name)
        found.append(inferred[name] if given is None else given.layout)
    return [viewer(layout) for layout in found]


def check_finite(tag: str, *arrays: Array) -> None:
    """No NaN and no infinity: LAPACK may loop on them, or give numbers that mean nothing.

    Raises:
        NumericalError: There are some.
    """
    count = sum(array.size - int(np.count_nonzero(np.isfinite(array))) for array in arrays)
    if count:
        raise not_finite(tag, count)


def checker(op: Any) -> Callable[..., None]:
    """Return :func:`check_finite` of the argument arrays, if the op requires that."""
    tag = tag_of(op)
    return (lambda *arrays: check_finite(tag, *arrays)) if op.check_finite else (lambda *arrays: None)
