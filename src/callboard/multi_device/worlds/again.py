"""A collective that is called again: what its parts are is worked out once for its kind, operation and layouts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from callboard.core.ref import GpuRef
from callboard.device.client.prepared import Prepared

__all__ = ["Again", "Ready", "key_of"]

Ref = GpuRef[Any]


class Ready(NamedTuple):
    """A part of a call, found to be acceptable.

    Attributes:
        rank: Whose part it is.
        prepared: The op.
        places, operands, numbers: As of :meth:`.Prepared.submit`.
    """

    rank: int
    prepared: Prepared
    places: list[int]
    operands: Sequence[Any]
    numbers: list[int | float]


class Again:
    """The parts of a collective in which each rank sends one array and gets one.

    Args:
        parts: Of all ranks, from a call of it.
        xs, outs: Of each rank, in that call.
        sent_bytes: In a call.
    """

    __slots__ = ("_parts", "sent_bytes")

    def __init__(self, parts: Sequence[Ready], xs: Sequence[Ref], outs: Sequence[Ref] | None, sent_bytes: int) -> None:
        # By part: the op, and for each operand whether it is what the rank gets, not what it sends.
        self._parts = [(part.prepared, [operand is not xs[part.rank] for operand in part.operands]) for part in parts]
        self.sent_bytes = sent_bytes

    def ready(
        self, xs: Sequence[Ref], outs: Sequence[Ref] | None, world: int, call: int, after: Sequence[int]
    ) -> list[Ready] | None:
        """The parts with these arrays; None: the call must be looked at closely, or is to be refused.

        Raises:
            MailboxFull, DeviceStopped: A device takes no more.
        """
        found = []
        for rank, (prepared, picks) in enumerate(self._parts):
            operands = [outs[rank] if pick and outs is not None else xs[rank] for pick in picks]
            places = prepared.places(operands)
            if places is None:
                return None
            found.append(Ready(rank, prepared, places, operands, [world, call, after[rank]]))
        return found


def key_of(kind: str, xs: Any, outs: Any, op: Sequence[Any]) -> tuple[Any, ...] | None:
    """What decides the parts of a collective; None where this cannot be told from the layouts of its arrays.

    Args:
        kind: Of the collective.
        xs, outs: As the caller gave them.
        op: Of a reduction.
    """
    if not (type(xs) is list or type(xs) is tuple) or (op and type(op[0]) is not str):
        return None
    try:
        key: list[Any] = [kind, *op, len(xs), *[x.layout.wire for x in xs]]
        if outs is not None:
            if len(outs) != len(xs):
                return None
            for x, out in zip(xs, outs, strict=True):
                if out is x:
                    key.append(None)
                else:
                    key.append(out.layout.wire)
                    key.append(out.offset - x.offset if out.allocation is x.allocation else None)
    except (AttributeError, TypeError):  # no refs: what is said of them is found out by the checks
        return None
    return tuple(key)
