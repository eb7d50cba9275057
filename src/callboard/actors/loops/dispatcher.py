"""Dispatchers: on which thread and loop an actor runs."""

import asyncio
import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from callboard.actors.clock import Clock
from callboard.actors.errors import returned
from callboard.actors.loops.port import Port

__all__ = ["LONG_ITERATION", "CallerLoop", "Dispatcher", "LoopLag", "Pinned", "PinnedThread"]

_log = logging.getLogger("callboard.actors")


LONG_ITERATION = 1e-3
"""Seconds of an iteration of the system's loop that delays a pinned thread noticeably: the thread may wait for the GIL
that long."""


class LoopLag(NamedTuple):
    """The duration of iterations of the system's loop, sampled ten times per second.

    Attributes:
        last: Seconds that the last sample took.
        longest: Seconds that the longest took.
        samples: Number of samples.
        long: Number of samples that took longer than :data:`LONG_ITERATION`.
    """

    last: float
    longest: float
    samples: int
    long: int


class Dispatcher(ABC):
    """Says where an actor runs; a value, which may be shared by many Props and systems."""

    @property
    @abstractmethod
    def key(self) -> str | None:
        """Actors with the same key share a thread; None is the system's own loop."""

    @abstractmethod
    def start(self, clock: Clock) -> "PinnedThread | None":
        """Start the thread, once per system; None when there is none to start."""


@dataclass(frozen=True, slots=True)
class CallerLoop(Dispatcher):
    """The loop that entered the system."""

    @property
    def key(self) -> str | None:
        return None

    def start(self, clock: Clock) -> "PinnedThread | None":
        return None


@dataclass(frozen=True, slots=True)
class Pinned(Dispatcher):
    """An OS thread with its own event loop. All actors with the same name share it, so handles stay on one thread.

    Args:
        name: of the thread.
        switch_interval: ``sys.setswitchinterval`` is lowered to this many seconds when the thread starts (never raised,
            and not put back): with the default of 5 ms a busy event loop starves a second thread for seconds. None
            leaves it alone.
        loop_factory: makes the loop; ``uvloop.new_event_loop`` works too.
    """

    name: str
    switch_interval: float | None = 2e-5
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop

    @property
    def key(self) -> str | None:
        return self.name

    def start(self, clock: Clock) -> "PinnedThread":
        if self.switch_interval is not None and sys.getswitchinterval() > self.switch_interval:
            sys.setswitchinterval(self.switch_interval)
        return PinnedThread(self.name, self.loop_factory, clock)


class PinnedThread:
    """A running pinned dispatcher of one system."""

    def __init__(self, name: str, loop_factory: Callable[[], asyncio.AbstractEventLoop], clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._factory = loop_factory
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._on_end: Callable[[], object] | None = None
        self._port: Port | None = None
        # A daemon: a handler that never returns must not keep the interpreter from exiting.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        if not self._ready.wait(10.0):
            raise RuntimeError(f"thread {name} did not start within 10 s")
        if self._failure is not None:
            raise RuntimeError(f"thread {name} could not make its loop: {self._failure!r}") from self._failure

    @property
    def port(self) -> Port:
        """The thread's loop, for others."""
        assert self._port is not None
        return self._port

    def _main(self) -> None:
        try:
            loop = self._factory()
            if not isinstance(loop, asyncio.AbstractEventLoop):
                raise returned("loop_factory", loop, "an event loop")
            self._port = Port(loop, self._clock)
        except BaseException as error:  # raised in the thread that waits for this one
            self._failure = error
            self._ready.set()
            return
        asyncio.set_event_loop(loop)
        loop.call_soon(self._ready.set)
        try:
            loop.run_forever()
        finally:
            self._port.close()
            self._cancel_leftovers(loop)
            asyncio.set_event_loop(None)
            loop.close()
            if self._on_end is not None:
                self._on_end()

    def _cancel_leftovers(self, loop: asyncio.AbstractEventLoop) -> None:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
            loop.run_until_complete(loop.shutdown_asyncgens())
        except Exception:  # of the tasks, which are user code; the loop is closed all the same
            _log.exception("thread %s could not end its tasks", self.name)

    def stop(self, on_end: Callable[[], object]) -> None:
        """End the loop; ``on_end`` is called in the thread as its last act."""
        self._on_end = on_end
        try:
            self.port.loop.call_soon_threadsafe(self.port.loop.stop)
        except RuntimeError:
            on_end()

    def is_alive(self) -> bool:
        """True if the thread runs."""
        return self._thread.is_alive()
