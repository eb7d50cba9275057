"""``TensorMap``: how the tensor memory accelerator (TMA) of Hopper reads and writes tiles of an array.

The rules are those of ``cuTensorMapEncodeTiled`` (CUDA driver API, "Tensor Map Object Management"); all of them are
checked before a launch is sent.
"""

from typing import Any, Literal

import msgspec

from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, shape_of

__all__ = ["DATA_TYPES", "FILLS", "INTERLEAVES", "L2", "SWIZZLES", "TensorMap", "check_map", "tensor_map"]

SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
INTERLEAVES = {"none": 0, "16B": 1, "32B": 2}
L2 = {"none": 0, "64B": 1, "128B": 2, "256B": 3}
FILLS = {"zero": 0, "nan": 1}
DATA_TYPES = {
    "u8": 0,
    "i8": 0,
    "bool": 0,
    "f8_e4m3": 0,
    "f8_e5m2": 0,
    "u16": 1,
    "i16": 1,
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "c64": 4,
    "i64": 5,
    "f16": 6,
    "f32": 7,
    "f64": 8,
    "bf16": 9,
}
"""``CUtensorMapDataType`` of each dtype; for dtypes without one, that of integers of the same size."""

MAX_BOX, MAX_STEP = 256, 8
MAX_STRIDE, MAX_EXTENT = 1 << 40, 1 << 32
SPANS = {"32B": 32, "64B": 64, "128B": 128}


class TensorMap(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """A tensor map of an array; :func:`tensor_map` makes it.

    Attributes:
        box: Elements of a tile along each axis, in the order of the array's axes.
        steps: Between the elements of a tile along each axis, in elements.
        swizzle: Swizzle mode of the rows of a tile in shared memory, which avoids bank conflicts between columns.
        interleave: Interleave mode, for arrays in which small groups of channels are adjacent.
        l2: Bytes that the L2 cache fetches at once.
        fill: Value read for elements beyond the array.
    """

    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: str = "none"
    interleave: str = "none"
    l2: str = "none"
    fill: str = "zero"


def tensor_map(
    box: Any,
    *,
    steps: Any = None,
    swizzle: Literal["none", "32B", "64B", "128B"] = "none",
    interleave: Literal["none", "16B", "32B"] = "none",
    l2: Literal["none", "64B", "128B", "256B"] = "none",
    fill: Literal["zero", "nan"] = "zero",
) -> TensorMap:
    """A tensor map, for ``tensor_maps=`` of :func:`callboard.kernel` and of a program's kernel.

    The kernel takes it in place of the array's pointer, as ``const __grid_constant__ callboard::TensorMap a``
    (``<callboard/hopper.cuh>``), and names tiles by coordinates, that of the last axis first.

    Args:
        box: Elements of a tile along each axis, 1 to 256; up to five axes.
        steps: Between its elements, 1 to 8; 1 everywhere by default.
        swizzle, interleave, l2, fill: See :class:`TensorMap`.

    Raises:
        ShapeError: An argument that no array supports; names it.
    """
    box = shape_of(box, "box")
    steps = (1,) * len(box) if steps is None else shape_of(steps, "steps")
    if not 1 <= len(box) <= 5:
        raise ShapeError(f"box is {list(box)}; a tensor map has one to five axes")
    if len(steps) != len(box):
        raise ShapeError(f"steps is {list(steps)}; box has {len(box)} axes")
    for name, values, most in (("box", box, MAX_BOX), ("steps", steps, MAX_STEP)):
        if not all(1 <= n <= most for n in values):
            raise ShapeError(f"{name} is {list(values)}; each must lie between 1 and {most}")
    for name, word, words in (
        ("swizzle", swizzle, SWIZZLES),
        ("interleave", interleave, INTERLEAVES),
        ("l2", l2, L2),
        ("fill", fill, FILLS),
    ):
        if word not in words:
            raise ShapeError(f"{name} is {word!r}; use one of {', '.join(words)}")
    if interleave != "none" and len(box) < 3:
        raise ShapeError(f"interleave is {interleave}, for arrays of three axes and more; box is {list(box)}")
    if interleave == "32B" and swizzle != "32B":
        raise ShapeError(f"interleave 32B needs swizzle 32B, not {swizzle}")
    return TensorMap(tuple(box), tuple(steps), swizzle, interleave, l2, fill)


def check_map(tag: str, name: str, layout: Layout, one: TensorMap, offset: int = 0) -> None:
    """Hold a tensor map against the array that it is for.

    Args:
        tag, name: Names of the kernel and the parameter, for errors.
        layout: Layout of the array.
        one: The map.
        offset: Bytes from the start of the array's memory, which is a multiple of 256, to element 0.

    Raises:
        ShapeError: The accelerator cannot address it: names the violated rule.
    """
    where = f"{tag}: {name} is {layout!r}; its tensor map"
    if layout.dtype.name not in DATA_TYPES:
        raise ShapeError(f"{where} takes no {layout.dtype}; use one of {', '.join(DATA_TYPES)}")
    if one.fill == "nan" and not layout.dtype.is_float:
        raise ShapeError(f"{where} has fill nan, which only floating point has")
    if layout.ndim != len(one.box):
        raise ShapeError(f"{where} has the box {list(one.box)}, of {len(one.box)} axes")
    for axis, n in enumerate(layout.shape):
        if not 1 <= n <= MAX_EXTENT:
            raise ShapeError(f"{where} takes extents of 1 to 2**32; axis {axis} has {n}")
    item = layout.dtype.itemsize
    unit = 32 if one.interleave == "32B" else 16
    if offset % unit:
        raise ShapeError(
            f"{where} takes arrays that begin at a multiple of {unit} bytes; this view is {offset % unit} off"
        )
    for axis, step in enumerate(layout.strides[:-1]):
        if step * item % unit or not 0 < step * item < MAX_STRIDE:
            raise ShapeError(
                f"{where} takes strides of a multiple of {unit} bytes, below 2**40; that of axis {axis} has "
                f"{step * item} (pad the last axis)"
            )
    inner = one.box[-1] * item
    if one.interleave == "none":
        if inner % 16:
            raise ShapeError(f"{where} has {inner} bytes along the last axis of its box; a multiple of 16 is needed")
        if one.swizzle in SPANS and inner > SPANS[one.swizzle]:
            raise ShapeError(
                f"{where} has {inner} bytes along the last axis of its box; swizzle {one.swizzle} takes at most "
                f"{SPANS[one.swizzle]}"
            )
