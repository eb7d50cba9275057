"""``Standby``: the hosts that wait to take over."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from callboard.core.backend.machine import cores
from callboard.device.protocol.messages import ActorEvent, FromHost, Open, Ready
from callboard.device.supervision.hosts.base import Host
from callboard.device.supervision.hosts.starting import SETTLE, STARTING, starts_at_once

__all__ = ["Spare", "Standby"]

DELAYS = (0.0, 0.5, 2.0, 10.0, 30.0)
"""Seconds before a standby that keeps failing is started again. Its failures affect no op, so the attempts never
end."""


class Spare:
    """One standby host.

    Args:
        host: The host.
        hot: It has been told to open a context.
        lesser: It has not, although a hot one is wanted, because those before it have died.

    Attributes:
        is_open: It has imported everything, and has its context if it is hot.
    """

    def __init__(self, host: Host, hot: bool, lesser: bool = False) -> None:
        self.host = host
        self.hot = hot
        self.lesser = lesser
        self.is_open = False
        self._expected: set[int] = set()  # actors that prepare in it
        self._prepared: set[int] = set()
        self._late: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """Nothing is left to be done in advance."""
        return self.is_open and self._expected <= self._prepared

    def expect(self, actors: Iterable[int], patience: float, late: Callable[["Spare"], None]) -> None:
        """Actors prepare in it from now on; after ``patience`` seconds ``late`` is called, unless it is ready."""
        self._expected.update(actors)
        if not self._expected <= self._prepared and self._late is None:
            self._late = asyncio.get_running_loop().call_later(patience, late, self)

    def hear(self, message: FromHost) -> None:
        """Note what it has said about itself."""
        if isinstance(message, Ready):
            self.is_open = True
        elif isinstance(message, ActorEvent) and message.event == "prepared":
            self._prepared.add(message.actor)
        elif isinstance(message, ActorEvent) and message.event == "stopped":
            self._expected.discard(message.actor)
            self._prepared.discard(message.actor)
        if self._expected <= self._prepared:
            self.release()

    def give_up_waiting(self) -> None:
        """Let it count as ready although some actors have not prepared."""
        self._prepared |= self._expected
        self.release()

    def release(self) -> None:
        """End the timer."""
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Standby:
    """Keeps the spare hosts of a device: ``ensure`` starts them, ``take`` hands one over.

    Args:
        start: Starts a host.
        configured: Returns the message that opens a standby; None if none is wanted.
        log: Logger for the standbys' failures, which fail no op and are not counted in the restart budget.
        wanted: Returns how many are to be kept.
        opens: Returns whether no context is ready, and one is being opened.
        sets_up: Returns whether an actor is being set up in the context.
        actors: Returns the ids of the actors that a new standby prepares.
        patience: Seconds in which actors must have prepared in a standby; then it counts as ready without.
    """

    def __init__(
        self,
        start: Callable[[str], Awaitable[Host]],
        configured: Callable[[], Open | None],
        log: "logging.Logger | logging.LoggerAdapter[logging.Logger]",
        wanted: Callable[[], int] = lambda: 1,
        opens: Callable[[], bool] = lambda: False,
        sets_up: Callable[[], bool] = lambda: False,
        actors: Callable[[], Iterable[int]] = tuple,
        patience: float = 300.0,
    ) -> None:
        self._start = start
        self._configured = configured
        self._log = log
        self._wanted = wanted
        self._opens = opens
        self._sets_up = sets_up
        self._actors = actors
        self._patience = patience
        self._tasks: set[asyncio.Task[None]] = set()  # starts, which may have to wait for their delay
        self._spares: list[Spare] = []  # the oldest first
        self._failures = 0  # in a row
        self._stopped = False
        self._waiting: list[asyncio.Future[None]] = []
        self._again: asyncio.TimerHandle | None = None

    @property
    def hosts(self) -> list[Host]:
        """All of them, ready or still starting."""
        return [spare.host for spare in self._spares]

    @property
    def host(self) -> Host | None:
        """The one that would take over now."""
        best = self._best()
        return None if best is None else best.host

    @property
    def ready(self) -> int:
        """The number of those with nothing left to do before they take over."""
        return sum(spare.is_ready for spare in self._spares)

    @property
    def state(self) -> str:
        """``"none"``, ``"starting"``, ``"ready"`` (at least one) or ``"failed"`` (another is started)."""
        if self._spares:
            return "ready" if self.ready else "starting"
        if self._tasks:
            return "failed" if self._failures else "starting"
        return "none"

    def ensure(self) -> None:
        """Start spare hosts, as many as are missing and may start now; others when they may."""
        opens = self._opens()
        STARTING.note(self, not self._stopped and (opens or self._sets_up()))
        if self._stopped or self._configured() is None:
            return
        missing = self._wanted() - len(self._spares) - len(self._tasks)
        starting = len(self._tasks) + sum(not spare.is_ready for spare in self._spares)
        room = starts_at_once(cores(), not opens and STARTING.is_calm)
        if missing > 0 and not room and self._again is None:
            self._again = asyncio.get_running_loop().call_later(SETTLE, self._look_again)
        for _ in range(min(missing, room - starting)):
            task = asyncio.get_running_loop().create_task(self._run(), name="callboard-standby")
            self._tasks.add(task)

    def starts(self) -> None:
        """Note that the device opens a context or sets an actor up: where cores are few, all standbys wait."""
        STARTING.note(self, True)

    def actor_changed(self) -> None:
        """An actor has been set up, or has ended."""
        if not self._opens():
            self.ensure()

    def has(self, host: Host) -> bool:
        """Whether a host is one of them."""
        return any(spare.host is host for spare in self._spares)

    def hear(self, host: Host, message: FromHost) -> None:
        """Note what one of them has said about itself."""
        spare = self._spare(host)
        was_ready = spare.is_ready
        spare.hear(message)
        if spare.is_ready and not was_ready:
            self._is_ready(spare)

    def expect(self, actor: int) -> None:
        """An actor prepares in all of them."""
        for spare in self._spares:
            spare.expect([actor], self._patience, self._late)
        self.starts()

    async def until_ready(self) -> bool:
        """Wait until all that are wanted could take over; False if standbys are no longer started."""
        while self.ready < self._wanted() and not self._stopped:
            await self.changed()
        return not self._stopped

    async def changed(self) -> None:
        """Wait until a spare host has started or become ready, or no more are started."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def failed(self, host: Host, why: str) -> None:
        """A standby has died: start another, with a growing delay."""
        spare = self._spare(host)
        self._spares.remove(spare)
        spare.release()
        if not host.reaped.done():
            host.kill("standby failed")
        self._count_failure(why)

    def drop(self, why: str) -> None:
        """End the standbys, if there are any, and start others."""
        for host in self.hosts:
            self.failed(host, why)

    def take(self) -> Spare | None:
        """The standby that can take over soonest, which is not one of them any more; None if there is none."""
        best = self._best()
        if best is not None:
            self._spares.remove(best)
            best.release()
            self._failures = 0
        return best

    def stop(self) -> list[Spare]:
        """Stop starting standbys; returns the spare hosts, for the caller to end."""
        self._stopped = True
        self.ensure()
        if self._again is not None:
            self._again.cancel()
        for task in self._tasks:
            task.cancel()
        for spare in self._spares:
            spare.release()
        self._tell()
        return self._spares

    async def ended(self) -> None:
        """Wait until no start is under way any more, after :meth:`stop`."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _best(self) -> Spare | None:
        return max(self._spares, key=lambda spare: (spare.is_ready, spare.is_open), default=None)

    def _spare(self, host: Host) -> Spare:
        return next(spare for spare in self._spares if spare.host is host)

    def _is_ready(self, spare: Spare) -> None:
        if not spare.lesser:
            self._failures = 0
        self._tell()
        self.ensure()

    def _look_again(self) -> None:
        self._again = None
        self.ensure()

    def _late(self, spare: Spare) -> None:
        self._log.warning("standby host %d is used although actors in it have not prepared yet", spare.host.pid)
        spare.give_up_waiting()
        if spare.is_ready:
            self._is_ready(spare)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _count_failure(self, why: str) -> None:
        if not self._stopped:
            self._failures += 1
            self._log.warning("a standby host has died (%s); another is started", why)
            self.ensure()

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            delay = DELAYS[min(self._failures, len(DELAYS) - 1)]
            if delay:
                await asyncio.sleep(delay)
            message = self._configured()
            if message is None:
                return
            lesser = message.hot and self._failures > 1  # without a context, and without warm_up, one may live
            if lesser:
                message = msgspec.structs.replace(message, hot=False)
            host = await self._start("standby")
            spare = Spare(host, message.hot, lesser)
            spare.expect(self._actors(), self._patience, self._late)
            self._spares.append(spare)
        except Exception as e:  # it fails no op: another is tried later
            self._tasks.discard(task)
            self._count_failure(str(e))
            return
        finally:
            self._tasks.discard(task)
        host.post(message)
        self._tell()
