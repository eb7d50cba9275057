"""``Run``: one run of a user's function for requests, whose callers may all leave before it ends; ``RunLimit``."""

import asyncio
import inspect
import math
import time
import weakref
from collections.abc import Awaitable
from typing import Any, TypeVar

from callboard.actors.clock import Clock, LoopClock
from callboard.core.errors import BudgetSpent
from callboard.device.client.residents.reply import CallReply
from callboard.patterns.contract.checks import check_number
from callboard.patterns.requests.entries import Entry, State

__all__ = ["ANSWER", "DOUBT", "DOUBT_AFTER", "GRACE", "Run", "RunLimit"]

V = TypeVar("V")

DOUBT, DOUBT_AFTER = 4.0, 10.0
"""A run may not return if it has taken this many times as long as any before, and this many seconds, and one of its
requests has left."""
GRACE = 1.0
"""Seconds that a method of an actor has to return once its run has met its limit; then its process is replaced."""
REPLACING = 5.0
"""Further seconds in which that process must have ended."""
ANSWER = 0.5
"""Seconds in which a host says for how long a call has run; later, something holds its interpreter."""


class Run:
    """Cancels the calls of resident actors that a function has made, when all requests that need its result have ended.

    A call that runs continues, and its answer, or the loss of its context, still ends it.

    Args:
        entries: The requests.

    Attributes:
        entries: As given.
        began: When it began, in monotonic seconds.
        since: When it began, or its calls did that waited, in seconds of the limit's clock.
    """

    __slots__ = ("_abandoned", "_doubt", "_replies", "began", "entries", "since")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.began = self.since = time.monotonic()
        self._replies: list[weakref.ref[CallReply[Any]]] = []
        self._abandoned = False
        self._doubt: asyncio.TimerHandle | None = None

    def add(self, reply: CallReply[Any]) -> None:
        """The function has called an actor."""
        if self._abandoned:
            reply.cancel()
            return
        if len(self._replies) > 64:
            self._replies = [weakref.ref(each) for each in self._pending()]
        self._replies.append(weakref.ref(reply))

    def begins(self, when: float) -> None:
        """It began, or a call of it that waited, no earlier than ``when``."""
        self.since = max(self.since, when)

    def left(self, longest: float) -> None:
        """One of its requests has ended before it.

        Args:
            longest: Seconds of the longest run before; 0: there was none.
        """
        if all(each.state is State.ENDED for each in self.entries):
            self._abandon()
        elif self._doubt is None and longest:
            later = self.began + max(DOUBT_AFTER, DOUBT * longest) - time.monotonic()
            self._doubt = asyncio.get_running_loop().call_later(max(0.0, later), self._cancel)

    def waits(self) -> bool:
        """True if it has made calls that have not ended, and none of them has begun."""
        pending = self._pending()
        return bool(pending) and all(each.waits for each in pending)

    async def ran(self, timeout: float) -> float | None:
        """Seconds since the first of its calls that have not ended began; 0: they all wait.

        Args:
            timeout: Seconds to wait for the hosts' answers.

        Returns:
            None if a host does not answer. Infinity if it waits for no call, or a host cannot tell.
        """
        pending = self._pending()
        if not pending:
            return math.inf
        found = await asyncio.gather(*(each.ran(timeout) for each in pending if not each.waits))
        told = [seconds for seconds in found if seconds is not None]
        return max(told, default=0.0) if len(told) == len(found) else None

    def alone(self) -> bool:
        """True if the hosts of its calls may run nothing else: if they do not answer, it is because of this run."""
        pending = self._pending()
        calls = [each.id for each in pending]
        return all(each.alone(calls) for each in pending)

    def overrun(self, grace: float, why: str) -> bool:
        """It has taken too long: cancel its calls, and the later ones; returns whether one has not ended.

        Args:
            grace: Seconds after which the processes of actors are replaced whose methods still run.
            why: The reason, for the errors of all who lose them.
        """
        pending = self._pending()
        self._abandoned = True
        for each in pending:
            each.overrun(grace, why)
        return bool(pending)

    def _pending(self) -> list[CallReply[Any]]:
        return [kept for each in self._replies if (kept := each()) is not None and not kept.done()]

    def _abandon(self) -> None:
        self._abandoned = True
        self._cancel()

    def _cancel(self) -> None:
        """Cancel the calls so far; later ones run, as long as a request waits for the result."""
        for each in self._replies:
            reply = each()
            if reply is not None:
                reply.cancel()

    def end(self) -> float:
        """It has ended; returns its seconds."""
        if self._doubt is not None:
            self._doubt.cancel()
        return time.monotonic() - self.began


