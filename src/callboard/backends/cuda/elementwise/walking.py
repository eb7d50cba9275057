"""The part of a kernel that finds elements: from the number of a pack to an offset in each array."""

from collections.abc import Mapping, Sequence

from callboard.backends.cuda.elementwise.arguments import Field
from callboard.backends.cuda.elementwise.axes import Walk, divider

__all__ = ["offsets_text", "put_walk", "walk_fields"]

Rolls = Mapping[str, tuple[int, ...]]


def walk_fields(walk: Walk, names: Sequence[str], prefix: str = "") -> list[Field]:
    """Fields for the axes of a walk over arrays of these names."""
    axes = range(len(walk.extents))
    step = "i64" if walk.wide else "i32"
    divisor = "i64" if walk.wide else "Divider"
    return [
        *((f"{prefix}d{axis}", divisor) for axis in axes[1:]),
        *((f"{prefix}s_{name}_{axis}", step) for name in names for axis in axes),
        *(
            (f"{prefix}{field}_{name}_{axis}", step)
            for name, places in _rolled(walk, names)
            for axis, by in enumerate(places)
            if by
            for field in ("by", "back")
        ),
    ]


def _rolled(walk: Walk, names: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
    """The arrays that are rolled, and the places along each axis."""
    return [(name, places) for name, places in zip(names, walk.rolls, strict=False) if places]


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
    for name, places in _rolled(walk, names):
        for axis, by in enumerate(places):
            if by:
                setattr(args, f"{prefix}by_{name}_{axis}", by)
                setattr(args, f"{prefix}back_{name}_{axis}", walk.extents[axis] - by)


def offsets_text(
    walk: Walk, names: Sequence[str], index: str, prefix: str = "", into: str = "o_{}", rolls: Rolls | None = None
) -> list[str]:
    """Lines that add the offset of a pack in each array to the variables ``into``.

    Args:
        walk: Over the arrays.
        names: Of those whose offsets are wanted.
        index: The number of the pack.
        prefix: Of the fields.
        into: The variables.
        rolls: The arrays that are rolled.
    """
    kind, signed = ("i64", "i64") if walk.wide else ("u32", "i32")

    def added(name: str, axis: int, at: str) -> str:
        place = f"({signed}){at}"
        if rolls and rolls.get(name) and rolls[name][axis]:
            by, back = (f"p.{prefix}{field}_{name}_{axis}" for field in ("by", "back"))
            place = f"({place} < {by} ? {place} + {back} : {place} - {by})"
        return f"{into.format(name)} += {place} * p.{prefix}s_{name}_{axis};"

    lines = [f"{kind} left = {index};"]
    for axis in range(len(walk.extents) - 1, 0, -1):
        if walk.wide:
            lines.append(f"{{ const i64 next = left / p.{prefix}d{axis}, at = left - next * p.{prefix}d{axis};")
        else:
            lines.append(f"{{ const u32 next = p.{prefix}d{axis}(left), at = left - next * p.{prefix}d{axis}.divisor;")
        lines += [f"  {added(name, axis, 'at')}" for name in names]
        lines.append("  left = next; }")
    return lines + [added(name, 0, "left") for name in names]
