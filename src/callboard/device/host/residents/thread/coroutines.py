"""``Coroutines``: runs the calls of a resident actor that has async methods, on an event loop in the actor's thread."""

import asyncio
import contextlib
import contextvars
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.actors.errors import ActorStopped
from callboard.core.errors import Withdrawn
from callboard.device.host.residents.item import Item, Outcome
from callboard.device.host.residents.thread.streams import Broken
from callboard.device.protocol.messages import FailureMessage
from callboard.device.protocol.residents.actor import HostContext, ResidentActor
from callboard.device.protocol.residents.steps import is_closing, stream_of
from callboard.events.concerns import TRACE

if TYPE_CHECKING:
    from callboard.device.host.residents.thread.thread import ActorThread

__all__ = ["GRACE", "Awaits", "Coroutines", "has_coroutines", "running", "set_up"]

log = logging.getLogger("callboard.resident")

GRACE = 3.0
"""Seconds that cancelled coroutines may take to end when the actor stops or is restarted."""

CANCELLED = "the failure restarted or stopped the resident actor, which cancelled this call"

running: contextvars.ContextVar[Item | None] = contextvars.ContextVar("callboard_running", default=None)
"""The call that the present code belongs to."""


class Awaits(BaseException):
    """A method returned an awaitable: its result is that of the call."""

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        self.awaitable = awaitable


