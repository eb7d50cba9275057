"""The compressed form on the CPU: the stored elements, then the metadata of the sparse instructions of PTX.

For each row ``k / 2`` stored elements in their order, all rows one after the other; then for each row its metadata, in
whole bytes, the lowest bits first; then zeros, if there is more room. An element of 4 neighbours has 2 bits, its
position; the two positions of a group rise, so if fewer than two elements differ from 0, zeros are stored. An element
of 2 neighbours (f32) has 4 bits: ``0b0100`` for the first, ``0b1110`` for the second. These are the codes of ``mma.sp``
in the PTX ISA; the order required by its threads is not kept.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.sparse_lt.pruning import is_structured
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.library import plans
from callboard.kernel.sparse_lt import Compress, Decompress
from callboard.kernel.sparse_lt.checks import not_structured
from callboard.kernel.sparse_lt.structured import StructuredRef, compressed_bytes, group_of

__all__ = ["compress", "decompress", "pack", "reader", "unpack"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]

PAIR_CODES = np.array([0b0100, 0b1110], np.uint8)


@plans(Compress)
def compress(op: Compress) -> Plan:
    """``plan(x, out)``."""
    layout, group = op.x.layout, group_of(op.x.dtype)
    view = viewer(layout)
    write = viewer(layout_of(DTYPES["u8"], (compressed_bytes(layout.dtype, layout.shape),)))

    def work(x: int, out: tuple[int]) -> None:
        array = view(x)
        if not is_structured(array, group):
            raise not_structured("sparse_lt.compress", layout)
        packed, data = pack(array, layout.dtype), write(out[0])
        data[: packed.size], data[packed.size :] = packed, 0

    return work


@plans(Decompress)
def decompress(op: Decompress) -> Plan:
    """``plan(a, out)``."""
    read, write = reader(op.a), viewer(op.infer()["out"] if op.out is None else op.out.layout)

    def work(a: tuple[int], out: int) -> None:
        write(out)[...] = read(a[0])

    return work


def pack(x: Array, dtype: DType) -> Array:
    """The bytes of a matrix, or of several, that have the pattern."""
    group = group_of(dtype)
    rows, groups = x.size // x.shape[-1], x.shape[-1] // group.size
    grouped = x.reshape(rows, groups, group.size)
    # Elements that are not 0 first, then as many of the others as there is room for, in their order.
    chosen = np.sort(np.argsort(grouped == 0, axis=-1, kind="stable")[..., : group.kept], axis=-1)
    stored = np.take_along_axis(grouped, chosen, axis=-1)
    codes = PAIR_CODES[chosen] if group.size == 2 else chosen.astype(np.uint8)
    stored_in_row = groups * group.kept
    bits = np.unpackbits(codes.reshape(rows, stored_in_row, 1), axis=-1, count=group.bits, bitorder="little")
    metadata = np.packbits(bits.reshape(rows, stored_in_row * group.bits), axis=-1, bitorder="little")
    return np.concatenate([np.ascontiguousarray(stored).view(np.uint8).ravel(), metadata.ravel()])


def unpack(data: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The inverse of :func:`pack`."""
    group = group_of(dtype)
    k = shape[-1]
    rows, stored = int(np.prod(shape[:-1])), k // group.size * group.kept
    split = rows * stored * dtype.itemsize
    values = data[:split].view(dtype.np).reshape(rows, k // group.size, group.kept)
    length = -(-stored * group.bits // 8)
    metadata = data[split : split + rows * length].reshape(rows, length)
    bits = np.unpackbits(metadata, axis=-1, count=stored * group.bits, bitorder="little")
    codes = np.packbits(bits.reshape(rows, stored, group.bits), axis=-1, bitorder="little")
    chosen = (codes >> 3 if group.size == 2 else codes).reshape(values.shape).astype(np.intp)
    x = np.zeros((rows, k // group.size, group.size), dtype.np)
    np.put_along_axis(x, chosen, values, axis=-1)
    return x.reshape(shape)


def reader(a: StructuredRef) -> Callable[[int], Array]:
    """Return a function that reads the whole matrix from the bytes at an address."""
    dtype, shape = DTYPES[a.dtype], a.shape
    view = viewer(layout_of(DTYPES["u8"], (compressed_bytes(dtype, shape),)))
    return lambda address: unpack(view(address), dtype, shape)
