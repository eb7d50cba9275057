"""Conversions between dtypes, and tensors as integers of the same size, which PyTorch can always move."""

from itertools import pairwise
from typing import Any

import numpy as np

from callboard.backends.torch.vendor import Tensor, held_as, torch
from callboard.core.dtype import DTYPES, DType

__all__ = ["added", "as_i64", "converted", "element", "movable", "moved_by", "number_of", "parts"]

_F4 = DTYPES["f4_e2m1"]
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The values of f4_e2m1 by their codes, without the sign bit."""
_LARGEST_F8 = 464
"""What is rounded to 448, the largest number of f8_e4m3; more is NaN."""
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
_UNMOVABLE = ("float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64")
"""Dtypes that PyTorch converts and copies, and for which it has hardly another function."""


def movable(x: Tensor) -> Tensor:
    """The same memory as integers of the same size, for a dtype that few functions take."""
    if str(x.dtype).removeprefix("torch.") not in _UNMOVABLE:
        return x
    return x.view(getattr(torch, _BITS[x.element_size()]))


def moved_by(function: Any, x: Tensor) -> Tensor:
    """The result of a function that only moves elements."""
    return function(movable(x)).view(x.dtype)


def parts(compute: Any, *x: Tensor) -> Tensor:
    """A function of real numbers, of the parts of complex ones.

    PyTorch multiplies the second summand by 1 before it adds complex numbers: an infinite part makes NaN of the other.
    """
    return torch.complex(compute(*(one.real for one in x)), compute(*(one.imag for one in x)))


def added(x: Tensor, y: Tensor) -> Tensor:
    """``x + y`` of arrays that are both real or both complex."""
    return parts(torch.add, x, y) if x.is_complex() else x + y


def as_i64(value: int) -> int:
    """A number modulo 2**64, as a signed one."""
    return (value + 2**63) % 2**64 - 2**63


def element(value: Any, dtype: DType) -> Tensor:
    """A 0-d tensor on the host: a number converted as NumPy converts it, a Python integer as one of 64 bits."""
    with np.errstate(all="ignore"):
        one = np.asarray(value).astype(dtype.np)
    return torch.frombuffer(bytearray(one.tobytes()), dtype=held_as(dtype))[0]


def number_of(value: Any, dtype: DType) -> Any:
    """NumPy's number for what :meth:`torch.Tensor.item` gives for an array of this dtype."""
    return np.uint8(value).view(dtype.np) if dtype is _F4 else dtype.np.type(value)


def converted(x: Tensor, source: DType, dtype: DType) -> Tensor:
    """The numbers in another dtype: rounded to the nearest once, integers wrapping around."""
    if source is dtype:
        return x
    if source is _F4:
        return converted(_decoded(x), DTYPES["f32"], dtype)
    if dtype is _F4:
        return _encoded(converted(x, source, DTYPES["f32"]))
    if source.name == "f64" and dtype.name == "f16":
        return _odd_singles(x).to(held_as(dtype))
    if "f8" in source.name or "f8" in dtype.name:
        x = x.to(torch.float32)
    if dtype.kind == "bool":
        return x != 0 if source.kind != "uint" else movable(x) != 0
    if dtype.name == "f8_e4m3" and x.dtype.is_floating_point:  # PyTorch saturates, as the dtype has no infinity
        x = torch.where(x.abs() > _LARGEST_F8, torch.nan, x)
    return x.to(held_as(dtype))


def _decoded(codes: Tensor) -> Tensor:
    table = torch.tensor([*_MAGNITUDES, *(-m for m in _MAGNITUDES)], device=codes.device)
    return table[codes.to(torch.int64) & 15]


def _encoded(x: Tensor) -> Tensor:
    """Ties go to the even code; beyond 6 stays 6."""
    size = x.abs()
    code = torch.zeros(x.shape, dtype=torch.uint8, device=x.device)
    for at, (low, high) in enumerate(pairwise(_MAGNITUDES)):
        middle = (low + high) / 2
        code += (size >= middle) if at % 2 else (size > middle)
    return code | (torch.signbit(x).to(torch.uint8) << 3)


def _odd_singles(x: Tensor) -> Tensor:
    """Rounded to f32 so that rounding again is the same as rounding once: to odd (Boldo and Melquiond, IMACS 2005)."""
    single = x.to(torch.float32)
    back = single.to(torch.float64)
    toward = torch.where(back > x, -torch.inf, torch.inf).to(torch.float32)
    even = (single.view(torch.int32) & 1) == 0
    return torch.where((back != x) & ~torch.isnan(x) & even, torch.nextafter(single, toward), single)
