"""``pack_result``: the result of a method, as bytes, and its arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.device.host.residents.operands import Adopted
from callboard.device.host.residents.staging import HostMemory
from callboard.device.host.residents.thread.streams import why_not
from callboard.device.protocol.residents.values import INLINE, DeviceArray, Packer, Unsendable, encode, inline

__all__ = ["pack_plain", "pack_result"]

BESIDE = 256 << 10
"""Results larger than this many bytes travel in an arena, not in the completion."""

SMALL = 1 << 63
"""A larger integer may not travel."""

CURE = (
    "return numbers, text, bytes, lists, tuples, dicts, Structs, dataclasses, NumPy arrays, or ctx.ref(array) for what "
    "is to stay on the device"
)


NOTHING = encode([None, [], 0], "the result")


def pack_plain(result: Any) -> bytes | None:
    """Like :func:`pack_result`, for None, a number, a bool or one small array; None for anything else."""
    if result is None:
        return NOTHING
    if type(result) is np.ndarray or type(result) is DeviceArray:
        if result.nbytes > INLINE or result.dtype.hasobject:
            return None
        return encode([inline(result), [], 0], "the result")
    if type(result) is bool or type(result) is float or (type(result) is int and -SMALL < result < SMALL):
        return encode([result, [], 0], "the result")
    return None


def pack_result(
    result: Any,
    room: Callable[[int], HostMemory],
    copied: Callable[[list[Adopted]], list[Any]] | None = None,
) -> tuple[bytes, list[Adopted]]:
    """The result as its completion has it, and the device arrays in it.

    Args:
        result: Return value of the method.
        room: Returns memory of a number of bytes for the data that is sent beside the result.
        copied: Copies its device arrays to where they are to stay, and gives their places; None: they stay here.

    Raises:
        TypeError: A part of it cannot be sent; names its place.
        ValueError: It is too much.
        Exception: Raised by ``room``.
    """
    packer = Packer(lambda value: type(value) is Adopted, with_code=False, cure=CURE)
    try:
        packed = packer.pack(result)
    except Unsendable as e:
        raise TypeError(why_not(result, e)) from None
    except RecursionError:
        raise TypeError("result: it contains itself, or is nested too deeply") from None
    adopted = packer.refs
    refs = [ref.wire for ref in adopted]
    if copied is not None and adopted:
        refs, adopted = copied(adopted), []
    value = encode([packed, refs, packer.nbytes], "the result")
    if len(value) > BESIDE:  # completions of many calls may share a frame
        offset, length = packer.beside(value)
        value = encode([offset, length, None, packer.nbytes], "the result")
    if packer.nbytes:
        packer.stage(room(packer.nbytes))
    return value, adopted
