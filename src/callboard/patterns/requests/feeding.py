"""``Feeders``: answers that come in parts, read to their ends for the requests of a server."""

import asyncio
from collections.abc import AsyncIterable
from typing import Any, Protocol

from callboard.events.tracing import caused_by
from callboard.patterns.contract.outlet import STREAMED, Outlet
from callboard.patterns.contract.taking import taken
from callboard.patterns.requests.calling import deliverable, of_the_loop
from callboard.patterns.requests.entries import Entry, State

__all__ = ["Feeders"]


class Pausing(Protocol):
    """A quarantine's side of a server."""

    def pause(self, entry: Entry) -> bool:
        """A request does nothing for now; False: others wait for its end all the same."""
        ...

    def resume(self, entry: Entry) -> None:
        """It goes on."""


class Feeders:
    """Reads answers, on the server's loop.

    Attributes:
        guard: Is told of requests whose readers are slow; None: nothing waits for the end of a request.
        tasks: Those that read, by the number of the request. A task that is cancelled closes its iterator.
    """

    def __init__(self) -> None:
        self.guard: Pausing | None = None
        self.tasks: dict[int, set[asyncio.Task[None]]] = {}

    async def feed(self, entry: Entry, answer: Any, *, keep: bool = False) -> Any:
        """Pass on the items of an answer that is an asynchronous iterator; returns the request's value.

        The iterator is closed in any case. Where the request ends meanwhile, this returns as if it were complete.

        Args:
            entry: The request.
            answer: The function's result for it; returned unchanged if it is not such an iterator.
            keep: Also return the parts of a request whose caller reads them one by one.

        Raises:
            Exception: Raised by the iterator.
        """
        if not hasattr(type(answer), "__aiter__"):
            return answer
        outlet: Outlet | None = entry.outlet
        parts: list[Any] | None = [] if outlet is None or keep else None
        feeder = asyncio.get_running_loop().create_task(_feed(answer, parts, entry, self.guard))
        feeders = self.tasks.setdefault(entry.number, set())
        feeders.add(feeder)
        if entry.state is State.ENDED:
            feeder.cancel()
        try:
            await asyncio.wait({feeder})
        except asyncio.CancelledError:
            feeder.cancel()
            await asyncio.wait({feeder})
            raise
        finally:
            feeders.discard(feeder)
            if not feeders:
                self.tasks.pop(entry.number, None)
        if not feeder.cancelled() and (error := feeder.exception()) is not None:
            raise error
        return STREAMED if parts is None else parts


async def _feed(answer: AsyncIterable[Any], parts: list[Any] | None, entry: Entry, guard: Pausing | None) -> None:
    """Read an answer to its end, no faster than its reader does, and close it."""
    caused_by([entry])
    source, outlet, task = aiter(answer), entry.outlet, asyncio.current_task()
    try:
        async for made in source:
            part = taken(made)  # an iterator may yield the same buffer again and again
            if parts is not None:
                parts.append(part)
            if outlet is None:
                continue
            outlet.put(part)
            if outlet.full:
                await _room(outlet, entry, guard)
    except (Exception, asyncio.CancelledError):  # what a task can hold
        raise
    except BaseException as e:  # SystemExit, as of a function: it belongs to the caller
        if of_the_loop(e, task):
            raise
        raise deliverable(e) from e
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def _room(outlet: Outlet, entry: Entry, guard: Pausing | None) -> None:
    """Wait for the reader."""
    room = asyncio.Event()
    outlet.room_made = room.set
    paused = guard is not None and guard.pause(entry)
    try:
        await room.wait()
    finally:
        if guard is not None and paused:
            guard.resume(entry)
