"""``ProcessHost``: a context in a child process."""

import asyncio
import contextlib
import os
import signal
import socket
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

from callboard.device import forkguard
from callboard.device.host.guardian import MARK
from callboard.device.protocol.arena import Arena
from callboard.device.protocol.control import ArenaDescriptor, EndWorld, to_control
from callboard.device.protocol.messages import (
    VERSION,
    Close,
    Closed,
    Completions,
    FromHost,
    Hello,
    MapArena,
    Plain,
    ProtocolError,
    Unknown,
)
from callboard.device.protocol.wire import TruncatedStream, UnknownKind
from callboard.device.supervision.hosts.base import Host, HostEnd, unreadable
from callboard.device.supervision.hosts.group import HostGroup
from callboard.device.supervision.hosts.launch import Launched, check_platform, launch, wait_status
from callboard.device.supervision.hosts.liveness import Liveness
from callboard.device.supervision.hosts.monitor import Monitor, WatchedHost, default_monitor
from callboard.device.supervision.hosts.opline import OpLine
from callboard.device.supervision.hosts.output import LOGGER, HostLog, OutputPipe

__all__ = ["ProcessHost"]

SERVE = "callboard.device.host.context:serve"

EXIT_TIME = 5.0
"""Seconds between the end of a host's stream and the end of its process, before it is killed."""

REAP_TIME = 2.0
"""Seconds that a killed process gets to go. One held up by a driver call is reported as ended, reaped later."""


