"""From requests to one message for each rank, and from the answers of the ranks to the refs of the requests."""

from collections.abc import Callable, Sequence
from typing import Any

from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device
from callboard.kernel.collective.messages import Run
from callboard.kernel.collective.part import Part, Step
from callboard.multi_device.worlds.requests import RankStep, Request

__all__ = ["RankPart"]

Ref = GpuRef[Any]


class RankPart:
    """The steps of one rank in a call, and the position of each result in the answer.

    Args:
        device: Device of the rank.
        rank, size: Rank in the world, and number of ranks.
        requests: All of the call, in order.

    Attributes:
        sent_bytes: Bytes of its sources.
    """

    def __init__(self, device: Device, rank: int, size: int, requests: Sequence[Request]) -> None:
        self._device = device
        self._ins: list[Ref] = []
        self._inouts: list[Ref] = []
        self._outs: list[Ref | None] = []
        self._makes: list[tuple[str, tuple[int, ...]]] = []
        self._factors: list[Any] = []
        self._results: dict[int, Callable[[tuple[Ref, ...]], Ref]] = {}
        self.sent_bytes = 0
        steps = [self._step(at, request, request.ranks[rank], rank) for at, request in requests_of(rank, requests)]
        self._part = Part(rank, size, tuple(steps), tuple(self._makes) if None in self._outs else ())

    def message(self, world: int, call: int, after: int) -> Run:
        """The message. Where some targets are given and some are not, those are made by ops of their own first."""
        given: tuple[Ref, ...] | None = None if self._outs else ()
        if self._outs != [None] * len(self._outs):
            given = tuple(
                self._device.empty(shape, dtype) if out is None else out
                for out, (dtype, shape) in zip(self._outs, self._makes, strict=True)
            )
        return Run(
            part=self._part,
            world=world,
            call=call,
            after=after,
            ins=tuple(self._ins),
            inouts=tuple(self._inouts),
            outs=given,
            factors=tuple(self._factors),
        )

    def refs(self, answer: tuple[Ref, ...]) -> dict[int, Ref]:
        """The result of each request that has one here, by its position."""
        return {at: take(answer) for at, take in self._results.items()}

    def _step(self, at: int, request: Request, step: RankStep, rank: int) -> Step:
        source = target = both = factor = -1
        if step.source is not None:
            source = _add(self._ins, step.source)
            self.sent_bytes += step.source.nbytes
        if step.target is not None or step.makes is not None:
            made = step.makes or (step.target.dtype.name, step.target.shape)  # type: ignore[union-attr]
            self._makes.append(made)
            target = _add(self._outs, step.target)
            self._results[at] = lambda answer: answer[target]
        if step.both is not None:
            both = _add(self._inouts, step.both)
            self.sent_bytes += step.both.nbytes
            self._results[at] = lambda answer: _shown(answer[len(self._outs) + both], step.shows)
        if step.factor is not None:
            factor = _add(self._factors, step.factor)
        kind = request.kinds.get(rank, request.kind)
        return Step(kind, request.op, step.root, source, target, both, factor, step.counts)


def requests_of(rank: int, requests: Sequence[Request]) -> list[tuple[int, Request]]:
    """The requests that a rank takes part in, with their positions."""
    return [(at, request) for at, request in enumerate(requests) if rank in request.ranks]


def _add(items: list[Any], item: Any) -> int:
    items.append(item)
    return len(items) - 1


def _shown(ref: Ref, rows: Any) -> Ref:
    return ref if rows is None else ref[rows]
