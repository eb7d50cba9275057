"""Duties of a child process other than serving: heartbeats, log forwarding, descriptors, and death with its parent."""

import ctypes
import enum
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable

from callboard.device.host.socketchannel import Pulse
from callboard.device.protocol.control import (
    MAX_CONTROL,
    ArenaDescriptor,
    Beat,
    EndWorld,
    LogRecord,
    to_child,
    to_control,
)
from callboard.device.protocol.wire import as_text

__all__ = ["ControlThread", "LogForwarder", "die_with"]

PR_SET_PDEATHSIG = 1
MAX_LOG_TEXT = 16 << 10
MAX_LABEL = 1 << 10
"""Bytes of a logger's name, and of the steps in a heartbeat; with the text, less than ``MAX_CONTROL``."""
MAX_QUEUED = 10_000
ONE_DESCRIPTOR = socket.CMSG_LEN(4) if hasattr(socket, "CMSG_LEN") else 0
LOOK_AGAIN = 0.05
"""Seconds between two attempts to take a descriptor that this process has no room for."""
LOOK = getattr(socket, "MSG_PEEK", 0) | getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def die_with(parent: int) -> int:
    """Have the kernel kill this process when its parent dies.

    Returns:
        A pidfd of the parent, to be watched as well: the kernel's signal belongs to the thread that spawned us, and
        some security modules drop it.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        pidfd = os.pidfd_open(parent)
    except OSError:
        os._exit(1)
    if os.getppid() != parent:  # it died before we were ready for it
        os._exit(1)
    return pidfd


class ControlThread:
    """Owns the control socket.

    Args:
        sock: The control socket.
        parent: Pidfd of the application.
        pulse: Signs of life to pass on.
        interval: Seconds between heartbeats.
        take_descriptor: Called with an arena's id and its descriptor, or None if this process has none left: it is
            called again when it has.
        end_world: Called when a world has lost a rank.
    """

    def __init__(
        self,
        sock: socket.socket,
        parent: int,
        pulse: Pulse,
        interval: float,
        take_descriptor: Callable[[int, int | None], None],
        end_world: Callable[[EndWorld], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._parent = parent
        self._pulse = pulse
        self._interval = interval
        self._take_descriptor = take_descriptor
        self._end_world = end_world
        self._queue: deque[bytes] = deque(maxlen=MAX_QUEUED)  # log records that the socket had no room for
        self._beating = threading.Lock()
        pulse.changed = self.beat
        threading.Thread(target=self._run, name="callboard-control", daemon=True).start()

    def beat(self) -> None:
        """Send a heartbeat now. Any thread; skipped if the socket is full, since the next one replaces it."""
        while self._queue and self._try_send(self._queue[0]):
            self._queue.popleft()
        pulse = self._pulse
        with self._beating:  # the last one sent has to be the last one made
            step, others = pulse.steps
            texts = [as_text(other, MAX_LABEL) for other in others]
            self._try_send(to_control(Beat(pulse.rounds, pulse.waiting, as_text(step, MAX_LABEL), texts, pulse.idle)))

    def log(self, record: LogRecord) -> None:
        """Send a log record. Any thread; never blocks. When too many are unread, the oldest are dropped."""
        body = to_control(record)
        if self._queue or not self._try_send(body):
            self._queue.append(body)

    def _try_send(self, body: bytes) -> bool:
        try:
            self._sock.send(body)
        except BlockingIOError:
            return False
        except OSError:  # the other end is closed
            pass
        return True

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._parent, select.POLLIN)
        state = Reading.ON
        while True:
            self.beat()
            if state is Reading.LATER:
                state = self._receive()
                if state is Reading.ON:
                    poll.register(self._sock, select.POLLIN)
            timeout = self._interval if state is not Reading.LATER else min(self._interval, LOOK_AGAIN)
            for descriptor, _ in poll.poll(timeout * 1e3):
                if descriptor == self._parent:
                    os.kill(os.getpid(), signal.SIGKILL)
                state = self._receive()
                if state is not Reading.ON:
                    poll.unregister(self._sock)

    def _receive(self) -> "Reading":
        """Take one message, unless its descriptor finds no place in this process."""
        try:
            # What is taken without a place for its descriptor has lost it; what is only looked at is still there.
            body, extra, flags, _ = self._sock.recvmsg(MAX_CONTROL, ONE_DESCRIPTOR, LOOK)
            message = to_child(body) if body else None
            if isinstance(message, ArenaDescriptor) and not extra and flags & socket.MSG_CTRUNC:
                self._take_descriptor(message.arena, None)
                return Reading.LATER
            self._sock.recv(MAX_CONTROL)
        except BlockingIOError:
            return Reading.ON
        except OSError:
            return Reading.OFF
        if isinstance(message, EndWorld):
            self._end_world(message)
        elif message is not None:
            for _, _, data in extra:
                self._take_descriptor(message.arena, int.from_bytes(data, sys.byteorder))
        return Reading.OFF if message is None else Reading.ON


class Reading(enum.Enum):
    """How the control socket is read on: when something comes, after :data:`LOOK_AGAIN`, or not any more."""

    ON, LATER, OFF = range(3)


class LogForwarder(logging.Handler):
    """Sends every record of this process to the application."""

    def __init__(self, control: ControlThread) -> None:
        super().__init__()
        self._control = control
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            try:
                text = self.format(record)
            except Exception as e:  # a record whose arguments do not fit its format, as logging itself survives them
                text = f"{record.msg!r} (cannot be formatted: {e})"
            name, text = as_text(record.name, MAX_LABEL), as_text(text, MAX_LOG_TEXT)
            self._control.log(LogRecord(name, record.levelno, text))
        except Exception:  # a level that is not a number of 64 bits, a message without a repr
            self.handleError(record)
