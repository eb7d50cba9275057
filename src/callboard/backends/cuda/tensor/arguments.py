"""Argument structures of the kernels in ``data/tensor_*.cu``, and the axes that they walk."""

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

from callboard.backends.cuda.axes import AXES
from callboard.core.errors import UnsupportedOp
from callboard.core.operand import Operand

__all__ = [
    "ElementArgs",
    "FactorArg",
    "ReduceArgs",
    "factor_setter",
    "groups_of",
    "packs_of",
    "set_axes",
]

PACK = 16
"""Bytes that a thread of the kernels loads or stores at once."""
BUSY = 2048
"""Blocks that fill any GPU: a reduction with fewer is done in parts, and element by element more gain nothing, except
if an operand has one element for a row."""
BELOW = 4
"""Packs of a thread, one below the other, where one operand has a single element for each row."""
IRREGULAR, PACKS, SAME_A, SAME_C = range(4)
"""``Regular`` of the kernels."""

_Steps = ctypes.c_int64 * AXES


class FactorArg(ctypes.Structure):
    """``Factor`` of the kernels."""

    _fields_ = (("at", ctypes.c_void_p), ("re", ctypes.c_double), ("im", ctypes.c_double))


class ElementArgs(ctypes.Structure):
    """``ElementArgs`` of the kernels."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "c", "out")),
        *((name, FactorArg) for name in ("alpha", "beta", "gamma")),
        *((name, ctypes.c_int64) for name in ("count", "packs", "row", "groups")),
        *((name, _Steps) for name in ("extent", "a_step", "b_step", "c_step", "out_step")),
        *(
            (name, ctypes.c_int)
            for name in ("axes", "wide", "has_b", "has_c", "op_a", "op_b", "op_c", "op_ab", "op_abc", "regular")
        ),
    )


class ReduceArgs(ctypes.Structure):
    """``ReduceArgs`` of the kernels."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "c", "out", "parts")),
        *((name, FactorArg) for name in ("alpha", "beta")),
        *((name, ctypes.c_int64) for name in ("outputs", "terms", "splits", "packs", "row", "share", "blocks")),
        *((name, _Steps) for name in ("extent", "a_step", "b_step", "c_step", "out_step")),
        *((name, _Steps) for name in ("inner", "a_inner", "b_inner")),
        *((name, ctypes.c_int) for name in ("axes", "inner_axes", "wide", "has_b", "has_c")),
        *((name, ctypes.c_int) for name in ("op_a", "op_b", "op_c", "op_reduce", "lanes", "end_lanes", "regular")),
    )


def factor_setter(cell: FactorArg, field: Any) -> Callable[[Any], None]:
    """A function that puts a call's number, or the address of its 0-d array, into ``cell``."""
    if isinstance(field, Operand):

        def put_address(value: int) -> None:
            cell.at = value

        return put_address

    def put_number(value: complex) -> None:
        cell.re, cell.im = value.real, value.imag

    return put_number


def packs_of(extents: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Into how many packs of neighbours these axes are divided: in all, and in one row of the last axis."""
    row = -(-extents[-1] // max(PACK // itemsize, 1))
    return math.prod(extents[:-1]) * row, row


def groups_of(extents: Sequence[int], itemsize: int) -> int:
    """Into how many groups of :data:`BELOW` packs, one below the other, at least two axes are divided."""
    _, row = packs_of(extents, itemsize)
    return math.prod(extents[:-2]) * -(-extents[-2] // BELOW) * row


def set_axes(args: ctypes.Structure, extent: str, extents: Sequence[int], **steps: Sequence[int]) -> int:
    """Fill these fields and return the number of axes.

    Raises:
        UnsupportedOp: There are more axes than the kernels support.
    """
    if len(extents) > AXES:
        raise UnsupportedOp(f"{len(extents)} axes that cannot be merged; at most {AXES} (compute it in parts)")
    for name, values in ((extent, extents), *steps.items()):
        getattr(args, name)[: len(values)] = values
    return len(extents)
