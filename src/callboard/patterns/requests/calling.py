"""``UserCall``: calls a user function for a server, on the event loop or on a thread."""

import asyncio
import concurrent.futures
import functools
import inspect
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NoReturn

from callboard.actors.errors import HandlerCancelled, printable
from callboard.actors.loops.threads import Threads
from callboard.device.client.residents.ref import ResidentRef
from callboard.device.client.residents.reply import calls_made
from callboard.patterns.contract.atcall import as_given
from callboard.patterns.requests.entries import Entry
from callboard.patterns.requests.fitting import refuse_actors
from callboard.patterns.requests.inside import part_of_this
from callboard.patterns.requests.runs import Run, RunLimit

__all__ = ["Executor", "UserCall", "deliverable", "is_quick", "of_the_loop"]

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
        self._called = as_given(function)  # by a server, which has taken the item
        self._runs: list[Run] = []
        self._limit: RunLimit | None = None
        self._longest = 0.0  # seconds of a run that gave a result
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

    def limit(self, limit: RunLimit) -> None:
        """Bound the time of each call from now on.

        Raises:
            TypeError: Calls cannot be ended.
        """
        limit.check(self._function, on_thread=self.on_thread)
        self._limit = limit

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
        task = asyncio.current_task()
        tracked = self._pool is None and (entries is not None or self._limit is not None)
        run = Run(entries or []) if tracked else None
        outer = calls_made.get()
        if run is not None:
            self._runs.append(run)
            calls_made.set(run)
        try:
            if self._pool is None:
                found = self._called(*arguments)
            else:
                work = part_of_this(_caught, self._pool)
                found = await asyncio.get_running_loop().run_in_executor(self._pool, work, self._called, arguments)
                if isinstance(found, _Raised):
                    found.reraise()
            value = (
                found if isinstance(found, list) or not inspect.isawaitable(found) else await self._ended(run, found)
            )
            if run is not None:
                self._longest = max(self._longest, run.end())
            return value
        except asyncio.CancelledError as e:
            if task is not None and task.cancelling():
                raise
            raise HandlerCancelled(f"{_name(self._function)} was cancelled from within") from e
        except BaseException as e:  # SystemExit, which would end the loop: it belongs to the caller, as on a thread
            if isinstance(e, Exception) or of_the_loop(e, task):
                raise
            raise deliverable(e) from e
        finally:
            if run is not None:
                run.end()
                self._runs.remove(run)
                calls_made.set(outer)

    async def _ended(self, run: Run | None, value: Awaitable[Any]) -> Any:
        return await value if self._limit is None or run is None else await self._limit.over(run, value)

    def left(self, entry: Entry) -> None:
        """A request has ended before the run that is for it.

        If it was the last one of the run, the calls of actors that the function has made are cancelled. If others wait,
        this happens when the run has taken :data:`DOUBT` times as long as any before: it may not return.
        """
        for run in self._runs:
            if entry in run.entries:
                run.left(self._longest)

    def close(self) -> None:
        """Stop accepting calls; a call that runs on a thread continues."""
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)


def of_the_loop(error: BaseException, task: "asyncio.Task[Any] | None") -> bool:
    """True if an exception in a task's code must reach the loop: Ctrl-C, and the end of a coroutine that is closed.

    Where a handler of the application takes SIGINT, as in a server, a ``KeyboardInterrupt`` comes from the code itself.
    """
    match error:
        case KeyboardInterrupt():
            handler: Any = signal.getsignal(signal.SIGINT)
            runner = getattr(getattr(handler, "func", None), "__self__", None)  # of asyncio.run
            return handler is signal.default_int_handler or isinstance(runner, asyncio.Runner)
        case GeneratorExit():
            return asyncio._get_running_loop() is None or asyncio.current_task() is not task
    return False


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
