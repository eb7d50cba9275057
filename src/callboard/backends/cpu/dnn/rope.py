"""Plans of rotary position embedding."""

from typing import Any

from callboard.backends.cpu.dnn.arrays import Plan, view_of, view_of_out, wide
from callboard.backends.cpu.dnn.embedding import checked
from callboard.core.library import plans
from callboard.kernel.dnn.rope import Rope, RopeBackward, check_rope

__all__ = ["turn"]


@plans(Rope, RopeBackward)
def turn(op: Any) -> Plan:
    """Called with ``(x, cos, sin, positions, out)``."""
    back = isinstance(op, RopeBackward)
    name, source, result = ("dy", op.dy, "dx") if back else ("x", op.x, "out")
    axis, tag = check_rope(op, name, source), type(op).__struct_config__.tag
    view_x, view_cos, view_sin, view_out = view_of(source), view_of(op.cos), view_of(op.sin), view_of_out(op, result)
    view_positions = None if op.positions is None else view_of(op.positions)
    pairs, rows, ndim = op.cos.shape[1], op.cos.shape[0], source.ndim
    firsts, seconds = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
        if op.interleaved
        else (slice(0, pairs), slice(pairs, 2 * pairs))
    )

    def work(x: int, cos: int, sin: int, positions: int | None, out: int) -> None:
        given, turned = view_x(x), view_out(out)
        at: Any = slice(0, given.shape[axis])
        if view_positions is not None:
            at = checked(tag, "positions", view_positions(positions or 0), rows)
        shape = [1] * (ndim - 1) + [pairs]
        shape[axis] = given.shape[axis]
        if view_positions is not None and at.ndim == 2:
            shape[0] = given.shape[0]
        c, s = (wide(view(address)[at]).reshape(shape) for view, address in ((view_cos, cos), (view_sin, sin)))
        s = -s if back else s
        a, b = wide(given[..., firsts]), wide(given[..., seconds])
        first, second = a * c - b * s, a * s + b * c
        if x != out:
            turned[..., 2 * pairs :] = given[..., 2 * pairs :]
        turned[..., firsts], turned[..., seconds] = first, second

    return work
