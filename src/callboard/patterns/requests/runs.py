"""``Run``: one run of a user's function for requests, whose callers may all leave before it ends; ``RunLimit``."""

import asyncio
import inspect
import math
import time
import weakref
from collections.abc import Awaitable
from typing import Any, TypeVar

from callboard.core.errors import BudgetSpent
from callboard.device.client.residents.reply import CallReply
from callboard.patterns.requests.entries import Entry, State

__all__ = ["DOUBT", "DOUBT_AFTER", "GRACE", "Run", "RunLimit"]

V = TypeVar("V")

DOUBT, DOUBT_AFTER = 4.0, 10.0
"""A run may not return if it has taken this many times as long as any before, and this many seconds, and one of its
requests has left."""
GRACE = 1.0
"""Seconds that a method of an actor has to return once its run has met its limit; then its process is replaced."""
REPLACING = 5.0
"""Further seconds in which that process must have ended."""


class Run:
    """Cancels the calls of resident actors that a function has made, when all requests that need its result have ended.

    A call that runs continues, and its answer, or the loss of its context, still ends it.

    Args:
        entries: The requests.

    Attributes:
        entries: As given.
        began: When it began, in monotonic seconds.
    """

    __slots__ = ("_abandoned", "_doubt", "_replies", "began", "entries")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.began = time.monotonic()
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
    its actor lives in a process, this process is replaced. The time in which all calls of a run wait behind others,
    for a context or for ``setup``, begins the limit anew.

    Args:
        seconds: Seconds of a run at most.
        model: Name of the model, for errors.

    Raises:
        ValueError: ``seconds`` is not positive and finite.
    """

    def __init__(self, seconds: float, model: str) -> None:
        if not (seconds > 0 and math.isfinite(seconds)):
            raise ValueError(f"model {model!r}: run_limit must be positive seconds, but is {seconds}")
        self.seconds = seconds
        self.model = model

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
        timer: asyncio.TimerHandle
        why = f"model {self.model!r} did not return within its run_limit of {self.seconds:g} s"

        def reached() -> None:
            nonlocal met, timer
            if run.waits():
                timer = loop.call_later(self.seconds, reached)
                return
            met = True
            patience = GRACE + REPLACING if run.overrun(GRACE, why) else 0.0
            scope.reschedule(loop.time() + patience)

        timer = loop.call_later(self.seconds, reached)
        try:
            async with asyncio.timeout(None) as scope:
                found = await value
        except Exception as e:  # of the run, or because it was ended
            if met:
                raise self._spent() from e
            raise
        finally:
            timer.cancel()
        if met:
            raise self._spent()
        return found

    def _spent(self) -> BudgetSpent:
        return BudgetSpent(
            f"model {self.model!r}: the request ran for longer than the model's run limit of {self.seconds:g} s, and "
            "was ended; ask for less, or give the model a larger run_limit"
        )
