"""Arguments of the kernels in ``data/array.cu``."""

import ctypes
from ctypes import c_double, c_int, c_int64, c_uint64, c_void_p

from callboard.backends.cuda.axes import AXES
from callboard.kernel.array.checks import MAX_INDICES

__all__ = ["PickArgs", "RangeArgs"]

_Steps = c_int64 * AXES
_Picks = c_int64 * MAX_INDICES


class PickArgs(ctypes.Structure):
    """``PickArgs`` of the kernels."""

    _fields_ = (
        ("src", c_void_p),
        ("out", c_void_p),
        ("index", c_void_p * MAX_INDICES),
        ("fault", c_void_p),
        ("count", c_int64),
        ("extent", _Steps),
        ("src_step", _Steps),
        ("out_step", _Steps),
        ("index_step", _Steps * MAX_INDICES),
        ("limit", _Picks),
        ("step", _Picks),
        ("kind", c_int * MAX_INDICES),
        ("axes", c_int),
        ("picks", c_int),
    )


class RangeArgs(ctypes.Structure):
    """``RangeArgs`` of the kernels."""

    _fields_ = (
        ("out", c_void_p),
        ("count", c_int64),
        ("out_step", c_int64),
        ("start", c_double * 2),
        ("step", c_double * 2),
        ("whole_start", c_uint64),
        ("whole_step", c_uint64),
        ("type", c_int),
    )
