"""ActorSystem: the root of a tree of actors, and everything its actors share."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from callboard.actors._runtime.cell import Cell
from callboard.actors._runtime.recording import Recorder
from callboard.actors._runtime.signals import StopSignals
from callboard.actors._runtime.table import ResultKinds
from callboard.actors.actor import Actor
from callboard.actors.clock import Clock, LoopClock
from callboard.actors.deadletters import DeadLetters
from callboard.actors.handles import Handle
from callboard.actors.loops.dispatcher import LoopLag, PinnedThread
from callboard.actors.loops.looplag import LagGauge
from callboard.actors.loops.port import Port
from callboard.actors.props import Props
from callboard.actors.refs import ActorRef
from callboard.actors.shutdown import CoordinatedShutdown
from callboard.actors.supervision import OneForOne, Strategy
from callboard.events.names import check_name

__all__ = ["ActorSystem"]

_log = logging.getLogger("callboard.actors")

A = TypeVar("A", bound=Actor)

_THREAD_END: Final = 2.0


class _Guardian(Actor):
    """The parent of all actors that the application makes."""

    def __init__(self, supervision: Strategy) -> None:
        self.supervision = supervision


class ActorSystem(Handle):
    """A tree of actors on one event loop, plus pinned threads.

    An async context manager: leaving it stops everything and waits for it.

    Args:
        name: first part of every path.
        supervision: for the actors at the top; by default as for any actor: exceptions restart, failed starts and kills
            stop.
        clock: source of the time; tests pass a ``ManualClock``.
        stop_timeout: seconds an actor has to stop before its running handler is cancelled.
        dead_letters: the store to use instead of a new one.
        stop_signals: signals (``signal.SIGTERM``) that end the system, and then its ``async with`` body by
            ``SystemExit(128 + number)``; taken from :meth:`start` until the system has ended.
        recorder: observer of the messages that actors handle, such as a
            :class:`ReplayHarness <callboard.ReplayHarness>`.

    Raises:
        TypeError, ValueError: ``name`` is not text of at most 256 characters.

    Attributes:
        dead_letters: store of the messages that could not be delivered.
        shutdown: the phases of leaving; tasks can be added.
        failure: the error that ended the system; None if there was none.
    """

    def __init__(
        self,
        name: str = "callboard",
        *,
        supervision: Strategy | None = None,
        clock: Clock | None = None,
        stop_timeout: float = 10.0,
        dead_letters: DeadLetters | None = None,
        stop_signals: Collection[int] = (),
        recorder: Recorder | None = None,
    ) -> None:
        check_name("a system", name)
        self.name = name
        self.recorder = recorder
        self.clock = LoopClock() if clock is None else clock
        self.stop_timeout = stop_timeout
        self.dead_letters = DeadLetters() if dead_letters is None else dead_letters
        self.failure: BaseException | None = None
        self.uids = itertools.count(1)
        self.kinds = ResultKinds()
        self.is_stopping = False
        self.shutdown = CoordinatedShutdown(self.clock)
        self._supervision = OneForOne() if supervision is None else Strategy.checked(supervision)
        self._stop_signals = stop_signals
        self._signals: StopSignals | None = None
        self._port: Port | None = None
        self._ports: dict[asyncio.AbstractEventLoop, Port] = {}
        self._threads: dict[str, PinnedThread] = {}
        self._lag: LagGauge | None = None
        self._guardian: Cell | None = None
        self._terminated: asyncio.Event | None = None
        self._body: asyncio.Task[Any] | None = None
        self._on_termination: list[Callable[[], object]] = []
        self._stop_task: asyncio.Task[None] | None = None

    # -- begin and end -------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Bind the system to the running loop; ``async with`` does this.

        Raises:
            RuntimeError: it was started before, or cannot take ``stop_signals`` (not on the main thread).
        """
        if self._port is not None:
            raise RuntimeError(f"the system {self.name} was started before; make a new one")
        if self._stop_signals:
            self._signals = StopSignals(asyncio.get_running_loop(), self._stop_signals, self._end_by)
        self._port = self._port_of(asyncio.get_running_loop())
        self._terminated = asyncio.Event()
        self._guardian = Cell(self, None, Props(_Guardian, self._supervision), self.name, self._port, self._supervision)
        self._guardian.start()
        self.shutdown.add_task("actors", "stop all actors", self._stop_actors, timeout=self.stop_timeout + 5.0)
        return self

    async def stop(self, *, timeout: float | None = None) -> None:
        """Run the shutdown phases, stop all actors, end the threads. Once: later calls wait for the first.

        Args:
            timeout: seconds the actors get; None for ``stop_timeout``.
        """
        if self._port is None:
            return
        if asyncio.get_running_loop() is not self._port.loop:
            raise RuntimeError(f"the system {self.name} belongs to another loop")
        if self._stop_task is None:
            if timeout is not None:
                self.stop_timeout = timeout
            self._stop_task = self._port.loop.create_task(self._stop(), name=f"/{self.name} stop")
        await asyncio.shield(self._stop_task)

    async def _stop(self) -> None:
        try:
            await self.shutdown.run()
        except Exception:  # of user code, by phase; the actors are stopped all the same
            _log.exception("the shutdown of %s was not complete", self.name)
        await self._stop_actors()
        if self._lag is not None:
            self._lag.stop()
        await asyncio.gather(*(self._end_thread(thread) for thread in self._threads.values()))
        for port in list(self._ports.values()):
            port.run(port.close)
        if self._signals is not None:
            self._signals.close()
        assert self._terminated is not None
        self._terminated.set()
        for callback in reversed(self._on_termination):
            try:
                callback()
            except Exception:  # user code; the other callbacks are still due
                _log.exception("a termination callback failed")

    async def _stop_actors(self) -> None:
        guardian = self._guardian
        assert guardian is not None
        self.is_stopping = True
        if not guardian.gone:
            guardian.request_stop(self.stop_timeout)
            try:
                await guardian.ref.stopped(timeout=self.stop_timeout + 4.0)
            except TimeoutError:
                _log.error("%s did not stop in time", guardian.path)

    async def _end_thread(self, thread: PinnedThread) -> None:
        assert self._port is not None
        ended: asyncio.Future[None] = self._port.loop.create_future()

        def done() -> None:
            if not ended.done():
                ended.set_result(None)

        thread.stop(lambda: self._port is not None and self._port.post(done))
        timer = self._port.loop.call_later(_THREAD_END, done)
        await ended
        timer.cancel()
        if thread.port.loop.is_running():
            _log.error("thread %s does not end; it is left behind", thread.name)

    @property
    def loop_lag(self) -> LoopLag | None:
        """The duration of iterations of the system's loop; None until the first pinned thread exists.

        An iteration of more than a millisecond is logged as a warning, once a minute at most.
        """
        return None if self._lag is None else self._lag.value

    async def terminated(self, *, timeout: float) -> None:
        """Wait until the system has ended.

        Raises:
            TimeoutError: it did not end within ``timeout`` seconds.
        """
        if self._terminated is not None:
            async with asyncio.timeout(timeout):
                await self._terminated.wait()

    def on_termination(self, callback: Callable[[], object]) -> None:
        """Call ``callback()`` when the system has ended; the last one registered is called first."""
        self._on_termination.append(callback)

    async def __aenter__(self) -> Self:
        await self.start()
        self._body = asyncio.current_task()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        await self.stop()
        if self.failure is not None and (exc is None or isinstance(exc, asyncio.CancelledError)):
            if isinstance(exc, asyncio.CancelledError) and body is not None:
                body.uncancel()
            raise self.failure

    if not TYPE_CHECKING:  # checkers refuse it

        def __enter__(self):
            name = type(self).__name__
            raise TypeError(f"{name} is for asyncio: use `async with {name}(...) as system`")

        def __exit__(self, *_):
            """Defined so that ``with`` calls ``__enter__``."""

    # -- actors --------------------------------------------------------------------------------------------------------

    def actor_of(self, props: Props[A], name: str | None = None) -> ActorRef[A]:
        """Make an actor at the top of the tree; on the system's own loop only.

        Raises:
            ValueError: the name is not valid.
            NameInUse: a living actor at the top has it.
            ActorStopped: the system is stopping.
            RuntimeError: the system is not started, or this is another thread.
        """
        guardian = self._guardian
        if guardian is None:
            raise RuntimeError(f"the system {self.name} is not started; use 'async with'")
        if not guardian.port.is_here():
            raise RuntimeError(f"the system {self.name} belongs to another thread; make actors there")
        return guardian.children.spawn(props, name).ref

    spawn = actor_of

    @property
    def actors(self) -> list[ActorRef[Any]]:
        """The living actors at the top, oldest first."""
        return [] if self._guardian is None else [cell.ref for cell in self._guardian.children.cells()]

    # -- for the runtime -----------------------------------------------------------------------------------------------

    def _new_cell(self, parent: Cell, props: Props[Any], name: str) -> Cell:
        """Make a cell on the thread its Props name, or the parent's."""
        port = parent.port
        if props.dispatcher is not None:
            key = props.dispatcher.key
            assert self._port is not None
            port = self._port if key is None else self._thread(key, props).port
        return Cell(self, parent, props, name, port, Actor.supervision)

    def _thread(self, key: str, props: Props[Any]) -> PinnedThread:
        thread = self._threads.get(key)
        if thread is None:
            assert props.dispatcher is not None
            started = props.dispatcher.start(self.clock)
            assert started is not None
            thread = self._threads.setdefault(key, started)
            self._ports[thread.port.loop] = thread.port
            if self._lag is None:
                assert self._port is not None
                self._lag = LagGauge(self._port.loop, self.name)
                self._port.run(self._lag.start)  # the caller may be an actor on another thread
        return thread

    def _port_of(self, loop: asyncio.AbstractEventLoop) -> Port:
        """The port of a loop; to be called on its thread."""
        port = self._ports.get(loop)
        if port is None:
            for other in [other for other in list(self._ports) if other.is_closed()]:
                self._ports.pop(other, None)
            port = self._ports[loop] = Port(loop, self.clock)
        return port

    def _fatal(self, error: BaseException) -> None:
        """An actor raised KeyboardInterrupt or SystemExit: end the system and its ``async with`` body."""
        if self._port is not None:
            self._port.run(self._end_by, error)

    def _end_by(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        if self._body is not None:
            self._body.cancel()
        elif self._stop_task is None and self._port is not None:
            self._stop_task = self._port.loop.create_task(self._stop(), name=f"/{self.name} stop")

    async def _guardian_gone(self, cause: BaseException | None) -> None:
        """The guardian has ended: by itself, after a failure or because its loop ends, it takes the system with it.

        Stopping runs in the guardian's task: ``asyncio.run`` cancels the tasks of a system that was never stopped, and
        waits for them, but not for tasks that are made then.
        """
        self.is_stopping = True
        if cause is not None and self.failure is None:
            self.failure = cause
        if self._stop_task is None and self._guardian is not None:
            self._stop_task = self._guardian.task
            await self._stop()

    def __repr__(self) -> str:
        return f"<ActorSystem {self.name}>"
