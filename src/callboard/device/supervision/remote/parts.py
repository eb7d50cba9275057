"""The bytes of arenas that a call reads and writes, derived from its signature."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from callboard.core.errors import AccelError
from callboard.core.layout import Layout
from callboard.core.op import info_of
from callboard.core.operand import Operand, Role
from callboard.device.host.context.plans.plan import read_plan
from callboard.device.protocol.recording import MARK

__all__ = ["HostOperand", "host_parts"]


class HostOperand(NamedTuple):
    """A host operand of a call.

    Attributes:
        at: Position among the bindings.
        reads: The op reads it, else it writes it.
        spans: ``(first byte, byte after the last)`` of its pieces, relative to element 0; the gaps between rows that an
            op writes are not part of it, and stay unchanged.
    """

    at: int
    reads: bool
    spans: Sequence[tuple[int, int]]


def host_parts(signature: bytes) -> Sequence[HostOperand]:
    """The host operands of a signature; none if it is unreadable, for which the host reports a better error."""
    if signature.startswith(MARK):
        return ()  # a recording has none
    try:
        op = read_plan(signature).op
    except (AccelError, ValueError, TypeError, KeyError):
        return ()
    operands = [(role, value) for *_, role, value in info_of(type(op)).leaves(op) if isinstance(value, Operand)]
    return [
        HostOperand(at, role is Role.HOST_IN, [value.layout.span] if role is Role.HOST_IN else rows(value.layout))
        for at, (role, value) in enumerate(operands)
        if role in (Role.HOST_IN, Role.HOST_OUT)
    ]


def rows(layout: Layout) -> list[tuple[int, int]]:
    """The pieces without gaps that a layout consists of."""
    item, shape, strides = layout.dtype.itemsize, layout.shape, layout.strides
    inner, run = layout.ndim, 1
    while inner and (strides[inner - 1] == run or shape[inner - 1] == 1):
        inner -= 1
        run *= shape[inner]
    if not math.prod(shape):
        return []
    starts = (sum(map(int.__mul__, index, strides)) for index in itertools.product(*map(range, shape[:inner])))
    return [(start * item, (start + run) * item) for start in starts]
