"""``ThreadHost``: a context in a thread of this process. Messages are not encoded; the thread cannot be killed.

Handing an op to another thread and its completion back costs more than a small op. While the thread has nothing to do
but wait, the loop's thread therefore acts for it: it launches its own calls, and polls for the completion that it
awaits. The two never run at the same time; everything that needs an allocation or may take time is left to the thread.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from callboard.actors.loops.bell import Bell
from callboard.device import forkguard, leftthreads
from callboard.device.host.channel import Channel, ChannelClosed
from callboard.device.protocol.arena import Arena
from callboard.device.protocol.control import EndWorld
from callboard.device.protocol.messages import (
    Call,
    Calls,
    Close,
    Closed,
    ContextDied,
    FromHost,
    MapArena,
    Plain,
    ToHost,
)
from callboard.device.supervision.hosts.base import GIVEN_UP, Host, HostEnd, unreadable
from callboard.device.supervision.hosts.output import LOGGER
from callboard.kernel.collective.library import end_members

if TYPE_CHECKING:
    from callboard.device.host.context.serve import ContextHost

__all__ = ["ThreadChannel", "ThreadHost"]

SWITCH_INTERVAL = 2e-5

TURN = 1e-3
"""Seconds of delivering messages before other callbacks of the loop get their turn."""


class ThreadHost(Host):
    """A thread that serves. Create it with :meth:`start`.

    :meth:`kill` cannot interrupt the thread's current work: it reports the end and makes the thread leave at its next
    receive. The thread stays until the work that it had begun, on other threads too, has ended, and keeps the memory
    of that work; ``reaped`` is set when it has ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        serve: Callable[[Channel], int],
        on_message: Callable[[FromHost], None],
        on_end: Callable[[HostEnd], None],
        label: str,
    ) -> None:
        self.pid = os.getpid()
        self.label = label
        self.reaped = loop.create_future()
        self._loop = loop
        self._serve = serve
        self._on_message = on_message
        self._on_end: Callable[[HostEnd], None] | None = on_end
        self._closing = False
        self._alive = True
        self._died = False
        self._forked = False
        self._cause: HostEnd | None = None
        self._outbox: deque[FromHost] = deque()
        self._channel = ThreadChannel(self._outbox, self._notify)
        self._notified = False
        self._lingering = False  # the loop's thread waits for `_came`, not for the loop
        self._came = Bell()
        self._thread = threading.Thread(target=self._run, name=f"callboard-host-{label}", daemon=True)
        forkguard.guard(self)

    @classmethod
    async def start(
        cls,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[FromHost], None],
        on_end: Callable[[HostEnd], None],
        *,
        label: str,
        serve: Callable[[Channel], int] | None = None,
    ) -> "ThreadHost":
        """Start a thread. It sends no ``Hello``: one process has one version.

        Args:
            loop: The running loop.
            on_message, on_end: See :class:`Host`.
            label: Name of the device, for logs and the thread's name.
            serve: Function that runs in the thread; by default it serves the context.
        """
        # A busy event loop starves a second Python thread for seconds at the default interval of 5 ms.
        # Only ever lowered: the application may need it lower still.
        if sys.getswitchinterval() > SWITCH_INTERVAL:
            sys.setswitchinterval(SWITCH_INTERVAL)
        host = cls(loop, serve or _context_serve, on_message, on_end, label)
        host._thread.start()
        leftthreads.watch(host._thread)
        return host

    # -- to the host ---------------------------------------------------------------------------------------------------

    def post(self, message: Plain) -> None:
        if self._alive:
            self._channel.put(message)  # type: ignore[arg-type]
        elif self._forked:
            raise forkguard.forked_error(f"the host of {self.label}")

    def admit(self, call: Call) -> bool:
        if not self._act(lambda host: host.launch_inline(call)):
            self.post(Calls([call]))
        elif not self._channel.lent:
            self._channel.lent = True
            self._loop.call_soon(self._hand_back)
        return True

    def execute(self, call: Call) -> bool:
        done = self._act(lambda host: host.execute(call), tells=False)
        if self._outbox and not self._notified:
            self._notified = True
            self._loop.call_soon(self._deliver)
        return done is True

    def _act(self, step: "Callable[[ContextHost], bool]", tells: bool = True) -> bool | None:
        """Do a step in the thread's place; returns its result, None if the thread is working itself.

        Args:
            step: The step.
            tells: Have the loop deliver the messages that were sent meanwhile.
        """
        channel = self._channel
        host = channel.take_over() if self._alive else None
        if host is None:
            return None
        notified, self._notified = self._notified, True  # messages sent meanwhile are read here
        try:
            return step(host)
        except Exception as e:  # classified like the thread's own errors
            channel.fail(e)
            return True
        except BaseException as e:  # Ctrl-C: how much of the op was done is unknown
            channel.fail(RuntimeError(f"{type(e).__name__} in the middle of an op"))
            raise
        finally:
            channel.give_back()
            self._notified = notified
            if tells and self._outbox:
                self._notify()

    def _hand_back(self) -> None:
        """The loop takes its turn: whatever is in flight is the thread's again."""
        self._leave(self._act(lambda host: host.poll()) is not False)

    def _leave(self, flying: bool) -> None:
        self._channel.lent = False
        if flying:
            self._channel.wake()

    def send_arena(self, arena: Arena) -> None:
        self._channel.arenas[arena.id] = arena
        self.post(MapArena(arena.id, arena.nbytes, arena.address))

    def end_world(self, message: EndWorld) -> None:
        end_members(message.world, message.lost, message.reason, message.formation)

    def deliver(self) -> None:
        if self._outbox:
            self._deliver_some()

    def linger(self, done: Callable[[], bool], seconds: float) -> bool:
        if self._outbox:
            self._deliver_some()
            if done():
                return True
        until = time.perf_counter() + seconds

        def poll(host: "ContextHost") -> bool:
            while host.polls:
                flying = not host.poll_streams() and host.poll()
                if self._outbox:
                    self._deliver_some()
                if done() or time.perf_counter() > until:
                    return flying
            return False

        if self._act(poll):
            self._leave(flying=True)
        self._lingering = True
        while not done():
            if self._outbox:
                self._deliver_some()
            elif (left := until - time.perf_counter()) <= 0 or not self._came.wait(left):
                break
        self._lingering = False
        if self._outbox:
            self._notify()
        return done()

    @property
    def serving(self) -> bool:
        """True if the thread runs. Any thread."""
        return self._thread.is_alive()

    @property
    def unsent_bytes(self) -> int:
        return 0

    def pause_watch(self, paused: bool) -> None:
        """Do nothing: a thread is not watched, because it could not be killed."""

    def kill(self, reason: str) -> None:
        self._abandon(HostEnd("killed", reason))

    def _abandon(self, cause: HostEnd) -> None:
        if self._cause is None and self._alive:
            self._cause = cause
            self._channel.close(cause.detail)
            self._loop.call_soon(self._deliver_last)

    async def close(self, timeout: float) -> None:
        if self._cause is None and not self._died:
            self._closing = True
            self.post(Close())
            await asyncio.wait([self.reaped], timeout=timeout)
            if self.reaped.done():
                return
        self.kill(f"still busy {timeout:g} s after it was asked to close")
        await asyncio.wait([self.reaped], timeout=min(timeout, GIVEN_UP))
        if not self.reaped.done():
            LOGGER.error("[%s] the host's thread does not come back from a call and is left behind", self.label)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            code = self._serve(self._channel)
            end = HostEnd("closed" if self._closing else "exited", f"exit code {code}")
        except ChannelClosed as e:
            end = HostEnd("closed" if self._closing else "killed", str(e))
        except SystemExit as e:
            end = HostEnd("closed" if self._closing and not e.code else "exited", f"exit code {e.code}")
        except BaseException:  # whatever ended the thread is the reason of the host's end
            end = HostEnd("exited", traceback.format_exc())
        self._channel.close("the host has ended")
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._reap, end)

    def _reap(self, end: HostEnd) -> None:
        self._thread.join()
        self._channel.bell.close()
        self._came.close()
        self._cause = self._cause or end
        self._deliver_last()

    # -- from the host -------------------------------------------------------------------------------------------------

    def _notify(self) -> None:
        """A message is in the outbox. Any thread; one wake-up of the loop per burst."""
        if self._lingering:
            self._came.ring()
        elif not self._notified:
            self._notified = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._notified = False  # first: later messages notify again
        if not self._deliver_some():
            self._notify()

    def _deliver_some(self) -> bool:
        """Deliver for one turn; True when nothing is left."""
        outbox = self._outbox
        deadline = time.perf_counter() + TURN
        while outbox:
            message = outbox.popleft()
            if type(message) is Closed:
                self._closing = True
            elif type(message) is ContextDied:
                self._died = True
            if not self._alive:
                continue
            try:
                self._on_message(message)
            except Exception as e:  # a bug in the receiver: the answer is lost
                self._abandon(HostEnd("broken", unreadable(e)))
            if time.perf_counter() > deadline:
                return not outbox
        return True

    def _deliver_last(self) -> None:
        if not self._deliver_some():
            self._loop.call_soon(self._deliver_last)
            return
        self._alive = False
        on_end, self._on_end = self._on_end, None
        if on_end is not None and self._cause is not None:
            on_end(self._cause)
        if not self._thread.is_alive() and not self.reaped.done():
            self.reaped.set_result(None)

    def after_fork(self) -> None:
        self._alive = False
        self._forked = True


