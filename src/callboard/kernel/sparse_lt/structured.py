"""Structured matrices as values: the device data of a matrix with half of its elements stored."""

import functools
import itertools
from typing import Annotated, Any, Literal, NamedTuple, get_args

from callboard.core.dtype import DTYPES, DType
from callboard.core.operand import Role, StructOperand
from callboard.core.ref import GpuRef

__all__ = ["FACTORS", "Group", "Storable", "StructuredRef", "compressed_bytes", "group_of", "tile_choices"]

Storable = Literal["f16", "bf16", "f32", "i8", "f8_e4m3", "f8_e5m2"]
"""The dtypes of structured matrices, by name."""
FACTORS = tuple(DTYPES[name] for name in get_args(Storable))


BLOCK = 128, 256
"""Rows, and bytes of a row, that extents are rounded up to when metadata is counted. cuSPARSELt 0.8 asks for less, but
read the metadata of a whole tile, of 64 rows and 256 bytes of a row (fp8, on an H100)."""


class Group(NamedTuple):
    """The sparsity pattern: group size in a row, nonzeros per group, and index bits per stored element.

    Attributes:
        size: 4; of f32, which the tensor cores take as TF32, 2.
        kept: 2; of f32, 1.
        bits: Bits of metadata for each stored element: 2; for f32, 4.
    """

    size: int
    kept: int
    bits: int


def group_of(dtype: DType) -> Group:
    """The pattern of a dtype: 2:4, or 1:2 for f32."""
    return Group(2, 1, 4) if dtype.name == "f32" else Group(4, 2, 2)


class StructuredRef(StructOperand, tag="structured"):
    """A compressed matrix ``[outer, k]``, or a batch of them, as :class:`Compress` makes it.

    Two of every four neighbours in a row are stored (for f32: one of every two), with 2 bits each for their positions
    (for f32: 4). The order of these bytes is defined by the backend, on CUDA by cuSPARSELt and the GPU: they are valid
    only on the device that made them and are not a storage format.

    Attributes:
        data: The bytes, u8.
        dtype: The dtype of the elements: ``"f16"``, ``"bf16"``, ``"f32"``, ``"i8"``, ``"f8_e4m3"`` or ``"f8_e5m2"``.
        shape: ``(outer, k)`` or ``(batch, outer, k)`` of the whole matrix.
    """

    data: Annotated[GpuRef[Any], Role.IN]
    dtype: Storable
    shape: tuple[int, ...]


def compressed_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """The size of ``data``: of each matrix the stored elements, and metadata in whole blocks (:data:`BLOCK`).

    This is room for the forms of all backends. Metadata is a byte for 8 elements; of f32 cuSPARSELt has 4 times that.
    """
    outer, k = shape[-2:]
    size, kept, _ = group_of(dtype)
    rows, columns = BLOCK[0], BLOCK[1] // dtype.itemsize
    blocks = -(-outer // rows) * -(-k // columns)
    matrix = outer * (k // size * kept) * dtype.itemsize + blocks * rows * columns // (2 if size == 2 else 8)
    return matrix * (shape[0] if len(shape) == 3 else 1)


@functools.cache
def tile_choices(group: Group) -> tuple[tuple[bool, ...], ...]:
    """The ways to keep ``group.kept`` elements in each row and column of a tile: 90 of 4 x 4, 2 of 2 x 2."""
    lines = [line for line in itertools.product((True, False), repeat=group.size) if sum(line) == group.kept]
    tiles = itertools.product(lines, repeat=group.size)
    return tuple(
        tuple(itertools.chain(*tile))
        for tile in tiles
        if all(sum(column) == group.kept for column in zip(*tile, strict=True))
    )
