"""``Profile``: ``async with gpu.profile() as profile``: the ops of a block of code, and what they cost."""

import os
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from callboard.device.client.handle import Device
from callboard.device.client.line.status import TraceRecord
from callboard.events.kinds import TRACED
from callboard.events.ring import CAPACITY, Event
from callboard.telemetry.export.perfetto import Perfetto
from callboard.telemetry.profiling.costs import Costs, OpCost
from callboard.telemetry.pump import Pump

__all__ = ["Profile"]

ANSWER = 10.0
"""Seconds that the host gets to say what it has recorded."""
MOST = 1_000_000
"""Events that are kept for :meth:`Profile.save`."""


class Profile:
    """Measures all ops of a device in a block; made by ``device.profile()``.

    At the end of the block it waits for the ops that were called in it. Ops of other tasks are measured, too.

    Attributes:
        events: What happened in the block; the first million.
        more: Number of further events.
    """

    def __init__(self, device: Device, run: Callable[[Coroutine[Any, Any, None]], Any] | None) -> None:
        self.events: list[Event] = []
        self.more = 0
        self._device = device
        self._run = run
        self._costs = Costs()
        self._first = 0
        self._pump: Pump | None = None
        self._ends: list[Callable[[], None]] = []
        self._remove: Callable[[], Awaitable[None]] | None = None

    @property
    def ops(self) -> list[OpCost]:
        """Costs by op, the costliest first."""
        return self._costs.ops

    def table(self, rows: int = 10) -> str:
        """The costliest ops, as text; ``print(profile)`` prints it."""
        return self._costs.table(rows)

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write a trace file for https://ui.perfetto.dev.

        Raises:
            OSError: It cannot be written.
        """
        file = Perfetto(path, self._device.name)
        try:
            file.take(self.events)
        finally:
            file.close()

    def __repr__(self) -> str:
        ops = self._costs.ops
        if not ops:
            return f"<Profile of {self._device.name}: no ops>"
        calls, seconds = sum(cost.calls for cost in ops), sum(cost.seconds for cost in ops)
        first = f"the costliest is {ops[0].op}, {ops[0].share:.1%}; print it for the table"
        return f"<Profile of {self._device.name}: {calls:,} ops, {seconds * 1e3:.3f} ms; {first}>"

    def __str__(self) -> str:
        return self.table()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython: the table."""
        for number, line in enumerate(self.table().splitlines()):
            if number:
                printer.break_()
            printer.text(line)

    def _repr_html_(self) -> str:
        return f"{self._costs.picture()}<pre>{self.table()}</pre>"

    # -- the block -----------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        if self._pump is not None:
            raise RuntimeError("a profile is of one block; make another one with device.profile()")
        self._pump = Pump.open(CAPACITY)
        self._ends.append(self._pump.subscribe(self._take))
        try:
            self._remove = await self._device.trace(self._measured)
            self._first = self._device._port.mint()  # the numbers of ops of the block are larger
        except BaseException:  # a cancel, too
            self._finish()
            raise

    async def _end(self) -> None:
        try:
            if not self._device.stopped:
                await self._device.drain()
                await self._device._answers.trace(ANSWER)  # answered behind the records of all these ops
            if self._remove is not None:
                await self._remove()
        finally:
            self._finish()

    def _finish(self) -> None:
        assert self._pump is not None
        self._pump.close()
        for end in self._ends:
            end()

    def _take(self, events: list[Event]) -> None:
        room = MOST - len(self.events)
        self.events += map(self._of_block, events[:room])
        self.more += max(0, len(events) - room)
        for event in events:
            if event[2] == TRACED and event[3] == self._device.name:
                self._costs.add(event[3], self._of_block(event)[4])

    def _of_block(self, event: Event) -> Event:
        """The event without ops that were called before the block: they may end, or be told of, in it."""
        if event[2] != TRACED:
            return event
        return (*event[:4], [record for record in event[4] if record[0] > self._first])

    def _measured(self, record: TraceRecord) -> None:
        """Records come as events, in lists."""

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def __enter__(self) -> Self:
        if self._run is None:
            raise TypeError("use `async with device.profile()`; `with` is for devices of callboard.sync")
        self._run(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._run is not None
        self._run(self._end())
