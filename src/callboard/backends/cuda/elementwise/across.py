"""Operands that are transposed against the result: made contiguous along it by tiles, before the kernel reads them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from callboard.backends.cuda.copies import Copier, copier
from callboard.core.dtype import DType
from callboard.core.layout import layout_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["Across", "across"]

LARGE = 16 << 20
"""Bytes from which a transposition as a step of its own pays."""
LARGEST = 1 << 30
"""Bytes up to which scratch memory is spent on one."""
ALIGNMENT = 256


class Across(NamedTuple):
    """A transposing copy that makes an operand contiguous along the result.

    Attributes:
        operand: Position of the operand.
        copy: The transposition.
        steps: Steps of the copy along the result's axes.
        begin, end: Byte range in scratch memory.
    """

    operand: int
    copy: Copier
    steps: tuple[int, ...]
    begin: int
    end: int


def across(
    device: "CudaDevice",
    operand: int,
    dtype: DType,
    shape: Sequence[int],
    steps: Sequence[int],
    result: Sequence[int],
    begin: int,
) -> Across | None:
    """Return the copy for an operand, None if it is well laid out, small, or too large.

    Args:
        device: Device that the kernels are compiled for.
        operand: Position of the operand.
        dtype: The dtype of its elements.
        shape: Shape of the result.
        steps: Steps of the operand along the result's axes; 0 where it is repeated.
        result: Steps of the result.
        begin: Offset of free scratch memory, in bytes.
    """
    axes = sorted((axis for axis, n in enumerate(shape) if n > 1), key=lambda axis: -abs(result[axis]))
    own = [axis for axis in axes if steps[axis]]
    if not own or own[-1] != axes[-1]:
        return None
    nearest = abs(steps[axes[-1]])
    if nearest == 1 or not any(abs(steps[axis]) < nearest for axis in own):
        return None
    size = dtype.itemsize
    packed: dict[int, int] = {}
    for axis in reversed(own):
        packed[axis] = size // dtype.itemsize
        size *= shape[axis]
    if not LARGE <= size <= LARGEST:
        return None
    extents = tuple(shape[axis] for axis in own)
    source = layout_of(dtype, extents, tuple(steps[axis] for axis in own))
    copy = copier(device.driver, device.kernels, source, layout_of(dtype, extents))
    end = begin + -(-size // ALIGNMENT) * ALIGNMENT
    return Across(operand, copy, tuple(packed.get(axis, 0) for axis in range(len(shape))), begin, end)
