"""Retries after a lost context, and the key that ties ops to a request."""

import asyncio
import functools
import math
import random as _random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from callboard.core.errors import ContextPoisoned
from callboard.device.client.line.port import request_key as _key
from callboard.patterns.contract.hooks import amount, awaitable

__all__ = ["request_key", "retrying"]

P = ParamSpec("P")
R = TypeVar("R")


def retrying(
    *errors: type[BaseException],
    attempts: int = 2,
    delay: float = 0.1,
    max_delay: float = 10.0,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    random: Callable[[], float] = _random.random,
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Call an async function again when it fails with one of these errors.

    ``@cb.retrying(cb.ContextLost, attempts=2)``. The function has to make its refs itself (or by
    :meth:`Device.per_generation`): refs of a lost generation stay stale. Ops of the next attempt wait for the next
    context by themselves.

    The pause before attempt ``n + 1`` is drawn between 0 and ``delay * 2**(n - 1)`` seconds, at most ``max_delay``, so
    that requests that failed together are not retried together (exponential back-off with full jitter).

    A call that was in flight at two losses of the context in a row may be their cause. It is not tried again, whatever
    ``attempts`` is, because it could use up the restart budget of the device. A call is identified by its
    :func:`request_key`, or else by the place where its op was made: it is a suspect if :attr:`ContextPoisoned.suspects`
    names that key or place.

    Args:
        errors: Classes; at least one.
        attempts: Number of calls, including the first, at least 1. The last error is raised with a note of that number.
        delay: Seconds that the first pause lasts at most; 0 for no pauses.
        max_delay: Seconds that any pause lasts at most; not less than ``delay``.
        sleep: Replacement of ``asyncio.sleep``, for tests.
        random: Returns a number in [0, 1), for tests.

    Raises:
        TypeError: No class of errors, as where ``@cb.retrying`` is written without arguments.
        ValueError: No class at all, no attempt, or delays out of range.
    """
    given: tuple[Any, ...] = errors
    for error in given:
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            raise TypeError(f"retrying: {error!r} is not a class of errors; write @cb.retrying(cb.ContextLost)")
    if not errors or attempts < 1:
        raise ValueError("retrying needs at least one error class and at least one attempt")
    if not (0 <= delay <= max_delay and math.isfinite(max_delay)):
        raise ValueError(f"retrying needs 0 <= delay <= max_delay, not {delay} and {max_delay}")

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            losses = _Losses(_key.get())
            for attempt in range(1, attempts + 1):
                try:
                    return await function(*args, **kwargs)
                except errors as e:
                    suspect = losses.repeated(e)
                    if attempt == attempts or suspect:
                        e.add_note(f"attempt {attempt} of {attempts}")
                        if suspect:
                            e.add_note(
                                f"not tried again: {suspect} was in flight at two losses of the context in a row, "
                                "and may be what causes them"
                            )
                        raise
                # Here and not above: an error keeps its frames, and with them the arrays of the attempt.
                pause = _pause(attempt, delay, max_delay, _drawn(random()))
                if pause:
                    await awaitable("sleep", sleep(pause))
            raise AssertionError("unreachable")

        return call

    return decorate


def _drawn(number: float) -> float:
    if amount("random", number) >= 1.0:
        raise ValueError(f"random returned {number!r}; it must return a number in [0, 1)")
    return number


def _pause(attempt: int, delay: float, max_delay: float, random: float) -> float:
    """Seconds after a failed attempt (from 1); ``random`` is in [0, 1)."""
    doublings = min(attempt - 1, 1000)  # 2.0 ** 1024 does not fit a float
    return min(max_delay, delay * 2.0**doublings) * random


class _Losses:
    """Tracks whether a call is a suspect of two losses in a row.

    Args:
        key: The request key around the call; for losses that reached it by no op.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._suspect = ""  # of the last loss, if it names this call
        self._loss: tuple[Any, int] | None = None  # which one that was

    def repeated(self, error: BaseException) -> str:
        """Note an error of the call; returns its label if it is a suspect again, an empty text otherwise."""
        if not isinstance(error, ContextPoisoned) or error.unsent or error.starting:
            return ""  # such as a stale ref, the consequence of a loss; or a loss that is charged to a setup
        loss = None if error.generation is None else (error.device, error.generation)
        if loss is not None and loss == self._loss:
            return ""
        before, self._suspect, self._loss = self._suspect, self._named(error), loss
        return before if before == self._suspect else ""

    def _named(self, error: ContextPoisoned) -> str:
        """The label of the call, if the error's suspects include it."""
        key = error.call.request_key if error.call else self._key
        if key is not None:
            return f"request {key}" if any(key == suspect.request_key for suspect in error.suspects) else ""
        where = error.call and error.call.where
        return f"the call at {where}" if any(where == suspect.where for suspect in error.suspects) else ""


@contextmanager
def request_key(key: str) -> Iterator[None]:
    """Attach a key to the ops called inside; it appears in their errors and in ``ContextPoisoned.suspects``."""
    token = _key.set(key)
    try:
        yield
    finally:
        _key.reset(token)
