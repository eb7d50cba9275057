"""Factors (alpha, beta, c, s): numbers passed with a call, or 0-d arrays on the device.

cuBLAS reads all factors of a call from the host or all from the device. Where one is an array, the numbers beside it
are written to the device on the stream.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.handle import SLOT
from callboard.core.dtype import DTYPES, DType
from callboard.core.operand import Operand

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas
    from callboard.backends.cuda.handle import Handle

__all__ = [
    "SLOTS",
    "SLOTS_AT",
    "Factor",
    "Pointers",
    "constant_offset",
    "constants",
    "device_getters",
    "factor_of",
    "host_cell",
    "pointers",
]

SLOTS = 16
_ONES = ("f32", "f64", "c64", "c128", "i32")
SLOTS_AT = SLOT * (1 + len(_ONES))
"""Offset of the slots for numbers, after the constants."""

Pointers = Callable[..., tuple[int, ...]]
"""``pointers(*values)``: enter the pointer mode and give cuBLAS's arguments for the factors."""


class Factor(NamedTuple):
    """One factor of an op.

    Attributes:
        dtype: The dtype in which cuBLAS reads it.
        is_array: True if the call has a 0-d array instead of a number.
    """

    dtype: DType
    is_array: bool


def factor_of(value: Any, dtype: DType) -> Factor:
    """The factor that a field of an op (with placeholders) declares."""
    return Factor(dtype, isinstance(value, Operand))


def constants() -> bytes:
    """The initial device constants: a 0, then a 1 of each scale dtype, then slots for numbers."""
    image = bytearray(SLOT * SLOTS)
    for name in _ONES:
        offset = constant_offset(DTYPES[name])
        image[offset : offset + DTYPES[name].itemsize] = _pack(DTYPES[name])(1.0)
    return bytes(image)


def constant_offset(dtype: DType) -> int:
    """The offset of the 1 of this scale dtype."""
    return SLOT * (1 + _ONES.index(dtype.name))


def host_cell(dtype: DType) -> tuple[int, Callable[[Any], None], Any]:
    """Host memory for one number: its address, a function that sets it, and its owner."""
    if dtype.is_complex:
        pair = ((ctypes.c_float if dtype.name == "c64" else ctypes.c_double) * 2)()

        def put_complex(value: complex) -> None:
            pair[0], pair[1] = value.real, value.imag

        return ctypes.addressof(pair), put_complex, pair
    if dtype.is_integer:
        whole = ctypes.c_int32()

        def put_integer(value: float) -> None:
            whole.value = int(value)

        return ctypes.addressof(whole), put_integer, whole
    real = (ctypes.c_float if dtype.name == "f32" else ctypes.c_double)()

    def put_real(value: float) -> None:
        real.value = value

    return ctypes.addressof(real), put_real, real


def pointers(cublas: "Cublas", factors: Sequence[Factor]) -> Pointers:
    """Return the function that passes these factors to cuBLAS."""
    if any(f.is_array for f in factors):
        return _on_device(cublas, factors)
    return _on_host(cublas, factors)


def _on_host(cublas: "Cublas", factors: Sequence[Factor]) -> Pointers:
    cells = [host_cell(f.dtype) for f in factors]
    addresses = tuple(cell[0] for cell in cells)
    puts = tuple(cell[1] for cell in cells)

    def on_host(*values: Any) -> tuple[int, ...]:
        if cublas.mode != 0:
            cublas.point(0)
        for put, value in zip(puts, values, strict=True):
            put(value)
        return addresses

    on_host.keeps = cells  # type: ignore[attr-defined] # the addresses point into them
    return on_host


def _on_device(cublas: "Cublas", factors: Sequence[Factor]) -> Pointers:
    gets = device_getters(cublas, factors)

    def on_device(*values: Any) -> tuple[int, ...]:
        if cublas.mode != 1:
            cublas.point(1)
        return tuple(get(value) for get, value in zip(gets, values, strict=True))

    return on_device


def device_getters(handle: "Handle", factors: Sequence[Factor]) -> "list[Callable[[Any], int]]":
    """One function per factor that returns its address on the device, from the address or the number of a call."""
    return [
        _itself if factor.is_array else handle.slot_writer(slot, _pack(factor.dtype))
        for slot, factor in enumerate(factors)
    ]


def _itself(address: int) -> int:
    return address


def _pack(dtype: DType) -> Callable[[Any], bytes]:
    if dtype.is_complex:
        form = struct.Struct("<ff" if dtype.name == "c64" else "<dd")
        return lambda value: form.pack(value.real, value.imag)
    if dtype.is_integer:
        return lambda value: struct.pack("<i", int(value))
    form = struct.Struct("<f" if dtype.name == "f32" else "<d")
    return form.pack
