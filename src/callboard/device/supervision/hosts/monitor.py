"""The one thread of an application that listens to all its process hosts: heartbeats, logs and output.

A thread rather than the event loop, because a loop that is busy for a while must neither stop a host that prints nor
take it for dead.
"""

import contextlib
import logging
import os
import selectors
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from callboard.device import forkguard
from callboard.device.protocol.control import MAX_CONTROL, Beat, from_child
from callboard.device.supervision.hosts.activity import Activity
from callboard.device.supervision.hosts.liveness import Liveness
from callboard.device.supervision.hosts.output import HostLog, OutputPipe

__all__ = ["Monitor", "WatchedHost", "default_monitor"]

DUMP_TIME = 0.5
"""Seconds that a hung host gets to write its stacks before it is killed."""

PER_TURN = 256
"""Control messages of one host that are read before another's turn."""

LAST_READS = 64
"""Reads of each descriptor of a dead host: more than a pipe holds; later output is from its forks."""


class WatchedHost:
    """The descriptors of one host that the monitor reads. Used on the monitor's thread, which closes them.

    Args:
        pid: Id of the host's process.
        pidfd: File descriptor (pidfd) of it.
        control: Our end of the control socket.
        pipes: Its stdout and stderr pipes.
        log: Log that receives their output.
        liveness: Decides.
        interval: Seconds between looks.
        on_hung: Called once, with the reason, after the stacks were requested.
    """

    def __init__(
        self,
        pid: int,
        pidfd: int,
        control: socket.socket,
        pipes: tuple[OutputPipe, ...],
        log: HostLog,
        liveness: Liveness,
        interval: float,
        on_hung: Callable[[str], None],
    ) -> None:
        self.pidfd = pidfd
        self.control = control
        self.pipes = pipes
        self._descriptors = [pidfd, *(pipe.descriptor for pipe in pipes)]
        self.log = log
        self.liveness = liveness
        self.interval = interval
        self._on_hung = on_hung
        self._activity = Activity(pid)
        self._condemned: str | None = None
        self._hung: str | None = None
        self._kill_at = 0.0
        self._told = False

    def read_control(self) -> bool:
        """Take messages from the control socket; False when none is left.

        Raises:
            EOFError: None will come any more.
        """
        for _ in range(PER_TURN):
            try:
                data = self.control.recv(MAX_CONTROL)
            except BlockingIOError:
                return False
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            try:
                message = from_child(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
                self.log.record("control", logging.WARNING, f"a control message cannot be read: {e}")
                continue
            if isinstance(message, Beat):
                self.liveness.beat(message.rounds, message.waiting, message.step, message.others)
                self._activity.idle = message.idle
            else:
                # Within the standard range, because logging caches every level that is queried.
                level = max(0, min(message.level, logging.CRITICAL))
                self.log.record(message.logger, level, message.text)
        return True

    def condemn(self, why: str) -> None:
        """It hangs, as others have found."""
        self._condemned = why

    def judge(self, now: float, elapsed: float) -> None:
        """Time has passed; look whether it hangs."""
        self.log.settle(now)
        if self._hung is None:
            self._hung = self._condemned or self.liveness.pass_time(elapsed, self._activity.goes_on)
            if self._hung is not None:
                self.log.record("monitor", logging.ERROR, f"{self._hung}; its stacks follow, then it is killed")
                self.log.dump.clear()
                self._kill_at = now + DUMP_TIME
                self.interval = min(self.interval, DUMP_TIME)
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.pidfd, signal.SIGUSR1)
        elif now >= self._kill_at and not self._told:
            self._told = True
            self._on_hung(self._hung)

    def close(self) -> None:
        """Pass on the remaining output and close everything."""
        for read in (self.read_control, *(pipe.read for pipe in self.pipes)):
            with contextlib.suppress(EOFError):
                for _ in range(LAST_READS):
                    if not read():
                        break
        for pipe in self.pipes:
            pipe.end()
        self.log.end()
        self._close_descriptors()

    def after_fork(self) -> None:
        """In a forked child: only close open descriptors."""
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        self.control.close()
        while self._descriptors:  # each leaves the list first: a fork in between must not close another's
            os.close(self._descriptors.pop())


class Monitor:
    """Watches hosts.

    Args:
        clock: Seconds, monotonic.
        threaded: Run on a thread of its own; otherwise the caller calls :meth:`turn`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, threaded: bool = True) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._bell, selectors.EVENT_READ, self._unring)
        self._commands: deque[Callable[[], None]] = deque()
        self._hosts: list[WatchedHost] = []
        self._last = clock()
        forkguard.guard(self)
        if threaded:
            threading.Thread(target=self._run, name="callboard-monitor", daemon=True).start()

    def add(self, host: WatchedHost) -> None:
        """Begin to watch. Any thread."""
        self._command(lambda: self._add(host))

    def remove(self, host: WatchedHost, done: Callable[[], None]) -> None:
        """Read the remaining output, close its descriptors, then call ``done`` on the monitor's thread. Any thread."""
        self._command(lambda: self._remove(host, done))

    def condemn(self, host: WatchedHost, why: str) -> None:
        """Have a host write its stacks, then report it as hung. Any thread."""
        self._command(lambda: host.condemn(why))

    @property
    def descriptors(self) -> frozenset[int]:
        """Its descriptors, which stay open as long as the process lives."""
        return frozenset({self._bell, self._selector.fileno()})

    def turn(self, timeout: float | None) -> None:
        """Wait up to ``timeout`` seconds for something, and deal with it."""
        for key, _ in self._selector.select(timeout):
            key.data()
        while self._commands:
            self._commands.popleft()()
        now = self._clock()
        elapsed, self._last = now - self._last, now
        for host in self._hosts:
            host.judge(now, elapsed)

    # -- on the monitor's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                self.turn(min((host.interval for host in self._hosts), default=None))
            except Exception:  # of a logging handler or a callback; the other hosts still need their monitor
                logging.getLogger("callboard.host").exception("the monitor of the hosts goes on after an error")

    def _add(self, host: WatchedHost) -> None:
        self._hosts.append(host)
        self._selector.register(host.control, selectors.EVENT_READ, lambda: self._read_control(host))
        for pipe in host.pipes:
            self._selector.register(pipe.descriptor, selectors.EVENT_READ, lambda pipe=pipe: self._read_pipe(pipe))

    def _remove(self, host: WatchedHost, done: Callable[[], None]) -> None:
        if host in self._hosts:
            self._hosts.remove(host)
            for descriptor in (host.control.fileno(), *(pipe.descriptor for pipe in host.pipes)):
                with contextlib.suppress(KeyError):
                    self._selector.unregister(descriptor)
        try:
            host.close()
        finally:
            done()

    def _read_control(self, host: WatchedHost) -> None:
        try:
            host.read_control()
        except EOFError:
            self._selector.unregister(host.control)

    def _read_pipe(self, pipe: OutputPipe) -> None:
        try:
            pipe.read()
        except EOFError:
            self._selector.unregister(pipe.descriptor)

    # -- any thread ----------------------------------------------------------------------------------------------------

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        os.eventfd_write(self._bell, 1)

    def _unring(self) -> None:
        os.eventfd_read(self._bell)

    def after_fork(self) -> None:
        global _monitor, _lock
        if _monitor is self:
            _monitor = None
        _lock = threading.Lock()
        self._selector.close()
        os.close(self._bell)


_monitor: Monitor | None = None
_lock = threading.Lock()


def default_monitor() -> Monitor:
    """The one of this process, started at first use."""
    global _monitor
    with _lock:
        if _monitor is None:
            _monitor = Monitor()
        return _monitor