class RunLimit:
    """Ends runs that take too long, and frees what they hold.

    Calls of resident actors that a run has made are cancelled. If one does not return within :data:`GRACE` seconds, and
    its actor lives in a process, this process is replaced.

    The time in which all calls of a run wait behind others, for a context or for ``setup``, begins the limit anew: when
    it expires, the hosts are asked when they began the calls. A host that does not answer within :data:`ANSWER` seconds
    is held by what it runs (user code that keeps the GIL). That is the run, if the host may run nothing else; otherwise
    it may be another, and the limit begins anew when the host answers. A host that never answers is found by its
    missing heartbeats (``hang_after``).

    Args:
        seconds: Seconds of a run at most.
        model: Name of the model, for errors.
        clock: Tells when the limit expires.

    Raises:
        TypeError: ``seconds`` is not a number.
        ValueError: ``seconds`` is not positive and finite.
    """

    def __init__(self, seconds: float, model: str, clock: Clock | None = None) -> None:
        self.seconds = check_number(f"model {model!r}: run_limit", seconds, "positive seconds", finite=True)
        self.model = model
        self._clock = LoopClock() if clock is None else clock

    def check(self, function: Any, *, on_thread: bool) -> None:
        """Raise unless calls of a function can be ended.

        Raises:
            TypeError: They cannot; the text names the cure.
        """
        if on_thread:
            raise TypeError(
                f"model {self.model!r}: run_limit is {self.seconds:g}, but {function!r} runs on a thread, which cannot "
                "be ended: make it a method of a resident actor, or async; or leave run_limit out"
            )
        if inspect.isasyncgenfunction(inspect.unwrap(function)):
            raise TypeError(
                f"model {self.model!r}: run_limit is {self.seconds:g}, but {function!r} answers in parts, as slowly as "
                "they are read: leave run_limit out, and set request_timeout"
            )

    async def over(self, run: Run, value: Awaitable[V]) -> V:
        """The value of a run.

        Raises:
            BudgetSpent: The run has met the limit.
            Exception: Raised by the run.
        """
        loop = asyncio.get_running_loop()
        met = False
        watching: asyncio.Task[None] | None = None
        why = f"model {self.model!r} did not return within its run_limit of {self.seconds:g} s"

        async def watch() -> None:
            nonlocal met
            await self._met(run)
            met = True
            patience = GRACE + REPLACING if run.overrun(GRACE, why) else 0.0
            scope.reschedule(loop.time() + patience)

        def expired() -> None:
            nonlocal watching
            watching = loop.create_task(watch(), name="callboard-run-limit")

        run.since = self._clock.time()
        timer = self._clock.call_later(self.seconds, expired)
        try:
            async with asyncio.timeout(None) as scope:
                found = await value
        except Exception as e:  # of the run, or because it was ended
            if met:
                raise self._spent() from e
            raise
        finally:
            timer.cancel()
            if watching is not None:
                watching.cancel()
        if met:
            raise self._spent()
        return found

    async def _met(self, run: Run) -> None:
        """Return when the run has met the limit."""
        clock, silent = self._clock, False
        while True:
            if run.waits():
                run.begins(clock.time())
            left = run.since + self.seconds - clock.time()
            if left > 0:
                await _pause(clock, left)
                continue
            ran = await run.ran(ANSWER)
            if ran is None:
                silent = True
                if run.alone():
                    return
                continue
            run.begins(clock.time() - (0.0 if silent else ran))
            silent = False
            if run.since + self.seconds <= clock.time() and not run.waits():
                return

    def _spent(self) -> BudgetSpent:
        return BudgetSpent(
            f"model {self.model!r}: the request ran for longer than the model's run limit of {self.seconds:g} s, and "
            "was ended; ask for less, or give the model a larger run_limit"
        )


async def _pause(clock: Clock, seconds: float) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def over() -> None:
        if not future.done():
            future.set_result(None)

    timer = clock.call_later(seconds, over)
    try:
        await future
    finally:
        timer.cancel()
