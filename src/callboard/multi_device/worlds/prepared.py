"""Prepared collectives: the parts of a collective, kept by kind, operation and layouts for later calls."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from callboard.core.ref import GpuRef
from callboard.device.client.prepared import Prepared

__all__ = ["PartCall", "PreparedCollective", "key_of"]

Ref = GpuRef[Any]


class PartCall(NamedTuple):
    """The checked part of one rank in a call.

    Attributes:
        rank: The rank.
        prepared: The op.
        places, operands, numbers: Arguments of :meth:`.Prepared.send` and :meth:`.Prepared.enter`.
    """

    rank: int
    prepared: Prepared
    places: list[int]
    operands: Sequence[Any]
    numbers: list[int | float]


class PreparedCollective:
    """The parts of a collective in which each rank sends one array and receives one.

    Args:
        parts: The parts of all ranks in the first call.
        xs, outs: The arrays of that call.
        sent_bytes: Bytes that a call sends.
    """

    __slots__ = ("_parts", "sent_bytes")

    def __init__(
        self, parts: Sequence[PartCall], xs: Sequence[Ref], outs: Sequence[Ref] | None, sent_bytes: int
    ) -> None:
        # for each part: the op, and for each operand whether the rank receives it (rather than sends it)
        self._parts = [(part.prepared, [operand is not xs[part.rank] for operand in part.operands]) for part in parts]
        self.sent_bytes = sent_bytes

    def ready(
        self, xs: Sequence[Ref], outs: Sequence[Ref] | None, world: int, call: int, after: Sequence[int]
    ) -> list[PartCall] | None:
        """The parts of a call with these arrays; None: the full checks have to run, which may refuse the call.

        Raises:
            MailboxFull, DeviceStopped: A device accepts no more ops.
        """
        found = []
        for rank, (prepared, picks) in enumerate(self._parts):
            operands = [outs[rank] if pick and outs is not None else xs[rank] for pick in picks]
            places = prepared.places(operands)
            if places is None:
                return None
            found.append(PartCall(rank, prepared, places, operands, [world, call, after[rank]]))
        return found


def key_of(kind: str, xs: Any, outs: Any, op: Sequence[Any]) -> tuple[Any, ...] | None:
    """The key of a prepared collective: kind, operation, layouts, and the placement of ``outs`` relative to ``xs``.

    None if these do not decide the parts (a :class:`.PreMulSum`), or if the arguments are no sequences of refs.

    Args:
        kind: Kind of the collective.
        xs, outs: The arguments of the caller.
        op: Operation of a reduction; else empty.
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
    except (AttributeError, TypeError):  # not refs: the full checks raise the error
        return None
    return tuple(key)
