"""``Resident``: the application's state of one resident actor, over all contexts of its device."""

import asyncio
import inspect
import itertools
import math
import time
from collections.abc import Iterable
from typing import Any

from callboard.actors import Props
from callboard.actors.errors import ActorStopped, AskTimeout
from callboard.core.errors import AccelError
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.refusals import marked
from callboard.device.client.line.status import ResidentState, ResidentStats
from callboard.device.client.residents.ahead import Expected
from callboard.device.client.residents.methods import Methods
from callboard.device.protocol.messages import StartActor
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.events.kinds import RESIDENT
from callboard.events.ring import EVENTS, now

__all__ = ["Resident", "oldest"]


def oldest(calls: Iterable[int], count: int) -> tuple[int, ...]:
    """The first ``count`` keys of a dictionary to which other threads add calls."""
    while True:
        try:
            return tuple(itertools.islice(calls, count))
        except RuntimeError:  # a thread has added one between the first step and the second: again
            continue


class Resident:
    """The application's state of one actor.

    Changed on the loop's thread, except :attr:`stopped`; read on any.

    Attributes:
        id, name: Id and name of the actor.
        cls: Class of the actor; None when a function creates it.
        methods: The methods that have been called.
        limit: Calls without an answer that it may have.
        overflow: The policy for one more.
        at_once: Calls that it may run at once; of them, methods that are not coroutines take turns.
        flying: The calls without an answer, by id, and whether they were dropped.
        completed, failed: Calls with an answer.
        expected: Memory that the result of its next call will need.
        restarts: The number of times it was restarted after a failure, over all contexts.
        stopped: The reason why it takes no more calls.
        named: True while its name is taken.
        waiting: Wait until it has ended.
        overdue: The time at which its process is killed, if it has not ended by then.
        was_ready: True if an instance of it has been set up.
        since: When its present phase began, in seconds of ``time.monotonic()``.
    """

    def __init__(self, message: StartActor, props: Props[Any], port: OpPort) -> None:
        factory = props._factory
        self.id = message.actor
        self.name = message.name
        self._label = props.label
        self.message = message
        self.cls = factory if isinstance(factory, type) else None
        self.methods = Methods(self.name, self.cls)
        self.limit: int = getattr(factory, "max_in_flight", ResidentActor.max_in_flight)
        self.overflow: str = getattr(factory, "overflow", ResidentActor.overflow)
        self.at_once: int = getattr(factory, "max_concurrency", 1) if _has_coroutines(self.cls) else 1
        self.flying: dict[int, bool] = {}
        self.completed = self.failed = 0
        self.expected = Expected()
        self.restarts = 0
        self.stopped: ActorStopped | None = None
        self.named = True
        self.waiting: list[asyncio.Future[None]] = []
        self.overdue: asyncio.TimerHandle | None = None
        self.was_ready = False
        self.since = time.monotonic()
        self._port = port
        self._phase = ResidentState.STARTING
        self._failure: Exception | None = None  # why it is being restarted
        self._watching: list[asyncio.Future[None]] = []

    # -- state ---------------------------------------------------------------------------------------------------------

    def in_turn(self) -> tuple[int, ...]:
        """The calls that its host may execute now, which are the oldest ones. Any thread, while others add calls."""
        return oldest(self.flying, self.at_once)

    @property
    def state(self) -> ResidentState:
        """The state last reported to the application."""
        if self.stopped is not None or self._port.stopped is not None:
            return ResidentState.STOPPED
        return self._phase

    @property
    def cause(self) -> Exception | None:
        """The error that stopped or restarts it; None if it runs, was asked to stop, or the context was lost."""
        if self.stopped is not None:
            cause = self.stopped.__cause__
            return cause if isinstance(cause, Exception) else None
        if self._port.stopped is not None:
            return self._port.why_stopped()
        return self._failure

    def stats(self, busy: float) -> ResidentStats:
        """Figures of the actor; ``busy`` has the seconds measured by the host."""
        cause = self.cause
        return ResidentStats(
            state=self.state,
            error=None if cause is None else f"{type(cause).__name__}: {cause}",
            actor=self._label,
            in_flight=len(self.flying),
            completed=self.completed,
            failed=self.failed,
            restarts=self.restarts,
            busy=busy,
        )

    def is_ready(self) -> None:
        """Note that its instance is set up."""
        self.was_ready = True
        self._enter(ResidentState.READY, None)

    def is_restarting(self, failure: Exception | None) -> None:
        """Note that an instance has failed and another is being made."""
        self._enter(ResidentState.RESTARTING, failure)

    def is_lost(self) -> None:
        """Note that its context is lost, and the instance with it; an actor that was never ready is still starting."""
        starting = self._phase is ResidentState.STARTING
        self._enter(ResidentState.STARTING if starting else ResidentState.RESTARTING, None)

    def _enter(self, phase: ResidentState, failure: Exception | None) -> None:
        self._phase, self._failure, self.since = phase, failure, time.monotonic()
        ring = EVENTS.ring
        if ring is not None:
            error = "" if failure is None else type(failure).__name__
            ring.append((next(ring.numbers), now(), RESIDENT, self._port.name, self.name, phase.value, error))
        self.changed()

    def changed(self) -> None:
        """Wake the waiters of :meth:`until_ready`, which check :attr:`state` again."""
        watching, self._watching = self._watching, []
        for future in watching:
            if not future.done():
                future.set_result(None)

    async def until_ready(self, timeout: float | None) -> None:
        """Wait until its instance is set up, at most ``timeout`` seconds.

        Raises:
            AskTimeout, ActorStopped, DeviceStopped
            ValueError: ``timeout`` is NaN, which the event loop cannot order among its other timers.
        """
        if timeout is not None and math.isnan(timeout):
            raise ValueError(f"timeout must be a number of seconds, or None, but is {timeout}")
        try:
            async with asyncio.timeout(timeout):
                while (state := self.state) is not ResidentState.READY:
                    if state is ResidentState.STOPPED:
                        raise self._why_stopped()
                    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._watching.append(future)
                    try:
                        await future
                    finally:
                        if future in self._watching:  # the wait was cancelled
                            self._watching.remove(future)
        except TimeoutError:
            text = f"{self._port.name}: resident actor {self.name} is {self.state}, not ready within {timeout:g} s"
            raise marked(AskTimeout(text), self._port.name, self._port.generation) from None

    def _why_stopped(self) -> AccelError:
        port = self._port
        if self.stopped is None:
            return port.why_stopped()
        error = ActorStopped(str(self.stopped))  # a new one for each waiter: one that is raised refers to its frames
        error.__cause__ = self.stopped.__cause__
        return marked(error, port.name, port.generation)


def _has_coroutines(cls: type | None) -> bool:
    parts = [] if cls is None else [part for base in cls.__mro__ for part in vars(base).values()]
    return any(inspect.iscoroutinefunction(part) for part in parts)
