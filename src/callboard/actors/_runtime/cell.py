"""The cell behind an :class:`ActorRef`: two lanes and one task.

Any thread appends to a lane and then reads ``awake``; the owner clears ``awake`` and then checks the lanes again before
it sleeps. At least one of the two sees the other's write, so no message is missed, and a wake-up is only needed when
the actor sleeps.
"""

import asyncio
import logging
from asyncio import sleep
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from callboard.actors._runtime import completion, lifecycle
from callboard.actors._runtime.background import Background
from callboard.actors._runtime.children import Children
from callboard.actors._runtime.current import CURRENT
from callboard.actors._runtime.dispatch import Dispatch
from callboard.actors._runtime.envelopes import Ask, Carried, Kill, Obituary, Poison, Tick, message_of
from callboard.actors._runtime.stash import Stash
from callboard.actors._runtime.table import COROUTINE
from callboard.actors.actor import Actor
from callboard.actors.clock import Cancellable
from callboard.actors.errors import MailboxFull, ReplyError
from callboard.actors.props import Props
from callboard.actors.refs import ActorRef, ref_to
from callboard.actors.supervision import RestartLog, Strategy, unwrap
from callboard.actors.timers import Timers
from callboard.actors.watch import Watches
from callboard.events.concerns import TRACE
from callboard.events.kinds import MESSAGE
from callboard.events.ring import EVENTS, Ring, now

if TYPE_CHECKING:
    from callboard.actors._runtime.recording import Tap
    from callboard.actors.loops.port import Port
    from callboard.actors.system import ActorSystem

__all__ = ["THROUGHPUT", "Cell"]

_log = logging.getLogger("callboard.actors")

THROUGHPUT: Final = 128
"""Messages handled in a row before other tasks of the loop get their turn."""

TAKEN: Final = object()
"""In ``Cell.current``: the message was stashed or forwarded, so its asker is no longer ours."""


