"""Checks of the messages of deep learning; shapes, windows and paddings as callers may write them."""

from typing import Literal, NamedTuple

from callboard.core.dtype import DType, dtypes_of
from callboard.core.operand import Operand
from callboard.kernel.checks import AnyOp, refuse

__all__ = [
    "FLOATS",
    "DataLayout",
    "Extents",
    "Image",
    "Padding",
    "check_like",
    "dtype_of",
    "image_of",
    "paddings_of",
    "per_axis",
    "shape_of_image",
]


FLOATS = dtypes_of("f16 bf16 f32 f64")
"""Dtypes of most ops; halves are computed in f32 and rounded once."""

DataLayout = Literal["NCHW", "NHWC"]
"""Order of the axes: channels before or after the 1 to 3 spatial axes."""
Extents = int | tuple[int, ...]
"""A number for each spatial axis, or one for all."""
Padding = int | tuple[int | tuple[int, int], ...]
"""For each spatial axis the padding on both sides, or ``(before, after)``; or one number for all axes."""

MOST_SPATIAL = 3


class Image(NamedTuple):
    """The extents of an array with a batch, channels and spatial axes, whatever their order."""

    batch: int
    channels: int
    spatial: tuple[int, ...]


def dtype_of(op: AnyOp, accepted: tuple[DType, ...], **operands: Operand | None) -> DType:
    """The one dtype of the operands that are given, which must be among ``accepted``."""
    (first, reference), *rest = [(name, operand) for name, operand in operands.items() if operand is not None]
    if reference.dtype not in accepted:
        names = ", ".join(d.name for d in accepted)
        raise refuse(op, f"{first} is {reference.layout!r}; its dtype must be one of {names}")
    for name, operand in rest:
        if operand.dtype is not reference.dtype:
            raise refuse(
                op,
                f"{name} is {operand.layout!r} and {first} is {reference.layout!r}: both must have one dtype "
                f"(dev.array.cast converts)",
            )
    return reference.dtype


def check_like(op: AnyOp, name: str, operand: Operand | None, shape: tuple[int, ...], why: str) -> None:
    """An operand, if given, has this shape."""
    if operand is not None and operand.shape != shape:
        raise refuse(op, f"{name} is {operand.layout!r}; it must have shape {shape}, {why}")


def image_of(op: AnyOp, name: str, operand: Operand, layout: DataLayout) -> Image:
    """The extents of an array with 1 to 3 spatial axes."""
    if not 3 <= operand.ndim <= 2 + MOST_SPATIAL:
        raise refuse(
            op,
            f"{name} is {operand.layout!r}; it must have a batch axis, a channel axis and 1 to {MOST_SPATIAL} spatial "
            f"axes, in the order {layout} (ref[None] adds an axis)",
        )
    batch, *others = operand.shape
    if layout == "NCHW":
        return Image(batch, others[0], tuple(others[1:]))
    return Image(batch, others[-1], tuple(others[:-1]))


def shape_of_image(image: Image, layout: DataLayout) -> tuple[int, ...]:
    """The shape of an array with these extents."""
    batch, channels, spatial = image
    return (batch, channels, *spatial) if layout == "NCHW" else (batch, *spatial, channels)


def per_axis(op: AnyOp, name: str, value: Extents, axes: int, least: int = 1) -> tuple[int, ...]:
    """A number for each spatial axis, none below ``least``."""
    numbers = (value,) * axes if isinstance(value, int) else value
    if len(numbers) != axes:
        raise refuse(op, f"{name} is {value!r}; it must be one number or {axes}, one for each spatial axis")
    if any(n < least for n in numbers):
        raise refuse(op, f"{name} is {value!r}; it must be at least {least} on each axis")
    return numbers


def paddings_of(op: AnyOp, value: Padding, axes: int, name: str = "padding") -> tuple[tuple[int, int], ...]:
    """``(before, after)`` for each spatial axis, none below 0."""
    numbers = (value,) * axes if isinstance(value, int) else value
    if len(numbers) != axes:
        raise refuse(
            op, f"{name} is {value!r}; it must be one number or {axes}, one or (before, after) for each spatial axis"
        )
    pairs = tuple((n, n) if isinstance(n, int) else n for n in numbers)
    if any(n < 0 for pair in pairs for n in pair):
        raise refuse(op, f"{name} is {value!r}; it must not be negative (slice the array to cut it)")
    return pairs
