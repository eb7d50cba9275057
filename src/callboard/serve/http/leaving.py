"""``cancel_on_disconnect``: work for a client, which is cancelled when the client leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from callboard.serve.http.request import Request

__all__ = ["CONNECTION", "ClientLeft", "Connection", "cancel_on_disconnect"]

T = TypeVar("T")

CONNECTION = "callboard.connection"
"""The key in ``scope["state"]`` under which callboard's server stores the :class:`Connection` of a request."""


class ClientLeft(Exception):
    """The client has closed its connection before the response."""


class Connection(Protocol):
    """A connection that reports when it is lost, which saves the task that waits in ``receive``."""

    def when_lost(self, call: Callable[[], object] | None) -> None:
        """Call this once the connection is lost, at once if it is; None: nothing."""
        ...


async def cancel_on_disconnect(work: Awaitable[T], request: Request) -> T:
    """Do the work; cancel it when the client leaves.

    Raises:
        ClientLeft: It has left.
    """
    task = asyncio.current_task()
    assert task is not None
    left = False

    def leave() -> None:
        nonlocal left
        left = True
        task.cancel()

    unwatch = _watched(request, leave)
    try:
        return await work
    except asyncio.CancelledError:
        if left and task.cancelling() == 1:  # because the client left, and for nothing else
            raise ClientLeft from None
        raise
    finally:
        unwatch()
        if left:
            task.uncancel()


def _watched(request: Request, leave: Callable[[], None]) -> Callable[[], object]:
    """Call ``leave`` when the client leaves; returns the function that ends the watch."""
    connection: Connection | None = request.scope.get("state", {}).get(CONNECTION)
    if connection is not None:
        connection.when_lost(leave)
        return lambda: connection.when_lost(None)

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        leave()

    return asyncio.create_task(watch()).cancel
