"""Plans of dropout: the numbers of Philox, by the place of each element."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.arrays import Array, Plan, view_of, view_of_out, wide
from callboard.backends.cpu.rng.philox import philox_words
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel.dnn.dropout import Dropout, DropoutBackward, DropoutMask, threshold_of

__all__ = ["mask", "scaled"]

BITS = (1 << 64) - 1


def _number(given: Any) -> Callable[[Any], int]:
    """A number of the call, or of a 0-d array."""
    if not isinstance(given, Operand):
        return lambda value: int(value) & BITS
    view = viewer(given.layout)
    return lambda address: int(view(address)[()]) & BITS


def kept(shape: tuple[int, ...], probability: float, seed: int, offset: int) -> Array:
    """Mask of the elements that dropout keeps."""
    count = int(np.prod(shape))
    words = philox_words(seed, offset, count)
    mask: Array = words.astype(np.uint64) >= np.uint64(threshold_of(probability))
    return mask.reshape(shape)


@plans(Dropout, DropoutBackward)
def scaled(op: Dropout | DropoutBackward) -> Plan:
    """Called with ``(x, probability, seed, offset, out)``."""
    source, out = (op.x, "out") if isinstance(op, Dropout) else (op.dy, "dx")
    view_x, view_out, shape = view_of(source), view_of_out(op, out), source.shape
    seed_of, offset_of = _number(op.seed), _number(op.offset)

    def work(x: int, probability: float, seed: Any, offset: Any, out: int) -> None:
        stays = kept(shape, probability, seed_of(seed), offset_of(offset))
        given = wide(view_x(x))
        factor = given.dtype.type(0 if probability >= 1 else 1 / (1 - probability))
        view_out(out)[...] = np.where(stays, given * factor, given.dtype.type(0))

    return work


@plans(DropoutMask)
def mask(op: DropoutMask) -> Plan:
    """Called with ``(probability, seed, offset, out)``."""
    view_out, seed_of, offset_of = view_of_out(op), _number(op.seed), _number(op.offset)

    def work(probability: float, seed: Any, offset: Any, out: int) -> None:
        view_out(out)[...] = kept(op.shape, probability, seed_of(seed), offset_of(offset))

    return work
