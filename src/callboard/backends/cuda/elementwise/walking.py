"""The part of a kernel that finds elements: from the number of a pack to an offset in each array."""

from collections.abc import Sequence

from callboard.backends.cuda.elementwise.arguments import Field
from callboard.backends.cuda.elementwise.axes import Walk, divider

__all__ = ["offsets_text", "put_walk", "walk_fields"]


def walk_fields(walk: Walk, names: Sequence[str], prefix: str = "") -> list[Field]:
    """Fields for the axes of a walk over arrays of these names."""
    axes = range(len(walk.extents))
    step = "i64" if walk.wide else "i32"
    divisor = "i64" if walk.wide else "Divider"
    return [
        *((f"{prefix}d{axis}", divisor) for axis in axes[1:]),
        *((f"{prefix}s_{name}_{axis}", step) for name in names for axis in axes),
    ]


def put_walk(args: object, walk: Walk, names: Sequence[str], prefix: str = "") -> None:
    """Fill these fields."""
    for axis, extent in enumerate(walk.extents):
        if axis:
            if walk.wide:
                setattr(args, f"{prefix}d{axis}", extent)
            else:
                cell = getattr(args, f"{prefix}d{axis}")
                cell.divisor, cell.factor, cell.shift = divider(extent)
    for name, steps in zip(names, walk.steps, strict=True):
        for axis, step in enumerate(steps):
            setattr(args, f"{prefix}s_{name}_{axis}", step)


def offsets_text(walk: Walk, names: Sequence[str], index: str, prefix: str = "", into: str = "o_{}") -> list[str]:
    """Lines that add the offset of a pack in each array to the variables ``into``; ``index`` is its number."""
    kind, signed = ("i64", "i64") if walk.wide else ("u32", "i32")
    lines = [f"{kind} left = {index};"]
    for axis in range(len(walk.extents) - 1, 0, -1):
        if walk.wide:
            lines.append(f"{{ const i64 next = left / p.{prefix}d{axis}, at = left - next * p.{prefix}d{axis};")
        else:
            lines.append(f"{{ const u32 next = p.{prefix}d{axis}(left), at = left - next * p.{prefix}d{axis}.divisor;")
        lines += [f"  {into.format(name)} += ({signed})at * p.{prefix}s_{name}_{axis};" for name in names]
        lines.append("  left = next; }")
    lines += [f"{into.format(name)} += ({signed})left * p.{prefix}s_{name}_0;" for name in names]
    return lines