def has_coroutines(cls: type) -> bool:
    """True if a class has methods that are coroutines or async generators."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        if inspect.isfunction(method):
            method = inspect.unwrap(method)
            if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
                return True
    return False


def set_up(instance: ResidentActor, context: HostContext, coroutines: "Coroutines | None") -> None:
    """Set an instance up; on its loop if it has one."""

    async def on_loop() -> None:
        result: Any = instance.setup(context)  # type: ignore[func-returns-value]
        if inspect.isawaitable(result):
            await result

    if coroutines is None:
        instance.setup(context)
    else:
        coroutines._run(on_loop())


class Coroutines:
    """The loop of one actor.

    Calls begin in the order in which they were made. A coroutine that finds ``max_concurrency`` others running waits
    for one of them to end, and later coroutines wait too, but not plain methods. A call waits for an earlier one, and
    later calls wait behind it, if both use a device array and one of them may write it. Steps of one stream run one
    after the other.

    Args:
        thread: The actor's thread; everything but :meth:`wake` and :meth:`cancel` is called on it.
        cls: The actor's class.

    Raises:
        TypeError: ``prepare`` is async.
    """

    def __init__(self, thread: "ActorThread", cls: type[ResidentActor]) -> None:
        if inspect.iscoroutinefunction(cls.prepare):
            raise TypeError(f"{cls.__qualname__}.prepare is async; it runs before the loop, so make it a plain method")
        self._thread = thread
        self._limit = cls.max_concurrency
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: deque[Item] = deque()
        self._waiting: deque[tuple[Item, Awaitable[Any]]] = deque()  # coroutines that have not begun
        self._running: dict[int, tuple[Item, asyncio.Task[Any]]] = {}  # by id of the call
        self._busy: dict[int, deque[Item]] = {}  # streams with a step that runs or waits, and the steps after it
        self._failed: deque[Outcome] = deque()
        self._leave: asyncio.Future[None] | None = None  # the loop runs, until this is done
        self._error: BaseException | None = None
        self._yielding = False

    # -- any thread ----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Calls have been queued, or the actor is to end."""
        self._soon(lambda: self._guarded(_nothing))

    def cancel(self, call: int) -> None:
        """Cancel the coroutine of a call if it runs; its caller gets ``Withdrawn`` when it has ended."""
        self._soon(lambda: self._guarded(self._cancel, call))

    def _soon(self, action: Callable[[], None]) -> None:
        if self._loop is not None:  # else there is nothing to do yet
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(action)

    def _cancel(self, call: int) -> None:
        if call in self._running:
            _cancel_once(self._running[call][1])
        for item, awaitable in list(self._waiting):
            if item.message.id == call:
                self._waiting.remove((item, awaitable))
                _forget(awaitable)
                self._end(Outcome(item, None, _withdrawn(), True))
                self._advance(item.stream)

    # -- the actor's thread --------------------------------------------------------------------------------------------

    def serve(self) -> FailureMessage | None:
        """Run calls until the actor must stop; returns the failure if it stops because of one."""
        thread = self._thread
        cause: FailureMessage | None = None
        while cause is None and not thread.stopping:
            try:
                self._run(self._serve())
            except (SystemExit, KeyboardInterrupt) as e:  # of a task or callback of the actor's own
                if self._leave is not None and not self._leave.done():
                    self._leave.set_result(None)  # no calls begin
                cause = thread.fail(e)
            if self._error is not None:
                raise self._error
            while self._failed and cause is None:
                cause = thread.finish(self._failed.popleft())
        return cause

    def fail(self, failure: FailureMessage) -> None:
        """A failure restarts or stops the actor: cancel running calls; the callers get the failure."""
        self._end_all()
        behind = self._behind()
        for outcome in [*self._ended(), *(Outcome(item, None) for item in behind if item.claim())]:
            error = outcome.error or Broken(failure, CANCELLED)
            self._thread.finish(Outcome(outcome.item, None, error, True))

    def close(self) -> None:
        """The actor ends: cancel running calls. They fail along with those that have not begun."""
        if self._loop is None:
            return
        try:
            self._end_all()
            for item in self._behind():
                self._thread._items.put(item)
            for outcome in self._ended():
                error = outcome.error or ActorStopped(f"resident actor {self._thread.name} has stopped")
                self._thread.finish(Outcome(outcome.item, None, error, True))
            self._thread._streams.close()
            self._finish_tasks(asyncio.all_tasks(self._loop))
            self._run(self._loop.shutdown_asyncgens())
            self._loop.close()
        except BaseException:  # a user's task may raise anything; the actor ends all the same
            log.exception("resident actor %s: its event loop was not closed", self._thread.name)
        for item in self._ready:
            self._thread._items.put(item)

    def _ended(self) -> list[Outcome]:
        """The calls that have failed, and those that were cancelled here, which have no error."""
        ended = [msgspec.structs.replace(o, error=None) if isinstance(o.error, Withdrawn) else o for o in self._failed]
        self._failed.clear()
        for item, awaitable in self._waiting:
            _forget(awaitable)
            ended.append(Outcome(item, None))
        self._waiting.clear()
        return ended

    def _behind(self) -> list[Item]:
        """The steps that have not begun because their streams are busy; the host may have refused some meanwhile."""
        items = [item for behind in self._busy.values() for item in behind]
        self._busy.clear()
        return items

    def finish(self, awaitable: Awaitable[Any]) -> None:
        """Await something while no calls are served, for :data:`GRACE` at most."""

        async def finish() -> None:
            async with asyncio.timeout(GRACE):
                await awaitable

        self._run(finish())

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(coroutine)

    async def _serve(self) -> None:
        self._leave = asyncio.get_running_loop().create_future()
        try:
            self._guarded(_nothing)
            await self._leave
        finally:
            self._leave = None

    def _guarded(self, action: Callable[..., Any], *args: Any) -> None:
        """Act on an event, and begin the calls that can begin."""
        try:
            action(*args)
            self._pump()
        except BaseException as e:  # an error of this module, which ends the actor
            self._error = e
        leave = self._leave
        if leave is not None and not leave.done() and (self._failed or self._error or self._thread.stopping):
            leave.set_result(None)

    def _pump(self) -> None:
        if self._leave is not None and not self._leave.done():
            self._take()
            while not (self._failed or self._yielding) and self._begin():
                pass

    def _resume(self) -> None:
        self._yielding = False

    def _take(self) -> None:
        items = self._thread._items
        while items:
            item = items.get()
            if item is None:
                continue
            self._ready.append(item)
            if is_closing(item.message.body):
                stream = stream_of(item.message.body)
                for other in [i for i, _ in self._running.values()] + [i for i, _ in self._waiting]:
                    if other.stream == stream:
                        self._cancel(other.message.id)

    def _begin(self) -> bool:
        """Begin the next call; whether another one may begin."""
        if self._waiting and len(self._running) < self._limit:
            self._start(*self._waiting.popleft())
            return True
        if not self._ready or self._thread.stopping:
            return False
        item = self._ready[0]
        stream = stream_of(item.message.body)
        if stream in self._busy:
            if is_closing(item.message.body):
                return False  # its step is being cancelled; calls behind this one see the generator closed
            self._busy[stream].append(self._ready.popleft())
            return True
        others = [other for other, _ in (*self._running.values(), *self._waiting)] if item.blocks else []
        if any(_conflict(item, other) for other in others):
            return False
        self._ready.popleft()
        if item.claim():
            self._end(self._thread.outcome(item))
        return True

    def _end(self, outcome: Outcome) -> bool:
        """A method has returned or raised, or its coroutine has; False if the coroutine only begins."""
        item, error = outcome.item, outcome.error
        if isinstance(error, Awaits):
            self._waiting.append((item, error.awaitable))
            if item.stream:
                self._busy.setdefault(item.stream, deque())
            return False
        if error is None:
            self._thread.finish(outcome)
        else:
            self._failed.append(outcome)
            self._thread._streams.leave(item.stream)  # the items after the failure are not made
        return True

    def _advance(self, stream: int) -> None:
        """A step of a stream has ended: the next one waits for its turn."""
        behind = self._busy.get(stream)
        if behind is not None:
            while behind:
                item = behind.popleft()
                if item.claim() and not self._end(self._thread.outcome(item)):
                    return
            del self._busy[stream]

    def _start(self, item: Item, awaitable: Awaitable[Any]) -> None:
        assert self._loop is not None
        context = contextvars.copy_context()
        context.run(running.set, item)
        context.run(TRACE.set, item.trace)
        task = self._loop.create_task(_caught(awaitable), context=context)
        self._running[item.message.id] = item, task
        self._yielding = True  # later calls begin when this one has run up to its first await
        self._loop.call_soon(self._guarded, self._resume)
        task.add_done_callback(lambda task: self._guarded(self._done, item, task, awaitable))

    def _done(self, item: Item, task: "asyncio.Task[Any]", awaitable: Awaitable[Any]) -> None:
        if self._running.pop(item.message.id, None) is None:
            return  # it took too long to end

        def result() -> Any:
            if task.cancelled():
                _forget(awaitable)
                raise _withdrawn()
            value, error = task.result()
            if error is not None:
                raise error
            return value

        outcome = self._thread.outcome(item, result)
        if isinstance(outcome.error, Awaits):
            _forget(outcome.error.awaitable)
            outcome = Outcome(
                item, None, TypeError("the coroutine returned an awaitable; await it in the method"), True
            )
        self._end(outcome)
        self._advance(item.stream)

    def _end_all(self) -> None:
        """Cancel running calls, and wait; calls that do not end in time are abandoned."""
        self._finish_tasks({task for _, task in self._running.values()})
        for item, _ in list(self._running.values()):
            log.error(
                "resident actor %s: call %d was cancelled and goes on after %g s",
                self._thread.name,
                item.message.id,
                GRACE,
            )
            self._failed.append(Outcome(item, None))
        self._running.clear()

    def _finish_tasks(self, tasks: "set[asyncio.Task[Any]]") -> None:
        async def finish() -> None:
            for task in tasks:
                _cancel_once(task)
            await asyncio.wait(tasks, timeout=GRACE)
            await asyncio.sleep(0)  # their callbacks

        if tasks:
            self._run(finish())


async def _caught(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """The result, or the error; the loop itself would end by some of them."""
    try:
        return await awaitable, None
    except asyncio.CancelledError:
        raise
    except BaseException as e:  # the actor's strategy decides
        return None, e


def _cancel_once(task: "asyncio.Task[Any]") -> None:
    """Cancel a task; a second time would interrupt its ``finally`` blocks."""
    if not task.cancelling():
        task.cancel()


def _nothing() -> None: ...


def _withdrawn() -> Withdrawn:
    return Withdrawn("the coroutine of the call was cancelled")


def _forget(awaitable: Awaitable[Any]) -> None:
    """It will not be awaited: a coroutine that has not begun would complain."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()


def _conflict(one: Item, other: Item) -> bool:
    """True if two calls use the same device array, and one of them may write it."""
    return any(a is b and (w or v) for a, w in one.blocks for b, v in other.blocks)
