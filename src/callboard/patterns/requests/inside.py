"""``Inside``: a run of a server's function, and the code that is part of it."""

import concurrent.futures
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import partial
from typing import Any, Self, TypeVar

from callboard.actors.loops.threads import Threads
from callboard.device.client.line.entries import request_key
from callboard.events.concerns import REQUEST_ID, TRACE

__all__ = ["Inside", "check_outside", "part_of_this"]

R = TypeVar("R")


class Inside:
    """A run of a server's function: the block, the tasks that are made in it while it lasts, and its thread.

    Args:
        server: The server, which takes no requests from inside.
    """

    __slots__ = ("_token", "server")

    def __init__(self, server: object) -> None:
        self.server: object | None = server
        self._token: Token[Inside | None] | None = None

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._token is not None
        _current.reset(self._token)
        self.server = self._token = None  # a task that lasts longer is inside no more


_current: ContextVar[Inside | None] = ContextVar("callboard.inside", default=None)

_CARRIED: tuple[ContextVar[Any], ...] = _current, request_key, REQUEST_ID, TRACE


def check_outside(server: object, name: str) -> None:
    """Raise where a server's own function gives it a request: the run would wait for a later one, and that for it.

    Raises:
        RuntimeError: This is part of a run of the server's function.
    """
    inside = _current.get()
    if inside is not None and inside.server is server:
        raise RuntimeError(
            f"{name}: its own function submitted to it, and would wait for a run that begins when this one has ended; "
            "submit where the function's results are awaited, or to another server"
        )


def part_of_this(work: Callable[..., R], pool: concurrent.futures.Executor) -> Callable[..., R]:
    """The work, which the pool is to do as part of this run, with the key, the id and the trace of this context.

    Other processes take no part.
    """
    if not isinstance(pool, concurrent.futures.ThreadPoolExecutor | Threads):
        return work
    return partial(_as_part, [(each, each.get()) for each in _CARRIED], work)


def _as_part(carried: list[tuple[ContextVar[Any], Any]], work: Callable[..., R], *arguments: Any) -> R:
    tokens = [each.set(value) for each, value in carried]
    try:
        return work(*arguments)
    finally:
        for (each, _), token in zip(carried, tokens, strict=True):
            each.reset(token)
