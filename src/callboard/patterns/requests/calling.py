"""``UserCall``: calls a user function for a server, on the event loop or on a thread."""

import asyncio
import concurrent.futures
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, Literal, NoReturn

from callboard.actors.errors import HandlerCancelled, printable
from callboard.actors.loops.threads import Threads
from callboard.device.client.residents.ref import ResidentRef
from callboard.device.client.residents.reply import CallReply
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.fitting import refuse_actors
from callboard.patterns.requests.inside import part_of_this

__all__ = ["Executor", "UserCall", "deliverable", "is_quick"]

DOUBT, DOUBT_AFTER = 4.0, 10.0
"""A call of an actor may not return if it has run this many times as long as any before, and for this many seconds, and
one of its requests has left."""

Executor = Literal["auto", "loop", "thread"] | concurrent.futures.Executor


class UserCall:
    """A callable of the user: a plain function, an async one, a method of a resident actor, or a chain of device ops.

    An awaitable result (a coroutine, a ``Reply``, a ``GpuRef``) is awaited.

    Args:
        function: The callable.
        executor: ``"loop"``: it is called on the event loop, and must not block. ``"thread"``: on a thread of the
            server. ``"auto"``: async functions, also generators, and methods of a ``ResidentRef`` (also in a
            ``functools.partial``) on the loop, others on a thread. Or an executor, which is not shut
            down here.
        threads: Threads at most.

    Raises:
        TypeError: ``function`` cannot be called, or is a resident actor's class in place of a call of the actor; or
            ``executor`` is something else.
    """

    def __init__(self, function: Callable[..., Any], executor: Executor, threads: int) -> None:
        given: Any = function
        refuse_actors(given)
        if not callable(given):
            raise TypeError(f"{given!r} cannot be called")
        self._function = function
        self._actor_calls: list[_ActorCall] = []
        self._longest = 0.0  # seconds of an actor's call that gave a result
        self._own: Threads | None = None
        self._pool: concurrent.futures.Executor | None = None
        if isinstance(executor, concurrent.futures.Executor):
            self._pool = executor
        elif executor == "thread" or (executor == "auto" and not is_quick(function)):
            self._own = Threads(threads, "callboard-server")
            self._pool = self._own
        elif executor not in ("auto", "loop"):
            raise TypeError(f'executor is {executor!r}; it must be "auto", "loop", "thread" or an Executor')

    @property
    def function(self) -> Callable[..., Any]:
        """The callable."""
        return self._function

    @property
    def on_thread(self) -> bool:
        """True if a call cannot be interrupted."""
        return self._pool is not None

    async def __call__(self, *arguments: Any, entries: "list[Entry] | None" = None) -> Any:
        """Call it and wait for its result.

        Args:
            arguments: Arguments of the function.
            entries: The requests for which it is called; see :meth:`left`.

        Raises:
            Exception: Raised by the function.
            HandlerCancelled: Something that it waited for was cancelled, though this task was not.
        """
        try:
            if self._pool is None:
                found = self._function(*arguments)
            else:
                work = part_of_this(_caught, self._pool)
                found = await asyncio.get_running_loop().run_in_executor(self._pool, work, self._function, arguments)
                if isinstance(found, _Raised):
                    found.reraise()
            if entries is not None and type(found) is CallReply:
                return await self._answered(entries, found)
            return found if isinstance(found, list) or not inspect.isawaitable(found) else await found
        except asyncio.CancelledError as e:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise HandlerCancelled(f"{_name(self._function)} was cancelled from within") from e
        except (Exception, *OF_THE_LOOP):  # what a future can hold, and what must reach the loop
            raise
        except BaseException as e:  # SystemExit, which would end the loop: it belongs to the caller, as on a thread
            raise deliverable(e) from e

    async def _answered(self, entries: "list[Entry]", reply: "CallReply[Any]") -> Any:
        call = _ActorCall(entries, reply, time.monotonic())
        self._actor_calls.append(call)
        try:
            value = await reply
            self._longest = max(self._longest, time.monotonic() - call.began)
            return value
        finally:
            self._actor_calls.remove(call)
            if call.doubt is not None:
                call.doubt.cancel()

    def left(self, entry: Entry) -> None:
        """A request has ended before its call, which was for it and perhaps others.

        If it was the last of them, an actor's method is told that it is cancelled. If others wait, it is told so when
        it has run for :data:`DOUBT` times as long as any call before: it may not return. The call's answer, or the loss
        of its context, still ends it.
        """
        for call in self._actor_calls:
            if entry not in call.entries:
                continue
            if all(each.state is State.ENDED for each in call.entries):
                call.reply.cancel()
            elif call.doubt is None and self._longest:
                later = call.began + max(DOUBT_AFTER, DOUBT * self._longest) - time.monotonic()
                call.doubt = asyncio.get_running_loop().call_later(max(0.0, later), call.reply.cancel)

    def close(self) -> None:
        """Stop accepting calls; a call that runs on a thread continues."""
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)


class _ActorCall:
    """A call of an actor's method that runs."""

    __slots__ = ("began", "doubt", "entries", "reply")

    def __init__(self, entries: "list[Entry]", reply: "CallReply[Any]", began: float) -> None:
        self.entries = entries
        self.reply = reply
        self.began = began
        self.doubt: asyncio.TimerHandle | None = None


OF_THE_LOOP = (KeyboardInterrupt, GeneratorExit)
"""Ctrl-C, and the end of a coroutine that is not awaited any more."""


class _Raised:
    """The exception of a call on a thread: a ``SystemExit`` there ends a request, not the event loop."""

    def __init__(self, error: Exception) -> None:
        self._error: Exception | None = error

    def reraise(self) -> NoReturn:
        """Raise it, once. It is held nowhere here then: an error held by a frame of its traceback is a cycle."""
        error, self._error = self._error, None
        assert error is not None
        try:
            raise error
        finally:
            del error


def _caught(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except BaseException as e:  # whatever it is, it belongs to the caller
        return _Raised(deliverable(e))


def deliverable(error: BaseException) -> Exception:
    """The error, if a future can hold it; else a ``RuntimeError`` with the error as its cause."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"the function raised {printable(error, repr)}")
    wrapped.__cause__ = error
    return wrapped


def is_quick(function: Any) -> bool:
    """True if a call returns at once, with an awaitable."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isasyncgenfunction(function):
        return True
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 -- looked at, not called
        return True
    return inspect.ismethod(function) and isinstance(function.__self__, ResidentRef)


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
