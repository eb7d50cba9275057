"""``Streams``: the generators of one resident actor that consumers take items from."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from callboard.device.protocol.messages import Failure
from callboard.device.protocol.residents.steps import CLOSE, NEXT, OPEN, is_closing
from callboard.device.protocol.residents.values import Unsendable, decode

__all__ = ["Broken", "Streams", "why_not"]

log = logging.getLogger("callboard.resident")


class Broken(Exception):
    """A failure restarted the actor, and the generator is gone.

    Args:
        failure: What restarted the actor.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    def of(self, call: int) -> Failure:
        """The same failure, for the call that asked for an item."""
        note = "the failure restarted the resident actor, which closed the generator of this stream"
        return msgspec.structs.replace(self.failure, id=call, notes=[*self.failure.notes, note])


class Streams:
    """The generators by the id of their stream. Used on the actor's thread, except :meth:`notice`.

    A generator is dropped when it is exhausted, has raised, has been closed, or when an item could not be sent.

    Args:
        actor: Name of the actor.
    """

    def __init__(self, actor: str) -> None:
        self._actor = actor
        self._open: dict[int, Iterator[Any] | Failure] = {}
        self._left: set[int] = set()  # streams whose consumer has gone, and that are not closed yet
        self._stepped = 0, 0  # the last call for an item, and its stream

    def __len__(self) -> int:
        return len(self._open)

    def notice(self, body: bytes) -> None:
        """A call has been queued: if it closes a stream, calls before it make no more items. Admitting thread."""
        if is_closing(body):
            with contextlib.suppress(Exception):  # a malformed body is the call's error, when it runs
                stream = decode(body)[0][1]
                if type(stream) is int:
                    self._left.add(stream)

    def method(self, instance: Any, step: list[Any], call: int) -> Callable[..., Any]:
        """What a call of a stream runs.

        Args:
            instance: The actor.
            step: In place of the method's name (:mod:`callboard.device.protocol.residents.steps`).
            call: Id of the call.

        Raises:
            Broken: The generator is gone because the actor was restarted.
            TypeError: ``step`` is malformed.
        """
        match step:
            case ["open", str(name)]:
                return partial(self._begin, call, name, getattr(instance, name))
            case ["next", int(stream)]:
                made = self._open.get(stream)
                if isinstance(made, Failure):
                    del self._open[stream]
                    raise Broken(made)
                self._stepped = call, stream
                return partial(self._step, stream)
            case ["close", int(stream)]:
                return partial(self._close, stream)
        raise TypeError(f"{step!r:.200} is no step of a stream; there are {OPEN}, {NEXT} and {CLOSE}")

    def _begin(self, stream: int, name: str, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        made = method(*args, **kwargs)
        if isinstance(made, Iterator):
            self._open[stream] = made
            return
        if isinstance(made, AsyncIterator):
            raise TypeError(f"{self._actor}.{name} returned an async iterator; make it a plain generator")
        raise TypeError(
            f"{self._actor}.{name} returned {type(made).__qualname__}, which is no iterator; use `call`, or yield the "
            "items"
        )

    def _step(self, stream: int) -> tuple[Any, ...] | None:
        made = self._open.get(stream)
        if made is None or stream in self._left:
            return None
        assert not isinstance(made, Failure)
        try:
            return (next(made),)
        except StopIteration:
            del self._open[stream]
            return ()
        except BaseException:  # whatever a user's generator raises, it is over
            self._open.pop(stream, None)
            raise

    def _close(self, stream: int) -> None:
        self._left.discard(stream)
        made = self._open.pop(stream, None)
        if made is not None:
            getattr(made, "close", _nothing)()

    def spoil(self, call: int) -> None:
        """A call has failed: if it was for an item, the consumer misses that item, so its generator is closed."""
        last, stream = self._stepped
        if call == last:
            self._shut(self._open.pop(stream, None))

    def fail(self, failure: Failure) -> None:
        """The actor is restarted: close all generators; their consumers get the failure."""
        for stream, made in self._open.items():
            self._shut(made)
            self._open[stream] = failure

    def close(self) -> None:
        """The actor ends: close all generators."""
        while self._open:
            self._shut(self._open.popitem()[1])

    def _shut(self, made: Any) -> None:
        try:
            getattr(made, "close", _nothing)()
        except BaseException as e:  # from a user's finally block; there is no caller
            log.error(
                "resident actor %s: a generator failed as it was closed: %s: %s", self._actor, type(e).__name__, e
            )


def _nothing() -> None:
    """Iterators that are no generators have nothing to close."""


def why_not(result: Any, error: Unsendable) -> str:
    """Why a result cannot travel."""
    if isinstance(result, Iterator | AsyncIterator):
        return f"the method returned {type(result).__qualname__}, an iterator; use `stream` in place of `call`"
    return f"result{error.path}: {error.why}"
