"""``LoopHost``: a context on the caller's own loop. No thread, no hand-over: a call launches its op itself.

The lowest latency there is, for code that lives on the dispatcher's loop: a service whose loop does little else, or
actors pinned to a thread of their own. The loop polls while work is in flight, and opening blocks it.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from callboard.device import leftthreads
from callboard.device.host.channel import Channel
from callboard.device.protocol.arena import Arena
from callboard.device.protocol.messages import Call, Close, FromHost, MapArena, Plain, ToHost
from callboard.device.supervision.hosts.base import GIVEN_UP, Host, HostEnd
from callboard.device.supervision.hosts.output import LOGGER

__all__ = ["LoopHost"]

CLOSING_LOOK = 1e-3
"""Seconds between two looks whether the last work is done."""

BURST = 64
"""Calls that are launched between polls for completions, however long the loop does not run."""


class LoopHost(Host):
    """A context served by the running loop.

    Args:
        loop: The running loop.
        on_message, on_end: See :class:`Host`.
        label: Name of the device.
    """

    here: ClassVar[bool] = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[FromHost], None],
        on_end: Callable[[HostEnd], None],
        label: str,
    ) -> None:
        from callboard.device.host.context.serve import ContextHost

        self.pid = os.getpid()
        self.label = label
        self.reaped = loop.create_future()
        self._loop = loop
        self._on_end = on_end
        self._channel = _LoopChannel(loop, on_message, self._look)
        self._context = ContextHost(self._channel)
        self._timer: asyncio.Handle | None = None
        self._ended = False
        self._unlooked = 0
        self._posted: deque[Plain] = deque()
        self._handling = False

    def post(self, message: Plain) -> None:
        if self._ended:
            return
        self._posted.append(message)  # in order, wherever from: a request for memory must not overtake a free
        if asyncio._get_running_loop() is not self._loop:
            self._loop.call_soon_threadsafe(self._handle)
        elif not self._handling:
            self._handle()

    def _handle(self) -> None:
        if not self._ended:
            self._guarded(self._handle_posted)

    def _handle_posted(self) -> None:
        self._handling = True
        try:
            while self._posted:
                self._context.handle(self._posted.popleft())
        finally:
            self._handling = False

    def admit(self, call: Call) -> bool:
        if self._ended:
            return False
        try:
            self._unlooked += 1
            if self._unlooked > BURST:
                self._unlooked = 0
                self._context.use()
                self._context.poll()
            self._context.admit(call)
        except Exception as e:  # not handled further down: it ends this context, not the loop
            self._lost(e)
        except BaseException as e:  # Ctrl-C
            self._interrupted(e)
            raise
        else:
            if self._timer is None:
                self._timer = self._loop.call_soon(self._look)
        return True

    def linger(self, done: Callable[[], bool], seconds: float) -> bool:
        until = 0.0
        context = self._context
        try:
            while not self._ended:
                if not context.poll_streams():
                    context.use()
                    context.poll()
                if done():
                    return True
                now = time.perf_counter()
                if now > (until := until or now + seconds):
                    return False
        except Exception as e:  # likewise
            self._lost(e)
        except BaseException as e:  # Ctrl-C
            self._interrupted(e)
            raise
        return done()

    def _look(self) -> None:
        self._timer = None
        self._unlooked = 0
        if not self._ended:
            self._guarded(lambda: None)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            self._context.use()
            step()
            wait = self._context.advance()
            self._context.dispatch()
            if self._context.closing:
                if not self._context.actors_ended():
                    return  # the last one wakes the loop, which must not wait for it
                if self._context.idle:
                    self._context.close()
                    self._finish(HostEnd("closed"))
                    return
                wait = CLOSING_LOOK if wait is None else wait  # nor for the work in flight
        except Exception as e:  # likewise
            self._lost(e)
            return
        except BaseException as e:  # Ctrl-C
            self._interrupted(e)
            raise
        if self._timer is None and wait is not None:
            self._timer = self._loop.call_later(wait, self._look) if wait else self._loop.call_soon(self._look)

    def _lost(self, error: Exception) -> None:
        self._context.lose(error)
        self._finish(HostEnd("exited", str(error)))

    def _interrupted(self, error: BaseException) -> None:
        """Ctrl-C: how much of an op was done is unknown."""
        self._lost(RuntimeError(f"{type(error).__name__} in the middle of an op"))

    def _finish(self, end: HostEnd) -> None:
        if self._ended:
            return
        self._ended = True
        self._posted.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._loop.call_soon(self._on_end, end)
        if end.reason == "closed":
            self._reap()
        elif self._is_idle():
            self._context.abandon(lives_on=True)
            self._reap()
        else:  # work that cannot be ended keeps its memory on a thread of its own, for which the loop does not wait
            thread = threading.Thread(target=self._outlast, name=f"callboard-left-{self.label}", daemon=True)
            thread.start()
            leftthreads.watch(thread)

    def _is_idle(self) -> bool:
        try:
            return self._context.idle
        except Exception:  # the context is dead: nothing runs in it any more
            return self._context.actors_ended()

    def _outlast(self) -> None:
        self._context.abandon(lives_on=True)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        if not self.reaped.done():
            self.reaped.set_result(None)

    def send_arena(self, arena: Arena) -> None:
        self._channel.arenas[arena.id] = arena
        self.post(MapArena(arena.id, arena.nbytes, arena.address))

    @property
    def serving(self) -> bool:
        """True if it has not ended. Any thread."""
        return not self._ended

    @property
    def unsent_bytes(self) -> int:
        return 0

    def pause_watch(self, paused: bool) -> None:
        """Do nothing: the loop is not watched separately."""

    def kill(self, reason: str) -> None:
        self._finish(HostEnd("killed", reason))

    async def close(self, timeout: float) -> None:
        if not self._ended:
            self.post(Close())
            await asyncio.wait([self.reaped], timeout=timeout)
            if self.reaped.done():
                return
        self.kill(f"still busy {timeout:g} s after it was asked to close")
        await asyncio.wait([self.reaped], timeout=min(timeout, GIVEN_UP))
        if not self.reaped.done():
            LOGGER.error("[%s] an op does not end and is left behind, with its memory", self.label)


class _LoopChannel(Channel):
    """Hands messages straight to the application."""

    on_loop = True

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_message: Callable[[FromHost], None], poll: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._on_message = on_message
        self._look = poll
        self.arenas: dict[int, Arena] = {}  # that the host may use: kept as long as it is

    def receive(self, timeout: float | None) -> Sequence[ToHost]:
        raise AssertionError("messages are handed over, not received")

    def send(self, message: Plain) -> None:
        self._on_message(message)  # type: ignore[arg-type]

    def wake(self) -> None:
        self._loop.call_soon_threadsafe(self._look)

    def map_arena(self, arena: int, nbytes: int, address: int) -> int:
        return address

    def unmap_arena(self, arena: int) -> None:
        self.arenas.pop(arena, None)

    def busy(self, step: str | None) -> None:
        """Do nothing: a host on the loop's thread has no heartbeat."""

    def beat(self) -> None:
        """Do nothing: a host on the loop's thread has no heartbeat."""

    def leave(self, code: int) -> None:
        raise SystemExit(code)
