"""Plans of local response normalisation. Windows are added up: differences of running sums would lose digits."""

from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.arrays import Array, Plan, view_of, view_of_out, wide
from callboard.core.library import plans
from callboard.kernel.dnn.lrn import Lrn, LrnBackward

__all__ = ["backward", "forward"]


def _window_sums(a: Array, axis: int, before: int, behind: int) -> Array:
    """The sum of each channel and its neighbours."""
    channels = a.shape[axis]
    total = np.zeros_like(a)
    for shift in range(-min(before, channels), min(behind, channels) + 1):
        here = [slice(None)] * a.ndim
        there = list(here)
        here[axis] = slice(max(0, -shift), channels - max(0, shift))
        there[axis] = slice(max(0, shift), channels - max(0, -shift))
        total[tuple(here)] += a[tuple(there)]
    return total


def _divisor(op: Any, x: Array, axis: int) -> Array:
    sums = _window_sums(x * x, axis, op.size // 2, op.size - 1 - op.size // 2)
    found: Array = x.dtype.type(op.k) + x.dtype.type(op.alpha / op.size) * sums
    return found


@plans(Lrn)
def forward(op: Lrn) -> Plan:
    """Called with ``(x, out)``."""
    view_x, view_out, axis = view_of(op.x), view_of_out(op), op.axis % op.x.ndim

    def work(x: int, out: int) -> None:
        given = wide(view_x(x))
        view_out(out)[...] = given * _divisor(op, given, axis) ** given.dtype.type(-op.beta)

    return work


@plans(LrnBackward)
def backward(op: LrnBackward) -> Plan:
    """Called with ``(dy, x, dx)``."""
    view_dy, view_x, view_dx, axis = view_of(op.dy), view_of(op.x), view_of_out(op, "dx"), op.axis % op.x.ndim

    def work(dy: int, x: int, dx: int) -> None:
        grad, given = wide(view_dy(dy)), wide(view_x(x))
        kind = given.dtype.type
        divisor = _divisor(op, given, axis)
        power = divisor ** kind(-op.beta)
        # channel i is in the windows of the channels before which it stands: the reversed window
        sums = _window_sums(grad * given * power / divisor, axis, op.size - 1 - op.size // 2, op.size // 2)
        view_dx(dx)[...] = grad * power - kind(2 * op.alpha * op.beta / op.size) * given * sums

    return work
