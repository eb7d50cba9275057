"""Retries after a lost context, and the key that ties ops to a request."""

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from callboard.device.client.line.port import request_key as _key

__all__ = ["request_key", "retrying"]

P = ParamSpec("P")
R = TypeVar("R")


def retrying(
    *errors: type[BaseException], attempts: int = 2
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Call an async function again when it fails with one of these errors.

    ``@cb.retrying(cb.ContextLost, attempts=2)``. The function has to make its refs itself (or by
    :meth:`Device.per_generation`): refs of a lost generation stay stale. There is no pause between attempts; ops of the
    next attempt wait for the next context by themselves.

    Args:
        errors: Classes; at least one.
        attempts: Calls in all, at least 1. The last error is raised with a note that says how many there were.

    Raises:
        TypeError: No class of errors, as where ``@cb.retrying`` is written without arguments.
        ValueError: No class at all, or no attempt.
    """
    given: tuple[Any, ...] = errors
    for error in given:
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            raise TypeError(f"retrying: {error!r} is no class of errors; write @cb.retrying(cb.ContextLost)")
    if not errors or attempts < 1:
        raise ValueError("retrying needs at least one error class and at least one attempt")

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for attempt in range(1, attempts + 1):
                try:
                    return await function(*args, **kwargs)
                except errors as e:
                    if attempt == attempts:
                        e.add_note(f"attempt {attempt} of {attempts}")
                        raise
            raise AssertionError("unreachable")

        return call

    return decorate


@contextmanager
def request_key(key: str) -> Iterator[None]:
    """Ops called inside carry this key: it stands in their errors and in ``ContextPoisoned.suspects``."""
    token = _key.set(key)
    try:
        yield
    finally:
        _key.reset(token)
