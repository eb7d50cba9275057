"""Shared by the tests of continuous batching: a step function that the test lets go, and a server in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from batching_lab import no_internal_error, turns

import callboard as cb
from callboard.actors import ManualClock


class Steps:
    """Counts each sequence up to its item, one part per step, when the test lets a step go.

    A sequence's state is the next number; it is computed from the parts when the slot is fresh, and only then.

    Attributes:
        seen: The numbers of the requests of each step.
        closed: Those of the sequences that were closed, in their order.
    """

    def __init__(self, *, free: bool = False) -> None:
        self.seen: list[list[int]] = []
        self.closed: list[int] = []
        self.open: set[int] = set()
        self.free = free
        self._gates: list[asyncio.Future[Any]] = []

    async def __call__(self, slots: list[Any]) -> list[Any]:
        self.seen.append([slot.number for slot in slots])
        for slot in slots:
            assert slot.fresh == (slot.state is None)
            if slot.fresh:
                assert slot.number not in self.open, "begun twice"
                self.open.add(slot.number)
                slot.state = len(slot.parts)
            assert slot.number in self.open, "it was closed"
        if not self.free:
            gate = asyncio.get_running_loop().create_future()
            self._gates.append(gate)
            found = await gate
            if isinstance(found, BaseException):
                raise found
            if found is not None:
                return list(found)
        return [self.next(slot) for slot in slots]

    def next(self, slot: Any) -> Any:
        n = slot.state
        slot.state += 1
        if n == slot.item:
            return cb.DONE
        return cb.Last(n) if n == slot.item - 1 and n % 2 else n

    def close(self, slot: Any) -> None:
        assert slot.number in self.open or slot.fresh, "closed twice"
        self.open.discard(slot.number)
        self.closed.append(slot.number)

    @property
    def waiting(self) -> bool:
        return any(not gate.done() for gate in self._gates)

    async def go(self, outcome: Any = None) -> None:
        """Let the step go: with its own results, with these, or with this exception."""
        next(gate for gate in self._gates if not gate.done()).set_result(outcome)
        await turns()


@asynccontextmanager
async def stepping(
    step: Any, clock: ManualClock | None = None, **options: Any
) -> AsyncIterator[cb.ContinuousBatchingServer[int, int]]:
    """A server in virtual time; stopped at the end, whatever the test left."""
    if isinstance(step, Steps):
        options.setdefault("close", step.close)
    server = cb.ContinuousBatchingServer[int, int](step, clock=clock or ManualClock(), **options)
    await server.start()
    try:
        with no_internal_error():
            yield server
    finally:
        await server.stop()
