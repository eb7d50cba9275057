"""The error function of f32 by additions and products alone: NumPy and a C compiler give the same bits.

It uses the vectors of the CPU, which SciPy's does not. Two polynomials, below and above 0.93, the second of an
exponent: N. Juffa, "Vectorizable implementation of erf()", NVIDIA developer forums, with two operations for each fused
one. The exponential is that of Cephes (`expf`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["C_TEXT", "erf"]

Array = np.ndarray[Any, Any]
SPLIT = 0.927734375
SATURATED = 4.0
"""From here on it is 1 in f32."""
NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
"""Of the square; the sum, times x, is what erf(x) is above x."""
FAR = (
    *(-1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2),
    *(-1.06777877e-1, -6.34846687e-1, -1.28717512e-1),
)
"""Of the size; log(1 - erf(x)) is the sum less 1, times the size."""
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
PER_LOG = 1.44269504088896341
LOG_HIGH, LOG_LOW = 0.693359375, -2.12194440e-4
ROUNDER = 12582912.0
"""1.5 * 2**23: what is added to it becomes a whole number, in its lowest bits."""
ONE = 127 - 0x4B400000
"""What makes of those bits the exponent of a power of two."""


def erf(x: Array, out: Array) -> None:
    """The error function, to three units in the last place.

    Args:
        x: f32.
        out: f32 of its shape; it may be ``x``.
    """
    size = np.abs(x)
    is_far = np.greater(size, np.float32(SPLIT))
    far = _far(size[is_far]) if size.ndim and is_far.any() else None
    if not size.ndim and is_far:
        far = _far(size)
    signs = None if far is None else x[is_far] if size.ndim else x
    near = _polynomial(NEAR, np.multiply(x, x))
    np.multiply(near, x, out=near)
    np.add(near, x, out=out)
    if far is None or signs is None:
        return
    np.copysign(far, signs, out=far)
    out[is_far if size.ndim else ()] = far


def _far(size: Array) -> Array:
    size = np.minimum(size, np.float32(SATURATED))
    power = _polynomial(FAR, size)
    np.subtract(power, np.float32(1), out=power)
    np.multiply(power, size, out=power)
    count = np.asarray(np.multiply(power, np.float32(PER_LOG)))
    np.add(count, np.float32(ROUNDER), out=count)
    scale = np.left_shift(np.add(count.view(np.int32), np.int32(ONE)), np.int32(23)).view(np.float32)
    np.subtract(count, np.float32(ROUNDER), out=count)
    np.subtract(power, np.multiply(count, np.float32(LOG_HIGH)), out=power)
    np.subtract(power, np.multiply(count, np.float32(LOG_LOW)), out=power)
    found = _polynomial(EXP, power)
    np.multiply(found, power, out=found)
    np.multiply(found, power, out=found)
    np.add(found, power, out=found)
    np.add(found, np.float32(1), out=found)
    np.multiply(found, scale, out=found)
    return np.asarray(np.subtract(np.float32(1), found))


def _polynomial(factors: Sequence[float], x: Array) -> Array:
    found = np.asarray(np.multiply(x, np.float32(factors[0])))
    np.add(found, np.float32(factors[1]), out=found)
    for factor in factors[2:]:
        np.multiply(found, x, out=found)
        np.add(found, np.float32(factor), out=found)
    return found


def _number(value: float) -> str:
    return f"{float(np.float32(value)).hex()}f"


def _horner(factors: Sequence[float], x: str) -> str:
    text = _number(factors[0])
    for factor in factors[1:]:
        text = f"({text} * {x} + {_number(factor)})"
    return text


C_TEXT = f"""\
static inline float erf_f32(float x, uint32_t sign)
{{ uint32_t bits, whole, high; float size, scale; memcpy(&bits, &x, 4); high = bits & ~sign; memcpy(&size, &high, 4);
const float square = x * x, near = {_horner(NEAR, "square")} * x + x;
const float most = size < {_number(SATURATED)} ? size : {_number(SATURATED)};
const float power = ({_horner(FAR, "most")} - 1.0f) * most, moved = power * {_number(PER_LOG)} + {_number(ROUNDER)};
memcpy(&whole, &moved, 4); whole = (whole + UINT32_C({ONE % (1 << 32)})) << 23; memcpy(&scale, &whole, 4);
const float count = moved - {_number(ROUNDER)};
const float rest = power - count * {_number(LOG_HIGH)} - count * {_number(LOG_LOW)};
float far = 1.0f - ({_horner(EXP, "rest")} * rest * rest + rest + 1.0f) * scale;
memcpy(&high, &far, 4); high |= bits & sign; memcpy(&far, &high, 4);
return size > {_number(SPLIT)} ? far : near; }}
"""
"""The same in C. `sign` has the bit of the sign."""
