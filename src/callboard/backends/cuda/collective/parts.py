"""From the steps of a part to calls of NCCL."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cuda.collective.member import CudaMember
from callboard.backends.cuda.collective.nccl import (
    BYTES,
    HOST_IMMEDIATE,
    IN_DEVICE_MEMORY,
    OPS,
    Comm,
    Elements,
    Nccl,
    elements,
)
from callboard.core.dtype import DTYPES
from callboard.core.errors import WorldLost
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.collective.messages import Run
from callboard.kernel.collective.part import REDUCTIONS, Step, arrays_of, counts_between

__all__ = ["PartPlan", "why_not"]

NO_ELEMENTS = elements(DTYPES["u8"])
FP8 = (DTYPES["f8_e4m3"], DTYPES["f8_e5m2"])


class Fixed(NamedTuple):
    """The values that are the same in every call of a step.

    Attributes:
        step: The step.
        layout: Layout of the array that is sent or received; None: none is.
        sent, received: Elements.
        of: Description of the elements for NCCL.
        op: ``ncclRedOp_t``.
        scaled: The operation is made for each call, with its factor.
    """

    step: Step
    layout: Layout | None
    sent: int
    received: int
    of: Elements
    op: int
    scaled: bool


class Rank(NamedTuple):
    """A step with the addresses of its arrays; in place, both are one."""

    step: Step
    rank: int
    size: int
    source: int
    target: int
    sent: int
    received: int
    of: Elements
    in_place: bool
    op: int
    comm: Comm
    stream: int
    library: Any
    scratch: int


def all_reduce(at: Rank) -> None:
    at.library.all_reduce(at.source, at.target, at.sent, at.of.code, at.op, at.comm, at.stream)


def reduce(at: Rank) -> None:
    at.library.reduce(at.source, at.target, at.sent, at.of.code, at.op, at.step.root, at.comm, at.stream)


def reduce_scatter(at: Rank) -> None:
    count = at.sent // at.size
    target = at.target + at.rank * count * at.of.itemsize if at.in_place else at.target
    at.library.reduce_scatter(at.source, target, count, at.of.code, at.op, at.comm, at.stream)


def broadcast(at: Rank) -> None:
    source = at.source if at.rank == at.step.root else at.target  # not read elsewhere
    count = at.received * at.of.scale
    at.library.broadcast(source, at.target, count, at.of.code, at.step.root, at.comm, at.stream)


def all_gather(at: Rank) -> None:
    count = at.received // at.size
    source = at.target + at.rank * count * at.of.itemsize if at.in_place else at.source
    at.library.all_gather(source, at.target, count * at.of.scale, at.of.code, at.comm, at.stream)


def gather(at: Rank) -> None:
    if not at.in_place:
        _send(at, at.step.root, at.source, at.sent)
    if at.rank == at.step.root:
        _receive_all(at, at.target, [at.received // at.size] * at.size, skip=at.in_place)


def scatter(at: Rank) -> None:
    if at.rank == at.step.root:
        _send_all(at, at.source, [at.sent // at.size] * at.size, skip=at.in_place)
    if not at.in_place:
        _receive(at, at.step.root, at.target, at.received)


def all_to_all(at: Rank) -> None:
    parts = [at.sent // at.size] * at.size
    _send_all(at, at.source, parts)
    _receive_all(at, at.target, parts)


def all_to_all_v(at: Rank) -> None:
    to, of = counts_between(at.step.counts, at.size, at.rank)
    _send_all(at, at.source, to)
    _receive_all(at, at.target, of)


def send(at: Rank) -> None:
    _send(at, at.step.root, at.source, at.sent)


def recv(at: Rank) -> None:
    _receive(at, at.step.root, at.target, at.received)


def barrier(at: Rank) -> None:
    at.library.all_reduce(at.scratch, at.scratch, 1, BYTES, OPS["max"], at.comm, at.stream)


KINDS: dict[str, Callable[[Rank], None]] = {
    "all_reduce": all_reduce,
    "reduce": reduce,
    "broadcast": broadcast,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "all_to_all_v": all_to_all_v,
    "gather": gather,
    "scatter": scatter,
    "send": send,
    "recv": recv,
    "barrier": barrier,
}
SINGLE = frozenset({"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", "send", "recv"})
"""Kinds that are one NCCL call. All others are sends and receives in a group; the newest NCCL versions have equivalent
calls for some of them."""


def why_not(op: Run) -> str | None:
    """The reason why NCCL cannot execute this part; None if it can."""
    if op.part.size == 1:
        for step in op.part.steps:
            given = op.ins[step.source] if step.source >= 0 else op.inouts[step.both] if step.both >= 0 else None
            if step.factor >= 0 and given is not None and given.dtype in FP8:
                return f"NCCL does not scale {given.dtype} in a world of one rank; two ranks can, and f16 always"
    return None


class PartPlan:
    """The plan of a :class:`Run`: enqueues the part."""

    def __init__(self, op: Run, nccl: Nccl) -> None:
        outs = tuple(layout for layout in op.infer()["outs"] if isinstance(layout, Layout))  # type: ignore[union-attr]
        ins, inouts = [x.layout for x in op.ins], [x.layout for x in op.inouts]
        part = self._part = op.part
        self._nccl = nccl
        arrays = [arrays_of("collective.run", part, step, ins, outs, inouts) for step in part.steps]
        self._fixed = [self._fix(step, *found) for step, found in zip(part.steps, arrays, strict=True)]
        self._grouped = len(part.steps) > 1 or any(step.kind not in SINGLE for step in part.steps)
        self._by_address = [isinstance(factor, Operand) for factor in op.factors]

    def enqueue(
        self,
        member: CudaMember,
        stream: int,
        ins: Sequence[int],
        inouts: Sequence[int],
        outs: Sequence[int],
        factors: Sequence[Any],
    ) -> None:
        """Enqueue it; a communicator that refuses is ended: the other ranks have enqueued theirs.

        Raises:
            LibraryError: NCCL refuses.
        """
        library, comm = self._nccl.library, member.comm
        made: list[int] = []
        try:
            begun = [self._rank(fixed, member, comm, stream, ins, inouts, outs, factors, made) for fixed in self._fixed]
            if self._grouped:
                library.group_start()
            try:
                for one in begun:
                    KINDS[one.step.kind](one)
            finally:
                if self._grouped:
                    library.group_end()
            for op in made:
                library.red_op_destroy(op, comm)
        except self._nccl.failure as e:
            error = self._nccl.error(e, f"NCCL, {', '.join(step.kind for step in self._part.steps)}")
            member.end(WorldLost(f"rank {member.rank}: {error}", member.rank))
            raise error from None

    def _fix(self, step: Step, source: Layout | None, target: Layout | None) -> Fixed:
        layout = source or target
        alone = self._part.size == 1  # the average of one is it; NCCL has no average of fp8 there
        return Fixed(
            step,
            layout,
            0 if source is None else source.size,
            0 if target is None else target.size,
            NO_ELEMENTS if layout is None else elements(layout.dtype),
            OPS["sum" if alone and step.op == "avg" else step.op],
            step.factor >= 0 and step.kind in REDUCTIONS,
        )

    def _rank(
        self,
        fixed: Fixed,
        member: CudaMember,
        comm: Comm,
        stream: int,
        ins: Sequence[int],
        inouts: Sequence[int],
        outs: Sequence[int],
        factors: Sequence[Any],
        made: list[int],
    ) -> Rank:
        step, layout, sent, received, of, op, scaled = fixed
        if scaled and layout is not None:
            op = self._scaled(step.factor, factors[step.factor], layout, of, comm)
            made.append(op)
        both = inouts[step.both] if step.both >= 0 else 0
        return Rank(
            step,
            self._part.rank,
            self._part.size,
            ins[step.source] if step.source >= 0 else both,
            both or (outs[step.target] if step.target >= 0 else 0),
            sent,
            received,
            of,
            both != 0,
            op,
            comm,
            stream,
            self._nccl.library,
            member.setup.scratch.address,
        )

    def _scaled(self, at: int, factor: Any, layout: Layout, of: Elements, comm: Comm) -> int:
        if self._by_address[at]:
            address, residence = factor, IN_DEVICE_MEMORY
        else:
            number = np.asarray(factor).astype(layout.dtype.np).reshape(1)  # read by the call
            address, residence = number.ctypes.data, HOST_IMMEDIATE
        return int(self._nccl.library.red_op_create_pre_mul_sum(address, of.code, residence, comm))


def _send(at: Rank, peer: int, address: int, count: int) -> None:
    if count:
        at.library.send(address, count * at.of.scale, at.of.code, peer, at.comm, at.stream)


def _receive(at: Rank, peer: int, address: int, count: int) -> None:
    if count:
        at.library.recv(address, count * at.of.scale, at.of.code, peer, at.comm, at.stream)


def _send_all(at: Rank, address: int, counts: Sequence[int], *, skip: bool = False) -> None:
    for peer, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True)):
        if not (skip and peer == at.rank):
            _send(at, peer, address + (end - count) * at.of.itemsize, count)


def _receive_all(at: Rank, address: int, counts: Sequence[int], *, skip: bool = False) -> None:
    for peer, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True)):
        if not (skip and peer == at.rank):
            _receive(at, peer, address + (end - count) * at.of.itemsize, count)
