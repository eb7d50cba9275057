"""``Quarantine``: runs calls by their keys, again after a loss, and refuses the one that causes the losses."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from callboard.actors.clock import Clock, LoopClock
from callboard.core.errors import ContextLost, ContextPoisoned, GpuRefStale
from callboard.device.client.line.entries import GuardedKey, GuardedRun
from callboard.device.client.line.port import request_key
from callboard.patterns.contract.checks import check_callable
from callboard.patterns.contract.hooks import awaitable
from callboard.patterns.quarantine.blame import Blame, Loss, Standing
from callboard.patterns.quarantine.errors import Quarantined
from callboard.patterns.quarantine.gate import Gate, Ticket
from callboard.patterns.quarantine.keys import Identity
from callboard.patterns.quarantine.truce import Truce
from callboard.patterns.requests.errors import DeadlineExceeded, QueueFull

__all__ = ["Quarantine", "QuarantineStats", "is_loss"]

T = TypeVar("T")
R = TypeVar("R")

USUAL_RUNS, MOST_RUNS = 3, 12
"""Runs of a request at most: with the others, as a suspect, alone; and again alone if work of others was lost, too."""

_log = logging.getLogger(__name__)


def is_loss(error: BaseException) -> bool:
    """True if the error is that of a lost context, rather than of a freed ref or a stopped device."""
    return isinstance(error, ContextLost) and not (isinstance(error, GpuRefStale) and error.reason != "context rebuilt")


@dataclass(frozen=True)
class QuarantineStats:
    """Figures of a quarantine.

    ``submitted`` is the sum of all ends and of the running and waiting requests, less ``abandoned``.

    Attributes:
        submitted: Requests that were given to it.
        completed: Ended in their value.
        failed: Ended in another error than ``Quarantined``.
        cancelled: Cancelled by their callers.
        quarantined: Ended in ``Quarantined``: those that lost a context alone, and those that were refused.
        running, waiting: Run now, and wait for their turn now.
        abandoned: Running requests whose callers have left.
        retries: Runs after the first, of all requests.
        suspects: Keys that were in flight at a loss and have not succeeded since.
        held: Keys that are refused now, and for how many seconds yet.
    """

    submitted: int
    completed: int
    failed: int
    cancelled: int
    quarantined: int
    running: int
    waiting: int
    abandoned: int
    retries: int
    suspects: int
    held: dict[str, float]


class Quarantine(Generic[T]):
    """Runs requests on a device or an actor, and finds the one that kills its context.

    Requests run together. One that was in flight at a loss (:class:`ContextPoisoned`, or a ref that became stale by it)
    is run again, with no other such request beside it. One that was in flight at two losses runs alone. If the context
    is lost then, too, the request is the cause: it ends in :class:`Quarantined`, and so does each request of its key
    for ``hold`` seconds, without a call. After that, it may try again, alone. A success clears its key.

    So a request that kills each time costs three contexts at most, then one per ``hold``. Every other request is run
    twice at most, as long as one key kills. Runs are repeated: guard only calls that may run twice.

    It belongs to one event loop. It observes only calls that go through it: no other code should use the same context.

    Args:
        target: Argument of the calls: a device, a resident actor, or any object that depends on a context.
        spare: Another one, with a context of its own: requests that have to run alone run there, and hold up none.
        hold: Seconds for which a key is refused.
        wait: Seconds that a request waits for its turn at most.
        max_waiting: New requests that wait for their turn at most. Requests that are run again do not count.
        max_keys: Keys on record at most.
        item_key: Key of an item of a server that this is the ``quarantine`` of: equal for items that would kill alike.
            Otherwise it is that of the caller's :func:`callboard.request_key`, or a hash of the item's contents.
        clock: Tells the time; for tests.

    Raises:
        ValueError: A number is not positive, or not finite.
    """

    def __init__(
        self,
        target: T,
        *,
        spare: T | None = None,
        hold: float = 600.0,
        wait: float = 60.0,
        max_waiting: int = 1024,
        max_keys: int = 4096,
        item_key: Callable[[Any], str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not 0 < wait < math.inf:
            raise ValueError(f"wait must be positive seconds, but is {wait}")
        if max_waiting < 1:
            raise ValueError(f"max_waiting must be at least 1, but is {max_waiting}")
        check_callable(item_key=item_key)
        self.item_key = item_key
        self._target = target
        self._spare = spare
        self._wait = wait
        self._max_waiting = max_waiting
        self._clock = clock or LoopClock()
        self._blame = Blame(hold, max_keys)
        self._gate = Gate(spare=spare is not None)
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._counts: dict[str, int] = dict.fromkeys(
            ("submitted", "completed", "failed", "cancelled", "quarantined", "retries"), 0
        )

    @property
    def spare(self) -> T | None:
        """The target of requests that must run alone; None: that of all requests."""
        return self._spare

    async def run(self, key: str, call: Callable[[T], Awaitable[R]]) -> R:
        """Call ``call(target)`` and wait for its value; again after a loss.

        Device calls inside carry the key, as inside :func:`callboard.request_key`. Cancelling the waiting task cancels
        the call, except that of a suspect, which continues in a task of its own: its value is dropped, and its turn
        lasts until it ends.

        Args:
            key: Key of the request: equal for requests that would cause the same loss, such as a hash of the input or
                its id.
            call: Function of the target, or of the spare; it has to make its own refs. Its result is awaited.

        Raises:
            Quarantined: The request has lost a context alone, now or less than ``hold`` seconds ago.
            DeadlineExceeded: Its turn has not come within ``wait`` seconds.
            QueueFull: It would have to wait, and ``max_waiting`` requests do.
            TypeError: ``key`` is not a str.
            Exception: Raised by ``call``.
        """
        given: object = key
        if not isinstance(given, str):
            raise TypeError(f"run: key is {given!r}; it must be a str, as it appears in errors and in the log")
        return await self.run_as(Identity(key), call)

    async def run_as(
        self, who: Identity, call: Callable[[T], Awaitable[R]], *, again: bool = False, outlives: bool = True
    ) -> R:
        """As :meth:`run`, with a key that is computed only while there are records, and at a loss.

        Args:
            who: The key.
            call: See :meth:`run`.
            again: The request has run before, after :meth:`begin`.
            outlives: The call of a suspect continues when its caller leaves.
        """
        self._counts["submitted"] += not again
        end = "failed"
        try:
            value = await self._runs(who, call, again, outlives)
            end = "completed"
            return value
        except asyncio.CancelledError:
            end = "cancelled"
            raise
        except Quarantined:
            end = "quarantined"
            raise
        finally:
            self._counts[end] += 1

    # -- sequences, whose steps are chosen elsewhere -------------------------------------------------------------------

    def refuse_held(self, who: Identity) -> None:
        """Refuse a request whose key is held.

        Raises:
            Quarantined: It is.
        """
        if self._is_held(who):
            self._count_refused()
            raise self._refusal(who.key)

    def _count_refused(self) -> None:
        self._counts["submitted"] += 1
        self._counts["quarantined"] += 1

    def blame(self, who: Identity, error: ContextLost, *, alone: bool) -> Quarantined | None:
        """A request was in flight at a loss; the error of one that was alone, and is held from now on."""
        try:
            self._note(who.key, error, alone=alone)
        except Quarantined as e:
            self._count_refused()
            return e
        return None

    # -- requests that are clear, without a task of their own ---------------------------------------------------------

    @property
    def has_records(self) -> bool:
        """True if a request was in flight at a loss and has not succeeded since."""
        return len(self._blame) > 0

    def begin(self, who: Identity | None) -> bool:
        """Let a request run that nothing is held against, beside others like it; False: it must go through ``run_as``.

        Its end is told by :meth:`end` or :meth:`lost`.

        Args:
            who: The key; None where there are no records.
        """
        if not self._gate.quiet or Truce.others() is not None or (who is not None and who.key in self._blame):
            return False
        self._gate.begin()
        self._counts["submitted"] += 1
        return True

    def end(self, how: str) -> None:
        """A request that has begun ended: ``"completed"``, ``"failed"`` or ``"cancelled"``."""
        self._counts[how] += 1
        if admitted := self._gate.end():
            self._tell(admitted)

    def pause(self) -> None:
        """A request that has begun does nothing for now: others need not wait for it."""
        self._tell(self._gate.end())

    def resume(self) -> None:
        """It goes on."""
        self._gate.begin()

    def lost(self, who: Identity, error: ContextLost, *, again: bool) -> None:
        """A request that has begun failed by a loss; ``again``: ``run_as`` is called for it next."""
        self._note(who.key, error, alone=False)
        self._counts["failed"] += not again
        self._tell(self._gate.end())

    def pardon(self, key: str) -> bool:
        """Clear the record of a key; returns whether there was one."""
        return self._blame.forget(key)

    def stats(self) -> QuarantineStats:
        """Figures until now."""
        return QuarantineStats(
            **self._counts,
            running=self._gate.running,
            waiting=self._gate.waiting,
            abandoned=len(self._abandoned),
            suspects=len(self._blame),
            held=self._blame.held(self._clock.time()),
        )

    # -- runs ----------------------------------------------------------------------------------------------------------

    async def _runs(self, who: Identity, call: Callable[[T], Awaitable[R]], again: bool, outlives: bool) -> R:
        doubtful = False
        for number in range(1 + again, MOST_RUNS + 1):
            self._counts["retries"] += number > 1
            ticket = await self._turn(who, again=number > 1)
            run = self._run(who, call, ticket, Truce() if doubtful else nullcontext())
            try:
                return await (self._outliving(run) if outlives and ticket.standing is not Standing.CLEAR else run)
            except ContextLost as e:
                if not is_loss(e):
                    raise  # a freed ref or a stopped device: a mistake, or the end
                if number == (MOST_RUNS if isinstance(e, ContextPoisoned) else USUAL_RUNS):
                    raise
                doubtful = ticket.standing is Standing.ALONE  # work of others was in flight, too
        raise AssertionError("unreachable")

    async def _run(
        self,
        who: Identity,
        call: Callable[[T], Awaitable[R]],
        ticket: Ticket,
        silence: AbstractAsyncContextManager[object],
    ) -> R:
        alone = ticket.standing is Standing.ALONE
        target = self._spare if alone and self._spare is not None else self._target
        token = request_key.set(GuardedRun(who.label) if who.lazy else GuardedKey(who.key))
        try:
            async with silence:
                value: R = await awaitable("call", call(target))
            if self._blame:
                self._blame.forget(who.key)
            return value
        except ContextLost as e:
            self._note(who.key, e, alone=alone)
            raise
        finally:
            request_key.reset(token)
            self._leave(ticket)

    async def _outliving(self, run: Coroutine[Any, Any, R]) -> R:
        """Wait for a run that continues when its caller leaves.

        The operation of a caller that has left stays in flight. If another suspect had its turn then, it would be
        blamed for the effects of this one.
        """
        task = asyncio.create_task(run)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._abandoned.add(task)
                task.add_done_callback(self._ended)
            raise

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # a conviction is in the log

    def _note(self, key: str, error: ContextLost, *, alone: bool) -> None:
        """Blame those that were in flight; raises for the one that was alone."""
        if not is_loss(error) or (isinstance(error, ContextPoisoned) and error.unsent):
            return
        loss = Loss(error.device, error.generation)
        new = self._blame.lost(key, loss)
        if not isinstance(error, ContextPoisoned):
            return
        keys = {suspect.request_key for suspect in error.suspects}
        for other in keys - {None, key}:
            if not isinstance(other, GuardedRun):  # whose requests are noted one by one
                self._blame.lost(str(other), loss)
        if alone and new and len(keys) <= 1 and not error.starting:  # else the cause may be work of others
            self._blame.convict(key, self._clock.time())
            refusal = self._refusal(key)
            _log.error("%s", refusal)
            raise refusal from error

    def _refusal(self, key: str) -> Quarantined:
        """The error of a request that is held."""
        until = self._blame.until(key)
        left = max(0.0, until - self._clock.time())
        losses = self._blame.losses(key)
        return Quarantined(
            f"request {key!r} was in flight at {len(losses)} losses of a context, and at the last it ran alone; it is "
            f"refused for {left:.0f} s. Look at its input; pardon({key!r}) lets it try again",
            key,
            tuple((loss.device, loss.generation) for loss in losses),
            until,
            left,
        )

    def _is_held(self, who: Identity) -> bool:
        return len(self._blame) > 0 and self._blame.until(who.key) > self._clock.time()

    def _standing(self, who: Identity) -> Standing:
        return self._blame.standing(who.key) if self._blame else Standing.CLEAR

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def _turn(self, who: Identity, *, again: bool) -> Ticket:
        """Wait until the request may run, given its standing at that time."""
        since = self._clock.time()
        while True:
            while (truce := Truce.others()) is not None and self._clock.time() - since < self._wait:
                await truce.over()
            if self._is_held(who):
                raise self._refusal(who.key)
            ticket = Ticket(self._standing(who))
            self._tell(self._gate.enter(ticket))
            if ticket.running:
                return ticket
            try:
                if not again and self._gate.waiting > self._max_waiting:
                    raise QueueFull(
                        f"{self._max_waiting} requests wait for their turn after a loss of the context (max_waiting)",
                        limit=self._max_waiting,
                        depth=self._max_waiting,
                    )
                await self._told(who.label, ticket, since)
            except BaseException:  # also a cancellation: nothing of the request is left behind
                self._leave(ticket)
                raise
            if self._standing(who) is ticket.standing and not self._is_held(who):
                return ticket
            self._leave(ticket)  # another request of this key has changed it meanwhile

    async def _told(self, label: str, ticket: Ticket, since: float) -> None:
        turn = ticket.turn = asyncio.get_running_loop().create_future()

        def expire() -> None:
            if not turn.done():
                waited = self._clock.time() - since
                text = f"request {label!r} has waited {waited:.3g} s for its turn ({ticket.standing.name.lower()})"
                turn.set_exception(DeadlineExceeded(text, "queue", waited))

        timer = self._clock.call_later(max(0.0, since + self._wait - self._clock.time()), expire)
        try:
            await turn
        finally:
            timer.cancel()

    def _leave(self, ticket: Ticket) -> None:
        self._tell(self._gate.leave(ticket))

    def _tell(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if ticket.turn is not None and not ticket.turn.done():
                ticket.turn.set_result(None)
