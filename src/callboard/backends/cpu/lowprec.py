"""Encodings of the 8- and 4-bit floating-point types, with every rounding and overflow rule spelled out.

``f8_e4m3`` (largest 448, no infinities) and ``f8_e5m2`` (largest 57344, IEEE-like) are those of the OCP 8-bit
Floating Point Specification (OFP8) 1.0, ``f4_e2m1`` (largest 6, neither infinities nor NaN) that of the OCP
Microscaling Formats (MX) specification 1.0.
"""

from typing import Any, Literal

import numpy as np

from callboard.core.dtype import DTYPES, DTypeLike, as_dtype

__all__ = ["encode_f8", "pack_f4", "unpack_f4"]

_LARGEST = {DTYPES["f8_e4m3"]: np.float32(448), DTYPES["f8_e5m2"]: np.float32(57344)}
_F4 = DTYPES["f4_e2m1"].np


def encode_f8(
    values: Any, dtype: DTypeLike = "f8_e4m3", overflow: Literal["saturate", "ieee"] = "saturate"
) -> "np.ndarray[Any, Any]":
    """Round to an 8-bit floating-point type: to nearest, ties to even, subnormals included, once (also from float64).

    Args:
        values: Real array of any shape and of any dtype that converts to float64.
        dtype: ``f8_e4m3`` or ``f8_e5m2``.
        overflow: Rule for values that round beyond the largest finite one, infinities included: ``"saturate"`` gives
            the largest finite value of its sign, ``"ieee"`` an infinity in ``f8_e5m2`` and NaN in ``f8_e4m3``. NaN
            stays NaN in both.

    Returns:
        Array of the same shape, of the NumPy type of ``dtype``; ``.view(numpy.uint8)`` gives the codes.

    Raises:
        TypeError: ``values`` is complex.
        ValueError: Another dtype or another rule.
    """
    target = as_dtype(dtype)
    if target not in _LARGEST:
        raise ValueError(f"dtype {target}: encode_f8 makes f8_e4m3 or f8_e5m2")
    if overflow not in ("saturate", "ieee"):
        raise ValueError(f"overflow is {overflow!r}; use 'saturate' or 'ieee'")
    values = np.asarray(values)
    if np.iscomplexobj(values):
        raise TypeError(f"values is {values.dtype}; encode its real and imaginary parts")
    singles = _to_odd_singles(values)
    if overflow == "saturate":
        singles = np.clip(singles, -_LARGEST[target], _LARGEST[target])
    with np.errstate(all="ignore"):  # an overflow is one of the two requested outcomes
        return singles.astype(target.np)


def pack_f4(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Two ``f4_e2m1`` values a byte, the first in the low nibble (as cuBLASLt and the MX formats have them).

    Args:
        values: ``[..., n]`` of the NumPy type of ``f4_e2m1``, one value a byte; ``n`` even.

    Returns:
        ``[..., n / 2]`` of uint8.

    Raises:
        TypeError: Another dtype; convert with ``values.astype(ml_dtypes.float4_e2m1fn)``, which saturates.
        ValueError: 0-d, or an odd number of values in a row.
    """
    if values.dtype != _F4:
        raise TypeError(f"values is {values.dtype}; convert it first: values.astype(ml_dtypes.float4_e2m1fn)")
    if values.ndim == 0 or values.shape[-1] % 2:
        raise ValueError(f"values has shape {values.shape}; its last extent must be even (pad it)")
    codes = values.view(np.uint8) & 0xF
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack_f4(packed: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """The values that :func:`pack_f4` packed.

    Args:
        packed: ``[..., m]`` of uint8.

    Returns:
        ``[..., 2 * m]`` of the NumPy type of ``f4_e2m1``.

    Raises:
        TypeError: Another dtype.
        ValueError: 0-d.
    """
    if packed.dtype != np.uint8:
        raise TypeError(f"packed is {packed.dtype}; it must be uint8")
    if packed.ndim == 0:
        raise ValueError("packed has shape (); it must have an axis")
    codes = np.stack([packed & 0xF, packed >> 4], axis=-1)
    return codes.reshape(*packed.shape[:-1], 2 * packed.shape[-1]).view(_F4)


def _to_odd_singles(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Round to float32 so that a second rounding, to 8 bits, is the same as a single rounding.

    ml_dtypes converts float64 by way of float32, rounding twice. Rounding to odd (an inexact result gets its last bit
    set) keeps the sticky information; Boldo and Melquiond, "When double rounding is odd", IMACS 2005.
    """
    if values.dtype == np.float32:
        return values
    doubles = values.astype(np.float64)
    with np.errstate(all="ignore"):
        singles = doubles.astype(np.float32)
        back = singles.astype(np.float64)
        toward = np.where(back > doubles, np.float32(-np.inf), np.float32(np.inf))
        even = (singles.view(np.uint32) & 1) == 0
        inexact = (back != doubles) & ~np.isnan(doubles)
        return np.where(inexact & even, np.nextafter(singles, toward), singles)