class Cell:
    """One actor: identity, lanes, task and the current instance. Created by its parent; runs on its port's thread."""

    __slots__ = (
        "actor",
        "awake",
        "background",
        "cause",
        "children",
        "closed",
        "constructing",
        "current",
        "dispatch",
        "force_timer",
        "gone",
        "group_log",
        "incarnation",
        "inflight",
        "kinds",
        "lane",
        "listeners",
        "name",
        "parent",
        "path",
        "port",
        "props",
        "push",
        "ref",
        "restart_log",
        "started",
        "stash",
        "stop_deadline",
        "stopping",
        "strategy",
        "suspended",
        "system",
        "system_lane",
        "taken",
        "tap",
        "task",
        "timers",
        "uid",
        "waiter",
        "watches",
    )

    def __init__(
        self,
        system: "ActorSystem",
        parent: "Cell | None",
        props: Props[Any],
        name: str,
        port: "Port",
        strategy: Strategy,
    ) -> None:
        self.system = system
        self.parent = parent
        self.props = props
        self.name = name
        self.path: str = f"{parent.path}/{name}" if parent is not None else f"/{name}"
        self.uid: int = next(system.uids)
        self.port = port
        self.ref: ActorRef[Any] = ref_to(self)
        self.tap: Tap | None = None if system.recorder is None else system.recorder.attach(self.path, props, self)
        self.lane = props.mailbox.lane(self.path, self._rejected)
        if self.tap is not None:
            self.lane = self.tap.lane(self.lane)
        self.push = self.lane.push
        self.system_lane: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self.awake = True  # until its task first sleeps, it need not be woken
        self.waiter: asyncio.Future[None] | None = None
        self.closed = False
        self.gone = False
        self.cause: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.actor: Actor | None = None
        self.constructing = False
        self.started = False
        self.stopping = False
        self.suspended = False
        self.incarnation = 0
        self.kinds = system.kinds
        self.taken = TAKEN
        self.current: Any = TAKEN
        self.inflight: set[Ask] = set()
        self.strategy = strategy
        self.restart_log = RestartLog()
        self.group_log = RestartLog()
        self.stop_deadline: float | None = None
        self.force_timer: Cancellable | None = None
        self.listeners: dict[Any, Callable[[BaseException | None], object]] = {}
        self.dispatch = Dispatch(self)
        self.children = Children(self)
        self.watches = Watches(self)
        self.stash = Stash(self)
        self.timers = Timers(self)
        self.background = Background(self)

    # -- from any thread -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make the task look into its lanes; after the end, empty them here."""
        if self.closed:
            self.drain()
            if self.gone:
                self._drain_system()
            return
        self.awake = True  # before the hand-over: after it, the owner may already have gone to sleep again
        try:
            reached = self.port.run(self.on_wake)
        except RuntimeError:  # this thread's loop is closed
            reached = False
        if not reached:
            self.abandon()

    def on_wake(self) -> None:
        """Wake the task; on its thread."""
        self.awake = True
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def push_internal(self, item: Any) -> None:
        """Queue a pill, tick or obituary, whatever the bound."""
        self.lane.push_always(item)
        if not self.awake:
            self.wake()

    def post_system(self, call: Callable[..., Any], *args: Any) -> None:
        """Have ``call(cell, *args)`` made by the task before its next message."""
        self.system_lane.append((call, args))
        if not self.awake:
            self.wake()

    def dead(self, message: Any, reason: str) -> None:
        """Publish a dead letter."""
        self.system.dead_letters.publish(message, self.path, reason)

    def discard(self, item: Any, reason: str = "stopped") -> None:
        """Account for an item that will not be handled."""
        if isinstance(item, Tick | Obituary | Poison | Kill):
            return
        self.dead(message_of(item), reason)
        if isinstance(item, Ask) and item.is_open():
            item.refuse(lifecycle.stopped_error(self), seen=True)

    def _rejected(self, item: Any, reason: str) -> None:
        self.dead(message_of(item), reason)
        if isinstance(item, Ask):
            item.refuse(MailboxFull(f"the mailbox of {self.path} is full ({self.lane.capacity} messages)"), seen=True)

    def drain(self) -> None:
        """Discard queued messages; allowed on any thread once the cell is closed."""
        while self.lane.items:
            try:
                item = self.lane.pop()
            except IndexError:
                return
            self.discard(item)

    def _drain_system(self) -> None:
        while self.system_lane:
            try:
                call, args = self.system_lane.popleft()
            except IndexError:
                return
            if call is lifecycle.on_listen:
                args[1](self.cause)

    def abandon(self) -> None:
        """The loop is closed, so the task never runs again: fail waiting messages."""
        self.closed = self.gone = True
        self.awake = False
        self.lane.close()
        self.drain()
        self._drain_system()
        for listener in list(self.listeners.values()):
            listener(self.cause)

    def request_stop(self, timeout: float | None) -> None:
        """Stop within ``timeout`` seconds (None: the system's), then cancel."""
        seconds = self.system.stop_timeout if timeout is None else max(0.0, timeout)
        if not self.gone and not self.port.run(self.begin_stop, seconds):
            self.abandon()

    def begin_stop(self, seconds: float) -> None:
        """The same, on the port's thread."""
        if self.gone:
            return
        deadline = self.port.clock.time() + seconds
        if self.stop_deadline is None or deadline < self.stop_deadline:
            self.stop_deadline = deadline
            if self.force_timer is not None:
                self.force_timer.cancel()
            self.force_timer = self.port.clock.call_later(seconds, self._force)
        self.post_system(lifecycle.on_stop)

    def _force(self) -> None:
        if self.task is not None and not self.stopping:
            _log.warning("%s did not stop in time while handling %s: cancelled", self.path, self._doing())
            self.task.cancel()

    def _doing(self) -> str:
        return "a hook" if self.current is TAKEN else type(message_of(self.current)).__qualname__

    # -- the task ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the task; on the port's thread."""
        self.task = self.port.loop.create_task(self._main(), name=self.path)

    async def _main(self) -> None:
        CURRENT.set(self)
        TRACE.set(None)  # what made it is not what its messages are for
        cause: BaseException | None = None
        try:
            await lifecycle.first_start(self)
            await self._serve()
        except lifecycle.Stop as stop:
            cause = stop.cause
        except asyncio.CancelledError:
            pass
        except GeneratorExit:  # the loop was closed and forgot this task
            self.abandon()
            raise
        except (KeyboardInterrupt, SystemExit) as error:
            self.system._fatal(error)
            cause = error
        except BaseException as error:  # of any class: no actor ends without a word
            _log.exception("defect in the actor runtime: %s stops", self.path)
            cause = error
        await lifecycle.finish(self, cause)

    async def _serve(self) -> None:
        lane, system_lane, kinds, here = self.lane, self.system_lane, self.kinds, self.port
        items, pop, dispatch = lane.items, lane.pop, self.dispatch
        create_future = self.port.loop.create_future
        budget = THROUGHPUT
        traced = False
        while True:
            if traced:
                TRACE.set(None)
                traced = False
            while system_lane:
                await self._run_system()
            if not items or self.suspended:
                self.awake = False
                if system_lane or (items and not self.suspended):
                    self.awake = True
                    continue
                self.waiter = create_future()
                await self.waiter
                self.waiter = None
                budget = THROUGHPUT
                continue
            if not budget:
                budget = THROUGHPUT
                await sleep(0)
                continue
            budget -= 1
            try:
                item = pop()
            except IndexError:  # another thread dropped the oldest message
                continue
            ring = EVENTS.ring
            began = 0 if ring is None else now()
            if type(item) is Ask:
                if item.future.cancelled():
                    self.dead(item.message, "cancelled")
                    continue
                message = item.message
                if item.trace is not None:
                    TRACE.set(item.trace)
                    traced = True
                handler = dispatch.table.get(type(message))
                self.current = item
                try:
                    result = handler(message) if handler is not None else dispatch.resolve(message)(message)
                    kind = kinds[type(result)]
                    if kind:
                        if kind != COROUTINE:
                            completion.follow(self, result, item)
                            self.current = TAKEN
                            if ring is not None:
                                self._record(ring, item, began, ok=True)
                            continue
                        result = await result
                except BaseException as error:  # whatever a handler raises is for the supervisor
                    if ring is not None:
                        self._record(ring, item, began, ok=False)
                        ring = None
                    await self._failed(error, item)
                else:
                    if self.current is item:
                        item.answer(result, here)
            else:
                message = item
                if type(item) is Carried:
                    message = item.message
                    TRACE.set(item.trace)
                    traced = True
                handler = dispatch.table.get(type(message))
                self.current = item
                try:
                    result = handler(message) if handler is not None else dispatch.resolve(message)(message)
                    if result is not None:
                        kind = kinds[type(result)]
                        if kind == COROUTINE:
                            await result
                        elif kind:
                            completion.follow(self, result, item)
                except BaseException as error:  # likewise
                    if ring is not None:
                        self._record(ring, item, began, ok=False)
                        ring = None
                    await self._failed(error, item)
            self.current = TAKEN
            if ring is not None:
                self._record(ring, item, began, ok=True)
            if self.timers.idle is not None:
                self.timers.idle.touch(message_of(item))

    def _record(self, ring: Ring, item: Any, began: int, ok: bool) -> None:
        """Write that a message was handled; a failure is written before the supervisor acts on it."""
        ring.append((next(ring.numbers), now(), MESSAGE, self.path, type(message_of(item)), began, ok))

    async def _run_system(self) -> None:
        call, args = self.system_lane.popleft()
        try:
            result = call(self, *args)
            if asyncio.iscoroutine(result):
                await result
        except lifecycle.Stop:
            raise
        except Exception:  # a defect of the runtime, and no reason to leave the user's messages
            _log.exception("%s: a system message failed", self.path)

    async def _failed(self, error: BaseException, item: Any) -> None:
        """A handler raised: answer the asker, and let the supervisor decide unless the error is itself an answer."""
        if isinstance(error, GeneratorExit):
            raise error
        error = unwrap(error)
        ask = item if type(item) is Ask and self.current is item else None
        message = message_of(item)
        if isinstance(error, asyncio.CancelledError):
            if self.task is not None and self.task.cancelling():
                if ask is not None:
                    ask.refuse(lifecycle.stopped_error(self), seen=True)
                raise error
            error = completion.as_failure(error, self.path, message)
        self.answer_error(error, ask, message)
        self.current = TAKEN
        if not isinstance(error, ReplyError):
            await lifecycle.supervise(self, error, message)

    def answer_error(self, error: BaseException, ask: Ask | None, message: Any) -> None:
        """Pass an error to the asker.

        An answer that has no asker is logged and dead-lettered, so that it is not lost.
        """
        if ask is not None:
            answer = RuntimeError(f"a handler raised {error!r}") if isinstance(error, StopIteration) else error
            ask.refuse(answer, seen=not isinstance(error, ReplyError))
        elif isinstance(error, ReplyError):
            _log.warning("%s replied to %s, which was sent by tell: %r", self.path, type(message).__qualname__, error)
            self.dead(message, "reply_error")

    def adopt(self, actor: Actor) -> None:
        """Take a new instance: its table, its strategy."""
        self.actor = actor
        self.strategy = Strategy.checked(actor.supervision)
        self.dispatch.adopt(actor)

    def current_ask(self) -> Ask | None:
        """The envelope of the current message if it was asked, not told."""
        return self.current if type(self.current) is Ask else None
