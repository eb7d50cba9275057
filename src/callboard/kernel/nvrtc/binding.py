"""From the arrays that a call passes to extents, dtypes and the layouts of its outputs."""

from collections.abc import Mapping
from typing import NamedTuple

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.kernel.nvrtc.expressions import evaluate
from callboard.kernel.nvrtc.parameters import ANY_SHAPE, Declared, Parameters

__all__ = ["Bound", "bound"]


class Bound(NamedTuple):
    """The values that the arrays of a call determine.

    Attributes:
        extents: Value of each extent.
        dtypes: Name of the dtype of each parameter.
        outs: Layout of each output, in order.
        numbers: Values of the numbers that follow from the shapes.
    """

    extents: dict[str, int]
    dtypes: dict[str, str]
    outs: tuple[Layout, ...]
    numbers: dict[str, int]


def bound(tag: str, parameters: Parameters, layouts: Mapping[str, Layout]) -> Bound:
    """Bind the layouts of the passed arrays, by name.

    Args:
        tag: Names the kernel in errors.
        parameters: Name of the kernel.
        layouts: Layouts of all passed arrays, outputs included.

    Raises:
        ShapeError: They do not fit the declaration; names the parameter.
    """
    extents: dict[str, int] = {}
    any_shape: tuple[int, ...] | None = None
    types: dict[str, str] = {}
    arrays = [one for one in parameters.all if one.is_array and one.name in layouts]
    for one in sorted(arrays, key=lambda one: one.kind == "out"):  # passed arrays determine the outputs
        layout = layouts[one.name]
        dtype = one.dtype if one.dtype in DTYPES else types.setdefault(one.dtype, layout.dtype.name)
        if layout.dtype.name != dtype:
            raise ShapeError(f"{tag}: {one.name} is {layout!r}, expected {dtype}")
        if not layout.contiguous:
            raise ShapeError(
                f"{tag}: {one.name} is {layout!r}; a kernel takes arrays without gaps (pass dev.copy of it)"
            )
        if one.shape == (ANY_SHAPE,):
            if any_shape is None:
                any_shape = layout.shape
            elif layout.shape != any_shape:
                raise ShapeError(f"{tag}: {one.name} is {layout!r}, expected the shape {list(any_shape)}")
        else:
            _bind(tag, one, layout, extents)
    outs = []
    for one in parameters.outs:
        if one.shape == (ANY_SHAPE,):
            assert any_shape is not None  # the declaration has seen to it
            shape = any_shape
        else:
            shape = tuple(_evaluated(tag, one, axis, extents) for axis in one.shape)
        if any(n < 0 for n in shape):
            raise ShapeError(f"{tag}: {one.name} would have the shape {list(shape)}; extents are >= 0")
        outs.append(layout_of(DTYPES[types.get(one.dtype, one.dtype)], shape))
    numbers = {one.name: _evaluated(tag, one, one.formula, extents) for one in parameters.all if one.formula}
    return Bound(extents, {one.name: types.get(one.dtype, one.dtype) for one in parameters.all}, tuple(outs), numbers)


def _bind(tag: str, one: Declared, layout: Layout, extents: dict[str, int]) -> None:
    """Learn extents from an array, and hold it against those that are known."""
    if layout.ndim != len(one.shape):
        raise ShapeError(f"{tag}: {one.name} is {layout!r}, expected {len(one.shape)} axes, [{', '.join(one.shape)}]")
    for axis, n in zip(one.shape, layout.shape, strict=True):
        if axis.isidentifier() and one.kind != "out":
            extents.setdefault(axis, n)
    for at, (axis, n) in enumerate(zip(one.shape, layout.shape, strict=True)):
        try:
            wanted = evaluate(axis, extents)
        except ValueError as e:  # a later array defines the name: this one is checked then
            if axis.isidentifier():
                raise
            raise ShapeError(f"{tag}: {one.name}: {e}; declare the array that defines it before {one.name}") from None
        if n != wanted:
            said = f"{axis} = {wanted}" if str(wanted) != axis else axis
            raise ShapeError(f"{tag}: {one.name} is {layout!r}; axis {at} has {n}, expected {said}")


def _evaluated(tag: str, one: Declared, formula: str, extents: Mapping[str, int]) -> int:
    try:
        return evaluate(formula, extents)
    except ValueError as e:
        raise ShapeError(f"{tag}: {one.name}: {e}") from None
