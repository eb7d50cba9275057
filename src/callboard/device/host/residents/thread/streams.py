"""``Streams``: the generators of one resident actor that consumers take items from."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.device.host.residents.item import Item
from callboard.device.protocol.messages import FailureMessage
from callboard.device.protocol.residents.steps import CLOSE, NEXT, OPEN, is_closing, stream_of
from callboard.device.protocol.residents.values import Unsendable

if TYPE_CHECKING:
    from callboard.device.host.residents.thread.coroutines import Coroutines

__all__ = ["Broken", "Streams", "why_not"]

log = logging.getLogger("callboard.resident")

CLOSED = "the failure restarted the resident actor, which closed the generator of this stream"


class Broken(Exception):
    """A failure restarted the actor, which ended the generator, or the coroutine, of another call.

    Args:
        failure: The failure that restarted the actor.
        note: Added to it.
    """

    def __init__(self, failure: FailureMessage, note: str) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.note = note

    def of(self, call: int) -> FailureMessage:
        """The same failure, for the other call."""
        return msgspec.structs.replace(self.failure, id=call, notes=[*self.failure.notes, self.note])


class Streams:
    """The generators by the id of their stream. Used on the actor's thread, except :meth:`notice`.

    A generator is dropped when it is exhausted, has raised, has been closed, or when an item could not be sent.

    Args:
        actor: Name of the actor.

    Attributes:
        coroutines: The actor's loop; None if it has no async methods.
    """

    def __init__(self, actor: str) -> None:
        self._actor = actor
        self._open: dict[int, Iterator[Any] | AsyncIterator[Any] | FailureMessage] = {}
        self._left: set[int] = set()  # streams whose consumer has gone, and that are not closed yet
        self.coroutines: Coroutines | None = None

    def __len__(self) -> int:
        return len(self._open)

    def notice(self, body: bytes) -> None:
        """A call has been queued: if it closes a stream, earlier calls stop making items. Admitting thread."""
        if is_closing(body):
            self._left.add(stream_of(body))

    def leave(self, stream: int) -> None:
        """An item of the stream is lost: stop making items."""
        if stream in self._open:
            self._left.add(stream)

    def method(self, instance: Any, step: list[Any], item: Item) -> Callable[..., Any]:
        """Return the function that a call of a stream runs.

        Args:
            instance: The actor.
            step: Description of the step, sent in place of the method's name
                (:mod:`callboard.device.protocol.residents.steps`).
            item: The call.

        Raises:
            Broken: The generator no longer exists because the actor was restarted.
            TypeError: ``step`` is malformed.
        """
        match step:
            case ["open", str(name)]:
                return partial(self._begin, item.message.id, name, getattr(instance, name))
            case ["next", int(stream)]:
                made = self._open.get(stream)
                if isinstance(made, FailureMessage):
                    del self._open[stream]
                    raise Broken(made, CLOSED)
                item.stream = stream
                return partial(self._step, stream)
            case ["close", int(stream)]:
                return partial(self._close, stream)
        raise TypeError(f"{step!r:.200} is not a step of a stream; there are {OPEN}, {NEXT} and {CLOSE}")

    def _begin(self, stream: int, name: str, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        made = method(*args, **kwargs)
        if isinstance(made, Iterator) or (isinstance(made, AsyncIterator) and self.coroutines is not None):
            self._open[stream] = made
            return
        if isinstance(made, AsyncIterator):
            raise TypeError(
                f"{self._actor}.{name} returned {type(made).__qualname__}, but no method of its class is async; "
                "declare it `async def`, and yield the items"
            )
        raise TypeError(
            f"{self._actor}.{name} returned {type(made).__qualname__}, not an iterator; use `call`, or yield the items"
        )

    def _step(self, stream: int) -> Any:
        made = self._open.get(stream)
        if made is None or stream in self._left:
            return None
        assert not isinstance(made, FailureMessage)
        if isinstance(made, AsyncIterator):
            return self._step_later(stream, made)
        try:
            return (next(made),)
        except StopIteration:
            del self._open[stream]
            return ()
        except BaseException:  # whatever a user's generator raises, it is over
            self._open.pop(stream, None)
            raise

    async def _step_later(self, stream: int, made: AsyncIterator[Any]) -> tuple[Any, ...]:
        try:
            return (await anext(made),)
        except StopAsyncIteration:
            self._open.pop(stream, None)
            return ()

    def _close(self, stream: int) -> Any:
        self._left.discard(stream)
        return _closed(self._open.pop(stream, None))

    def spoil(self, item: Item) -> None:
        """A call has failed: if it was for an item, the consumer misses that item, so its generator is closed."""
        if item.stream:
            self._shut(self._open.pop(item.stream, None))
            self._left.discard(item.stream)

    def fail(self, failure: FailureMessage) -> None:
        """The actor is restarted: end all coroutines and generators; their callers and consumers get the failure."""
        if self.coroutines is not None:
            self.coroutines.fail(failure)
        for stream, made in self._open.items():
            self._shut(made)
            self._open[stream] = failure

    def close(self) -> None:
        """The actor ends: close all generators."""
        while self._open:
            self._shut(self._open.popitem()[1])

    def _shut(self, made: Any) -> None:
        try:
            closing = _closed(made)
            if closing is not None and self.coroutines is not None:
                self.coroutines.finish(closing)
        except BaseException as e:  # from a user's finally block; there is no caller
            log.error(
                "resident actor %s: a generator failed as it was closed: %s: %s", self._actor, type(e).__name__, e
            )


def _closed(made: Any) -> Awaitable[Any] | None:
    """Close a generator; an async one is closed when the result has been awaited. Other iterators need not be."""
    if isinstance(made, AsyncIterator):
        aclose = getattr(made, "aclose", None)
        return None if aclose is None else aclose()
    if hasattr(made, "close"):
        made.close()
    return None


def why_not(result: Any, error: Unsendable) -> str:
    """The reason why a result cannot be sent."""
    if isinstance(result, Iterator | AsyncIterator):
        return f"the method returned {type(result).__qualname__}, an iterator; use `stream` in place of `call`"
    return f"result{error.path}: {error.why}"
