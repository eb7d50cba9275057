"""Arrays that a kernel takes as tensor maps."""

from collections.abc import Mapping, Sequence
from typing import Any

from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.nvrtc.parameters import Parameters
from callboard.kernel.nvrtc.tensormap import TensorMap, check_map

__all__ = ["check_maps", "declared_maps"]


def declared_maps(declared: Parameters, maps: Mapping[str, TensorMap]) -> dict[str, TensorMap]:
    """The maps by parameter, checked.

    Raises:
        TypeError: No tensor map.
        ValueError: No array of this name, or one of another number of axes.
    """
    arrays = {one.name: one for one in declared.all if one.is_array}
    for name, one in maps.items():
        if not isinstance(one, TensorMap):
            raise TypeError(f"tensor_maps: {name} is {type(one).__name__}; pass cb.tensor_map(box)")
        if name not in arrays:
            raise ValueError(f"tensor_maps: no array {name} is declared; there are {', '.join(arrays)}")
        shape = arrays[name].shape
        if shape != ("...",) and len(shape) != len(one.box):
            raise ValueError(f"tensor_maps: {name} has {len(shape)} axes, the box {list(one.box)} {len(one.box)}")
    return dict(maps)


def check_maps(
    tag: str, maps: Mapping[str, TensorMap], arrays: Mapping[str, Any], outs: Sequence[Layout], declared: Parameters
) -> None:
    """Hold the maps against the arrays of a call, and against the outputs that it makes.

    Raises:
        ShapeError: An array cannot be addressed so; names it.
    """
    made = dict(zip((one.name for one in declared.outs), outs, strict=True))
    for name, one in maps.items():
        array = arrays.get(name)
        if isinstance(array, Operand):
            check_map(tag, name, array.layout, one, getattr(array, "offset", 0))
        else:
            check_map(tag, name, made[name], one)
