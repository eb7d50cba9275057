"""``Telemetry``: what one application shows of itself: states that are sampled, and events that are subscribed to."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from callboard.actors import ActorSystem
from callboard.telemetry.families import Group, Source
from callboard.telemetry.local.server import LocalSocket
from callboard.telemetry.logs import complain
from callboard.telemetry.observed import installed
from callboard.telemetry.pump import Pump, Take
from callboard.telemetry.sampling.actors import Actors
from callboard.telemetry.sampling.blueprints import blueprint_figures
from callboard.telemetry.sampling.counting import Counts
from callboard.telemetry.sampling.devices import Devices
from callboard.telemetry.sampling.metrics import groups_of
from callboard.telemetry.sampling.others import Others
from callboard.telemetry.sampling.processes import process_figures
from callboard.telemetry.sampling.snapshot import RingFigures, Snapshot

__all__ = ["Telemetry"]

log = logging.getLogger("callboard.telemetry")

FRESH = 0.5
"""Seconds for which :meth:`Telemetry.refresh_soon` uses what the hosts said again."""
SOON = 0.2
"""Seconds that it waits for them; and without such a bound if they have said nothing for :data:`OLD`."""
OLD = 2.0


class Telemetry:
    """The view of one system; made by :func:`callboard.observe`.

    All of it is read on the system's loop, except that subscribers run on a thread of their own.

    Args:
        system: The system.
        node: Name of this application among others.
        capacity: The most events that wait for exporters; older ones are dropped and counted.

    Attributes:
        loop: The system's loop.
        label: Name of the system among those that are observed in this process: further ones of a name are numbered.
    """

    def __init__(self, system: ActorSystem, node: str, capacity: int) -> None:
        self.system = system
        self.node = node
        self.loop = asyncio.get_running_loop()
        self.label: str = _free(system.name, {each.label for each in installed()})
        self.counts = Counts()
        self._actors = Actors(system, self.counts, self.label)
        self._others = Others(self.label)
        self.devices = Devices(system, self.counts)
        self._sources: tuple[Source, ...] = ()
        self._told: list[Source] = []  # whose failure is logged
        self._closers: list[Callable[[], object]] = []
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed = -OLD
        self.pump = Pump.open(capacity)
        self._ends = [self.pump.subscribe(self.counts.take, ops=False)]

    def start(self) -> None:
        """Begin to record; on the system's loop."""
        LocalSocket(self)
        self.devices.default()
        if self.devices.open():
            self.run(self.devices.measure())

    @property
    def closed(self) -> bool:
        """True if nothing is recorded any more."""
        return self._closed

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done soon, on the running loop."""
        task = asyncio.get_running_loop().create_task(work, name="callboard-telemetry")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def measure_everything(self, more: int = 1) -> None:
        """Have all ops measured, rather than one in 127, until as many calls with -1 have been made."""
        self.devices.everything(more)
        self.run(self.devices.measure())

    # -- states --------------------------------------------------------------------------------------------------------

    async def refresh(self, timeout: float = 1.0) -> None:
        """Ask the context hosts and the added sources for their figures, all at once.

        One that does not answer within ``timeout`` seconds keeps those that it gave last.
        """
        asked = [self.devices.refresh(timeout), *(self._bounded(source, timeout) for source in self._sources)]
        await asyncio.gather(*asked)

    async def refresh_soon(self) -> None:
        """The same for views that ask often: hosts are asked twice a second.

        A host that does not answer, as during a loss, does not make a view stand still.
        """
        age = time.monotonic() - self._refreshed
        begun = self._refreshing is None and age >= FRESH
        if begun:
            self._refreshing = asyncio.ensure_future(self.refresh())
            self._refreshing.add_done_callback(self._done_refreshing)
        if self._refreshing is not None and (begun or age >= OLD):
            await asyncio.wait([self._refreshing], timeout=None if age >= OLD else SOON)

    def _done_refreshing(self, done: "asyncio.Task[None]") -> None:
        self._refreshing, self._refreshed = None, time.monotonic()
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("figures could not be refreshed", exc_info=error)

    def sample(self, recent: float = 0.0) -> Snapshot:
        """The state now; figures of hosts are those of the last :meth:`refresh`. Never waits.

        Args:
            recent: Seconds that the figures of actors may be old: for views that ask often.
        """
        self.pump.flush()
        ring = self.pump.ring
        devices = self.devices.figures()
        return Snapshot(
            at=time.time(),
            node=self.node,
            system=self.label,
            pid=os.getpid(),
            actors=self._actors.figures(recent),
            devices=devices,
            blueprints=blueprint_figures(),
            processes=process_figures(self.devices.processes()),
            ring=RingFigures(ring.maxlen or 0, len(ring), ring.drained, ring.dropped),
            dead_letters=self.system.dead_letters.counts,
            extra={source.name: self._of(source, source.figures) for source in self._sources},
        )

    def collect(self) -> list[Group]:
        """All metrics now, from one sample. Never waits."""
        groups = groups_of(self.sample(), self.counts, self._others)
        for source in self._sources:
            groups.extend(self._of(source, partial(_listed, source)) or ())
        return groups

    def _of(self, source: Source, read: Callable[[], Any]) -> Any:
        """What a source says; None where it fails, which is logged once: it does not cost the others theirs."""
        try:
            return read()
        except Exception as e:  # of a source of the user's
            self._failed(source, e)
            return None

    async def _bounded(self, source: Source, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await source.refresh()
        except TimeoutError:
            pass
        except Exception as e:  # likewise
            self._failed(source, e)

    def _failed(self, source: Source, error: Exception) -> None:
        if source not in self._told:
            log.error("the figures of %s are missing", source.name, exc_info=error)
            self._told.append(source)

    def add(self, source: Source) -> Callable[[], None]:
        """Show a further source; the result removes it.

        Raises:
            ValueError: Another source has its name.
        """
        if any(each.name == source.name for each in self._sources):
            raise ValueError(f"there is a source {source.name!r} already; remove it first, or choose another name")
        self._sources = (*self._sources, source)

        def remove() -> None:
            self._sources = tuple(each for each in self._sources if each is not source)

        return remove

    # -- events --------------------------------------------------------------------------------------------------------

    def subscribe(self, take: Take) -> Callable[[], None]:
        """Call ``take`` with each list of events, in order, on the thread that drains the ring; the result ends that.

        One that is slow makes the ring drop events, which is counted; what writes them does not wait.
        """
        end = self.pump.subscribe(take)
        self._ends.append(end)
        return end

    def flush(self) -> None:
        """Pass on everything that was written before, on this thread."""
        self.pump.flush()

    # -- end -----------------------------------------------------------------------------------------------------------

    def on_close(self, close: Callable[[], object]) -> None:
        """Call ``close()`` at the end, the last one first; by then it has got all events."""
        self._closers.append(close)

    async def close(self) -> None:
        """Record no more; exporters finish with what was recorded."""
        await self.devices.close()
        self.end()

    def end(self) -> None:
        """The same, once the devices are closed; called when the system has ended."""
        if self._closed:
            return
        self._closed = True
        self.pump.close()
        for end in self._ends:
            end()
        for close in reversed(self._closers):
            try:
                close()
            except OSError as e:  # names its file
                complain(f"an exporter could not be completed: {e}")
            except Exception as e:  # of an exporter: the others are still due
                complain(f"an exporter could not be closed: {e!r}", exc_info=True)


def _listed(source: Source) -> list[Group]:
    return list(source.collect())


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} #{number}"
    return free
