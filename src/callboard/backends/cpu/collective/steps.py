"""From the steps of a part to transfers: sends, receives and reductions of a rank, in at most two phases."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cpu.collective.member import CpuMember
from callboard.backends.cpu.collective.reducing import reducer, scaled
from callboard.backends.cpu.collective.transfers import Receive, Reduce, Send, Transfer, run
from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import array_at, viewer
from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Operand
from callboard.kernel.collective.messages import Run
from callboard.kernel.collective.part import REDUCTIONS, Step, arrays_of, counts_between

__all__ = ["PartPlan"]

Array = np.ndarray[Any, Any]
SMALL = 32 << 10
"""Bytes up to which an all-reduce sends all to all: one exchange instead of two."""


class Rank(NamedTuple):
    """A step with its arrays."""

    step: Step
    rank: int
    size: int
    source: Array
    target: Array
    in_place: bool

    @property
    def others(self) -> list[int]:
        return [peer for peer in range(self.size) if peer != self.rank]


Phases = tuple[list[Transfer], Callable[[], list[Transfer]] | None]


def all_reduce(at: Rank) -> Phases:
    """Small: all to all. Else each rank reduces its share, then sends it to all (Rabenseifner 2004)."""
    combine = reducer(at.step.op, _dtype(at.source), at.size)
    if at.source.nbytes <= SMALL:
        own = at.source.copy()  # in place, the result goes where others are still sent from
        return [*(Send(p, own) for p in at.others), Reduce(at.rank, at.size, own, at.target, combine)], None
    whole, out = at.source.reshape(-1), at.target.reshape(-1)
    bounds = [whole.size * rank // at.size for rank in range(at.size + 1)]
    shares = [slice(low, high) for low, high in itertools.pairwise(bounds)]
    mine = shares[at.rank]
    first: list[Transfer] = [Send(p, whole[shares[p]]) for p in at.others]
    first.append(Reduce(at.rank, at.size, whole[mine], out[mine], combine))
    return first, lambda: [
        *(Send(p, out[mine]) for p in at.others),
        *(Receive(p, out[shares[p]]) for p in at.others),
    ]


def reduce(at: Rank) -> Phases:
    if at.rank != at.step.root:
        return [Send(at.step.root, at.source)], None
    return [Reduce(at.rank, at.size, at.source, at.target, reducer(at.step.op, _dtype(at.source), at.size))], None


def reduce_scatter(at: Rank) -> Phases:
    parts = at.source.reshape(at.size, -1)
    target = at.target.reshape(at.size, -1)[at.rank] if at.in_place else at.target
    combine = reducer(at.step.op, _dtype(at.source), at.size)
    return [
        *(Send(p, parts[p]) for p in at.others),
        Reduce(at.rank, at.size, parts[at.rank], target, combine),
    ], None


def broadcast(at: Rank) -> Phases:
    if at.rank != at.step.root:
        return [Receive(at.step.root, at.target)], None
    if not at.in_place:
        at.target.reshape(-1)[:] = at.source.reshape(-1)
    return [Send(p, at.source) for p in at.others], None


def all_gather(at: Rank) -> Phases:
    parts = at.target.reshape(at.size, -1)
    if not at.in_place:
        parts[at.rank] = at.source.reshape(-1)
    return [*(Send(p, parts[at.rank]) for p in at.others), *(Receive(p, parts[p]) for p in at.others)], None


def gather(at: Rank) -> Phases:
    if at.rank != at.step.root:
        return [Send(at.step.root, at.source)], None
    parts = at.target.reshape(at.size, -1)
    if not at.in_place:
        parts[at.rank] = at.source.reshape(-1)
    return [Receive(p, parts[p]) for p in at.others], None


def scatter(at: Rank) -> Phases:
    if at.rank != at.step.root:
        return [Receive(at.step.root, at.target)], None
    parts = at.source.reshape(at.size, -1)
    if not at.in_place:
        at.target.reshape(-1)[:] = parts[at.rank]
    return [Send(p, parts[p]) for p in at.others], None


def all_to_all(at: Rank) -> Phases:
    sent, received = at.source.reshape(at.size, -1), at.target.reshape(at.size, -1)
    received[at.rank] = sent[at.rank]
    return [*(Send(p, sent[p]) for p in at.others), *(Receive(p, received[p]) for p in at.others)], None


def all_to_all_v(at: Rank) -> Phases:
    to, of = counts_between(at.step.counts, at.size, at.rank)
    sent, received = _pieces(at.source, to), _pieces(at.target, of)
    received[at.rank][:] = sent[at.rank]
    return [*(Send(p, sent[p]) for p in at.others), *(Receive(p, received[p]) for p in at.others)], None


def send(at: Rank) -> Phases:
    return [Send(at.step.root, at.source)], None


def recv(at: Rank) -> Phases:
    return [Receive(at.step.root, at.target)], None


def barrier(at: Rank) -> Phases:
    token = np.zeros(1, np.uint8)
    return [*(Send(p, token) for p in at.others), *(Receive(p, token.copy()) for p in at.others)], None


KINDS: dict[str, Callable[[Rank], Phases]] = {
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


class PartPlan:
    """The plan of a :class:`Run`: makes arrays of addresses, and runs the part on the stream's worker."""

    def __init__(self, op: Run) -> None:
        outs = tuple(layout for layout in op.infer()["outs"] if isinstance(layout, Layout))  # type: ignore[union-attr]
        ins, inouts = [x.layout for x in op.ins], [x.layout for x in op.inouts]
        self._part = op.part
        self._views = [[viewer(layout) for layout in layouts] for layouts in (ins, outs, inouts)]
        self._arrays = [arrays_of("collective.run", op.part, step, ins, outs, inouts) for step in op.part.steps]
        self._by_address = [isinstance(factor, Operand) for factor in op.factors]

    def run(
        self,
        member: CpuMember,
        stream: CpuStream,
        call: int,
        ins: Sequence[int],
        inouts: Sequence[int],
        outs: Sequence[int],
        factors: Sequence[Any],
    ) -> None:
        """Do this rank's part, with the others.

        Raises:
            WorldLost: The world has ended.
        """
        member.check()
        begun = []
        for step, arrays in zip(self._part.steps, self._arrays, strict=True):
            layout = arrays.source or arrays.target
            both = self._array(2, step.both, inouts)
            source = self._array(0, step.source, ins) if step.both < 0 or step.source >= 0 else both
            target = self._array(1, step.target, outs) if step.both < 0 else both
            if step.factor >= 0 and step.kind in REDUCTIONS and layout is not None:
                factor = factors[step.factor]
                if self._by_address[step.factor]:
                    factor = array_at(factor, layout_of(layout.dtype, ()))[()]
                source = scaled(source, factor, layout.dtype)
            at = Rank(step, self._part.rank, self._part.size, source, target, step.both >= 0)
            begun.append(KINDS[step.kind](at))
        run(member, stream, call, [transfer for transfers, _ in begun for transfer in transfers])
        run(member, stream, call, [transfer for _, then in begun if then is not None for transfer in then()])

    def _array(self, role: int, at: int, addresses: Sequence[int]) -> Array:
        return _NOTHING if at < 0 else self._views[role][at](addresses[at])


_NOTHING = np.empty(0, np.uint8)


def _dtype(array: Array) -> Any:
    return next(dtype for dtype in DTYPES.values() if dtype.np == array.dtype)


def _pieces(array: Array, counts: Sequence[int]) -> list[Array]:
    return np.split(array.reshape(-1), np.cumsum(counts)[:-1])