class ProcessHost(Host):
    """A child process (Linux). Create it with :meth:`start`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        child: Launched,
        on_message: Callable[[FromHost], None],
        on_end: Callable[[HostEnd], None],
        liveness: Liveness,
        interval: float,
        label: str,
        monitor: Monitor,
        relayed: Collection[type[Any]],
    ) -> None:
        self.pid = child.pid
        self.label = label
        self.reaped = loop.create_future()
        self._loop = loop
        self._pidfd = child.pidfd
        self._group = HostGroup(loop, child.pid)
        self._control = child.control
        self._on_message = on_message
        self._on_end: Callable[[HostEnd], None] | None = on_end
        self._liveness = liveness
        self._greeted = False
        self._closing = False
        self._forked = False
        self._alive = True
        self._cause: tuple[str, str] | None = None  # reason and detail, where the end is our doing
        self._stream_error: ProtocolError | None = None
        self._stream_ended = False
        self._status: str | None = None  # how the process ended
        self._unsent_descriptors: list[tuple[bytes, int]] = []
        self._timers: list[asyncio.TimerHandle] = []
        self._log = HostLog(label, child.pid)
        pipes = (OutputPipe(child.stdout, self._log.stdout), OutputPipe(child.stderr, self._log.stderr))
        self._watch = WatchedHost(
            child.pid, child.pidfd, child.control, pipes, self._log, liveness, interval, self._hung
        )
        self._monitor = monitor
        self._line = OpLine(loop, child.ops, self._take, self._stream_end, lambda: liveness.announced, relayed)
        loop.add_reader(child.pidfd, self._exited)
        monitor.add(self._watch)
        forkguard.guard(self)

    @classmethod
    async def start(
        cls,
        loop: asyncio.AbstractEventLoop,
        backend_env: Mapping[str, str],
        on_message: Callable[[FromHost], None],
        on_end: Callable[[HostEnd], None],
        *,
        hang_after: float,
        step_timeout: float,
        interval: float,
        label: str,
        monitor: Monitor | None = None,
        guardian: bool = False,
        serve: str = SERVE,
        relayed: Collection[type[Any]] = (),
    ) -> "ProcessHost":
        """Start a child; it sends :class:`Hello <callboard.device.protocol.messages.Hello>` when its Python is up.

        Args:
            loop: The running loop.
            backend_env: Set in the child's environment, over this process's own.
            on_message, on_end: See :class:`Host`.
            hang_after: Seconds without a sign of life before it is killed as hung.
            step_timeout: Seconds for which a step that it announces excuses its silence, unless it does nothing.
            interval: Seconds between heartbeats.
            label: Name of the device, for logs and ``ps``.
            monitor: Monitor to use; by default this process's own.
            guardian: Start a guardian with it, which ends what it has started.
            serve: ``module:function`` that runs in the child, for tests.
            relayed: Messages that are not decoded: ``on_message`` gets adjacent frames of them as one ``memoryview``.

        Raises:
            BackendUnavailable: This platform has no process isolation.
            HostEnd: ``"failed to start"``: no memory, no descriptors …
        """
        arguments = ["--label", label, "--serve", serve, "--parent", str(os.getpid())]
        arguments += ["--interval", str(interval), "--log-level", str(LOGGER.getEffectiveLevel())]
        check_platform()
        try:
            monitor = monitor or default_monitor()
        except OSError as e:  # before there is a child that nothing watches
            raise HostEnd("failed to start", str(e)) from e
        if guardian:
            arguments.append("--guardian")
            backend_env = {**backend_env, MARK: uuid.uuid4().hex}
        child = await launch(arguments, backend_env)
        liveness = Liveness(hang_after, step_timeout, interval)
        return cls(loop, child, on_message, on_end, liveness, interval, label, monitor, relayed)

    # -- to the host ---------------------------------------------------------------------------------------------------

    def post(self, message: Plain) -> None:
        if self._alive:
            self._line.post(message)
        elif self._forked:
            raise forkguard.forked_error(f"the host of {self.label}")

    def forward(self, frames: memoryview) -> None:
        """Send frames as they are. On the loop's thread; calls then come in no other way."""
        if self._alive:
            self._line.forward(frames)

    def send_arena(self, arena: Arena) -> None:
        if not self._alive:
            return
        body = to_control(ArenaDescriptor(arena.id))
        if self._unsent_descriptors or not self._send_descriptor(body, arena.descriptor):
            if not self._unsent_descriptors:
                self._loop.add_writer(self._control, self._send_descriptors)
            self._unsent_descriptors.append((body, os.dup(arena.descriptor)))
        self.post(MapArena(arena.id, arena.nbytes))

    def _send_descriptor(self, body: bytes, descriptor: int) -> bool:
        try:
            socket.send_fds(self._control, [body], [descriptor])
        except BlockingIOError:
            return False
        except OSError as e:  # it is dying (its exit will be seen), or too many descriptors are on their way
            LOGGER.warning("[%s %d] an arena's descriptor could not be sent: %s", self.label, self.pid, str(e))
        return True

    def _send_descriptors(self) -> None:
        waiting = self._unsent_descriptors
        while waiting and self._send_descriptor(*waiting[0]):
            os.close(waiting.pop(0)[1])
        if not waiting:
            self._loop.remove_writer(self._control)

    def end_world(self, message: EndWorld) -> None:
        if self._alive:
            with contextlib.suppress(OSError):  # full, or closed; the op with the same message is sent, too
                self._control.send(to_control(message))

    def linger(self, done: Callable[[], bool], seconds: float) -> bool:
        return self._line.linger(done, seconds)

    @property
    def unsent_bytes(self) -> int:
        return self._line.unsent_bytes

    def pause_watch(self, paused: bool) -> None:
        self._liveness.paused = paused

    def kill(self, reason: str) -> None:
        self._end_it("killed", reason)

    def kill_stuck(self, reason: str) -> None:
        if self._cause is None and self._status is None and not self._forked:
            self._monitor.condemn(self._watch, reason)

    async def close(self, timeout: float) -> None:
        self._closing = True
        self.post(Close())
        if not await self._gone(timeout):
            self.kill(f"still busy {timeout:g} s after it was asked to close")
            if not await self._gone(2 * REAP_TIME):
                LOGGER.error(
                    "[%s %d] a driver call keeps the killed host alive; it is left behind", self.label, self.pid
                )

    async def _gone(self, timeout: float) -> bool:
        await asyncio.wait([self.reaped], timeout=timeout)
        return self.reaped.done()

    # -- from the host -------------------------------------------------------------------------------------------------

    def _take(self, message: FromHost | memoryview | UnknownKind) -> None:
        if self._greeted and (type(message) is Completions or type(message) is memoryview):  # nearly all messages
            self._on_message(message)  # type: ignore[arg-type]
            return
        if not self._greeted:
            if self._stream_ended:
                return  # data that arrived together with an invalid start
            if type(message) is not Hello or message.version != VERSION:
                self._stream_ended = True
                self._line.close()
                began = "another message" if type(message) is memoryview else type(message).__name__
                self._end_it("broken", f"it began with {began}, not with a Hello of version {VERSION}")
                return
            self._greeted = True
        elif type(message) is Hello or (type(message) is Closed and not self._closing):
            raise ProtocolError(f"{type(message).__name__} at the wrong time")
        if type(message) is UnknownKind:  # both ends have the same version: it was to be another
            raise ProtocolError(f"unknown kind {message.kind}")
        if type(message) is Unknown:
            raise ProtocolError(f"it was sent a message of unknown kind {message.kind}")
        self._on_message(message)  # type: ignore[arg-type]

    def _stream_end(self, error: ProtocolError | None) -> None:
        self._stream_ended = True
        self._stream_error = error
        if self._status is not None:
            self._hand_over()
        elif error is None or isinstance(error, TruncatedStream):
            # It is about to exit; its exit status is more informative than the end of its stream.
            detail = str(error or "it closed its stream and went on running")
            self._timers.append(self._loop.call_later(EXIT_TIME, self._end_it, "broken", detail))
        else:
            self._end_it("broken", unreadable(error))

    def _hung(self, why: str) -> None:  # on the monitor's thread
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end_it, "hung", why)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end_it(self, reason: str, detail: str) -> None:
        """Kill it; the end is reported as this, when everything that it sent has been delivered."""
        if self._cause is not None or self._status is not None or self._forked:
            return
        self._cause = (reason, detail)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._timers.append(self._loop.call_later(REAP_TIME, self._give_up))

    def _give_up(self) -> None:
        """A driver call keeps the killed process alive: discard its further output."""
        if self._status is None:
            self._stream_ended = True
            self._line.close()
            self._group.terminate()
            self._report_end()

    def _exited(self) -> None:
        """The process has ended; its exit status, and its last messages in the socket, are still to be read."""
        self._loop.remove_reader(self._pidfd)
        self._group.terminate()
        self._status = wait_status(self._pidfd)
        if self._stream_ended:
            self._hand_over()
        else:
            self._line.drain()

    def _hand_over(self) -> None:
        """All messages are delivered: close, and let the monitor read the last lines before the end is reported."""
        self._line.close()
        self._stop_sending_descriptors()

        def finish() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._finish)

        self._monitor.remove(self._watch, finish)

    def _finish(self) -> None:
        self._report_end()
        self._group.when_gone(self._all_gone)

    def _all_gone(self, gone: bool) -> None:
        if not gone:
            LOGGER.warning(
                "[%s %d] processes that it had started were killed, and are still there", self.label, self.pid
            )
        if not self.reaped.done():
            self.reaped.set_result(None)

    def _report_end(self) -> None:
        self._alive = False
        for timer in self._timers:
            timer.cancel()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self._verdict())

    def _verdict(self) -> HostEnd:
        status = self._status or "still exiting"
        dump = self._log.dump
        fatal = [f"Fatal Python error: {dump.fatal}"] if dump.fatal and not dump.explains(status) else []
        tail, details = "\n".join(["", *fatal, *self._log.tail]), ""
        if self._cause is not None:
            reason, why = self._cause
            if reason == "hung" and not dump.fatal:
                details = dump.text
                tail = f"\nit was {dump.place}{tail}" if dump.place else tail
        elif dump.explains(status):
            what = f"{dump.fatal} {dump.place or 'at a place that the dump does not show'}, {status}"
            return HostEnd("crashed", what + tail, dump.text)
        elif status.startswith("signal"):
            reason, why = "killed", ""
        elif not self._greeted:
            reason, why = "failed to start", ""
        elif self._stream_error is not None:
            reason, why = "broken", unreadable(self._stream_error)
        else:
            reason, why = ("closed" if self._closing else "exited"), ""
        detail = f"{why} ({status})" if why else status
        return HostEnd(reason, detail + tail if reason != "closed" else detail, details)

    def _stop_sending_descriptors(self) -> None:
        if self._unsent_descriptors:
            self._loop.remove_writer(self._control)
            for _, descriptor in self._unsent_descriptors:
                os.close(descriptor)
            self._unsent_descriptors.clear()

    def after_fork(self) -> None:
        self._alive = False
        self._forked = True
        self._line.after_fork()
        self._watch.after_fork()