class ThreadChannel(Channel):
    """Over two deques.

    Args:
        outbox: Messages for the application.
        notify: Called after one was added.

    Attributes:
        bell: Wakes the thread that waits for messages.
        lent: True while the loop's thread handles the ops in flight; it wakes the host's thread when it hands them
            back.
        arenas: Arenas that the host may use. It lives as long as any of its threads, and the channel with it.
    """

    shared = True

    def __init__(self, outbox: deque[FromHost], notify: Callable[[], None]) -> None:
        self._inbox: deque[ToHost] = deque()
        self._outbox = outbox
        self._notify = notify
        self._closed: str | None = None
        self._failure: BaseException | None = None
        self._host: ContextHost | None = None
        self._acting = threading.Lock()  # held by the thread that acts for the host: its own, except while it waits
        self._acting.acquire()
        self.lent = False
        self.arenas: dict[int, Arena] = {}
        self._woken = False
        self._waiting = False
        self.bell = Bell()

    def put(self, message: ToHost) -> None:
        """A message from the application. Any thread."""
        self._inbox.append(message)
        if self._waiting:
            self.bell.ring()

    def close(self, why: str) -> None:
        """Let the next receive raise. Any thread."""
        self._closed = why
        self.wake()

    def open_to(self, host: "ContextHost") -> None:
        self._host = host

    def take_over(self) -> "ContextHost | None":
        """The host, to act for its thread up to :meth:`give_back`; None when that is at work or has work to do."""
        host = self._host
        if host is None or self._inbox or not self._acting.acquire(blocking=False):
            return None
        if not self._inbox and self._closed is None and self._failure is None and host.welcome:
            host.enter()
            return host
        self._acting.release()
        return None

    def give_back(self) -> None:
        """The host's thread may act again."""
        assert self._host is not None
        self._host.leave()
        self._acting.release()

    def fail(self, error: BaseException) -> None:
        """Let the next receive raise this, which came while another thread acted."""
        self._failure = error
        self.wake()

    def receive(self, timeout: float | None) -> Sequence[ToHost]:
        self._check()
        inbox = self._inbox
        if not inbox and timeout != 0:
            self._waiting = True
            # Check again now that the flag is up: a message that was put before did not ring the bell.
            if not inbox and not self._woken:
                self._acting.release()
                rung = self.bell.wait(timeout)
                while self.lent and not rung:  # the loop's thread polls instead
                    rung = self.bell.wait()
                self._acting.acquire()
            self._waiting = False
            self._woken = False
            self._check()
        return [inbox.popleft() for _ in range(len(inbox))]

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed is not None:
            raise ChannelClosed(self._closed)

    def send(self, message: Plain) -> None:
        self._outbox.append(message)  # type: ignore[arg-type]
        self._notify()

    def wake(self) -> None:
        self._woken = True
        if self._waiting:
            self.bell.ring()

    def map_arena(self, arena: int, nbytes: int, address: int) -> int:
        return address

    def unmap_arena(self, arena: int) -> None:
        self.arenas.pop(arena, None)

    def busy(self, step: str | None) -> None:
        """Do nothing: a thread is not watched."""

    def beat(self) -> None:
        """Do nothing: a thread is not watched."""

    def leave(self, code: int) -> None:
        raise SystemExit(code)


def _context_serve(channel: Channel) -> int:
    from callboard.device.host.context import serve

    return serve(channel, lives_on=True)
