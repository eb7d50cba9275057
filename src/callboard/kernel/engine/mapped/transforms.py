"""Fourier transforms and windows."""

import math
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.kernel.engine.mapped.tools import Tools, Value, name_of, operator
from callboard.kernel.memory import Copy

__all__: list[str] = []


@operator("DFT", since=17)
def dft(
    t: Tools,
    x: Value,
    length: Value = None,
    place: Value = None,
    *,
    axis: int | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    given = t.ints(place, "axis")[0] if place is not None else axis
    along = t.axis(given if given is not None else (1 if t.opset < 20 else -2), x.ndim)
    dtype = name_of(x)
    if dtype not in ("f32", "f64"):
        raise t.refusal(f"DFT of {dtype} is not mapped")
    x = t.ref(t.cast(x, "f64"))  # numbers near 0 beside large ones
    xp = t.xp(x)
    count = t.ints(length, "dft_length")[0] if length is not None else None
    if count is not None:
        t.sized((*x.shape[:along], count, *x.shape[along + 1 :]), x)
    if x.shape[-1] == 1:
        signal = xp.astype(x[..., 0], xp.complex128)
    else:
        signal = xp.add(x[..., 0], xp.multiply(x[..., 1], xp.asarray(1j, dtype=xp.complex128)))
    if inverse and onesided:
        return t.cast(xp.expand_dims(xp.fft.irfft(signal, n=count, axis=along), axis=-1), dtype)
    found = (xp.fft.ifft if inverse else xp.fft.fft)(signal, n=count, axis=along)
    if onesided:
        found = found[(slice(None),) * along + (slice(0, found.shape[along] // 2 + 1),)]
    return t.cast(xp.stack((xp.real(found), xp.imag(found)), axis=-1), dtype)


def _window(terms: tuple[float, ...]) -> Any:
    def call(t: Tools, size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Value:
        (count,) = t.sized(t.ints(size, "size"))
        if count < (1 if periodic else 2):
            raise t.misfit(f"a window of {count} elements is not mapped")
        steps = np.arange(count) * (2 * math.pi / (count if periodic else count - 1))
        found = sum(term * np.cos(at * steps) for at, term in enumerate(terms))
        return np.asarray(found).astype(DTYPES[t.element(output_datatype)].np)

    return call


operator("HannWindow", since=17)(_window((0.5, -0.5)))
operator("HammingWindow", since=17)(_window((25 / 46, -21 / 46)))
operator("BlackmanWindow", since=17)(_window((0.42, -0.5, 0.08)))


@operator("BitCast")
def bit_cast(t: Tools, x: Value, *, to: int) -> Value:
    dtype = t.element(to)
    if DTYPES[dtype].itemsize != DTYPES[name_of(x)].itemsize:
        raise t.refusal(f"BitCast from {name_of(x)} to {dtype} changes the size of elements")
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x).reshape(x.shape).view(DTYPES[dtype].np)
    return t.submit(Copy(src=x)).reinterpret(dtype)


@operator("Det", since=11)
def determinant(t: Tools, x: Value) -> Value:
    x = t.ref(x)
    return t.xp(x).linalg.det(x)
