"""``SocketChannel``: the child process's end of its line."""

import atexit
import contextlib
import ctypes
import errno
import logging
import mmap
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence

from callboard.device.host.channel import Channel, ChannelClosed
from callboard.device.protocol.messages import Calls, Plain, ProtocolError, ToHost
from callboard.device.protocol.signatures import SignatureReader
from callboard.device.protocol.wire import FrameError, FrameReader, UnknownKind, encode_frame, escaped

__all__ = ["Pulse", "SocketChannel"]

log = logging.getLogger("callboard.host")

RECEIVE = 256 << 10
LEAVE_TIME = 1.0
EXIT_TIME = 2.0
"""Seconds that the functions of ``atexit`` get; one that multiprocessing registers waits for processes without end."""
ARENA_TIME = 10.0
"""Seconds that an announced arena's descriptor may take to come."""
ROOM_TIME = 0.1
"""Seconds to wait for a descriptor that this process had no room for a moment ago."""
PAUSE = 1.0
"""Seconds without bytes before an incomplete frame is checked."""
MOST_PAUSES = 63
"""Most calls of :meth:`SocketChannel.spin` that return at once after one that found nothing, which doubles them."""
MAX_STEPS, MAX_STEP, MAX_IDLE = 16, 200, 512
"""Most steps of other threads in a heartbeat, most characters of a step's name, and most idle threads."""


class Pulse:
    """Signs of life of the admitting thread, which creates it, read by the control thread.

    Attributes:
        rounds: Rounds of the admitting loop.
        thread: Id of the thread that is in it.
        waiting: True if it waits for messages now.
        changed: Called when a step begins or ends.
    """

    __slots__ = ("_steps", "changed", "rounds", "thread", "waiting")

    def __init__(self) -> None:
        self.rounds = 0
        self.waiting = False
        self.changed: Callable[[], None] = lambda: None
        self.thread = threading.get_ident()
        self._steps: dict[int, str] = {}  # by thread: a helper may prepare while the admitting thread continues

    def step(self, name: str | None) -> None:
        """Begin a long step on the calling thread, or end it."""
        if name is None:
            self._steps.pop(threading.get_ident(), None)
        else:
            self._steps[threading.get_ident()] = name[:MAX_STEP]
        self.changed()

    @property
    def steps(self) -> tuple[str, list[str]]:
        """The step of the admitting thread, or empty, and the latest of other threads."""
        steps = tuple(self._steps.items())
        thread = self.thread
        others = [name for other, name in steps if other != thread]
        return dict(steps).get(thread, ""), others[-MAX_STEPS:]

    @property
    def idle(self) -> list[int]:
        """Native ids of the threads that are in no step, if others are."""
        busy = frozenset(self._steps)
        if not busy:
            return []
        threads = [t.native_id for t in threading.enumerate() if t.ident not in busy]
        return [native for native in threads if native is not None][-MAX_IDLE:]


class SocketChannel(Channel):
    """Over a stream socket; created on the admitting thread.

    Args:
        sock: The op socket.
        pulse: Notified of rounds, waits and steps.
    """

    def __init__(self, sock: socket.socket, pulse: Pulse) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._pulse = pulse
        self._reader: FrameReader[ToHost] = FrameReader(ToHost)
        self._signatures = SignatureReader()
        self._memory = memoryview(bytearray(RECEIVE))
        self._closed: str | None = None
        self._broken: ProtocolError | None = None
        self._came = 0  # bytes in the memory that have not been read as messages
        self._in_vain = self._pauses = 0  # of `spin`
        self._outgoing = bytearray()
        self._lock = threading.Lock()  # of the outgoing bytes
        self._woken = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)
        self._descriptors: dict[int, int] = {}  # of arenas, not mapped yet
        self._descriptor_came = threading.Condition()
        self._full = False  # this process has no room for descriptors that have been sent
        self._unwanted: set[int] = set()  # arenas that were released before their descriptor came
        self._mapped: dict[int, mmap.mmap] = {}

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(self, timeout: float | None) -> Sequence[ToHost | UnknownKind]:
        if self._closed is not None:
            raise ChannelClosed(self._closed)
        if self._broken is not None:
            raise FrameError(f"the application sent a message that cannot be read: {self._broken}") from self._broken
        if self._outgoing:
            self._flush()
        count, self._came = self._came, 0
        if not count:
            if timeout != 0 and not self._wait(timeout):
                return ()
            try:
                count = self._sock.recv_into(self._memory)
            except BlockingIOError:
                return ()
            except OSError as e:
                raise self._close(str(e)) from e
            if count == 0:
                raise self._close("the application closed its end")
        messages: list[ToHost | UnknownKind] = []
        try:
            for message in self._reader.feed(self._memory[:count]):
                if type(message) is Calls:
                    self._signatures.restore(message)
                messages.append(message)
        except ProtocolError as e:
            self._broken = e  # raised when the messages before it have been acted on
        return messages

    def _close(self, why: str) -> ChannelClosed:
        self._closed = why
        return ChannelClosed(why)

    def _wait(self, timeout: float | None) -> bool:
        """Wait until bytes have arrived (True), :meth:`wake` was called or the time is over; send meanwhile."""
        pulse = self._pulse
        deadline = None if timeout is None else time.monotonic() + timeout
        pulse.waiting = True
        try:
            while not self._woken:
                # `waiting` comes first, and `send` on other threads adds before it looks at that: what remains of their
                # data is seen here, or they ring.
                events = select.POLLIN
                if self._outgoing:
                    events |= select.POLLOUT
                    self._poll.modify(self._sock, events)
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                pause = PAUSE if self._reader.partial else None
                limits = [seconds * 1e3 for seconds in (left, pause) if seconds is not None]
                ready = self._poll.poll(min(limits, default=None))
                if events & select.POLLOUT:
                    self._poll.modify(self._sock, select.POLLIN)
                if not ready:
                    if pause is None or (left is not None and left <= pause) or self._check_frame():
                        return False
                    continue
                for descriptor, event in ready:
                    if descriptor == self._bell:
                        os.eventfd_read(self._bell)
                    elif event & ~select.POLLOUT:
                        return True
                self._flush()
            return False
        finally:
            pulse.waiting = False
            self._woken = False

    def spin(self, seconds: float) -> None:
        if self._pauses:
            self._pauses -= 1
            return
        until = time.monotonic() + seconds
        receive, memory = self._sock.recv_into, self._memory
        while not (self._woken or self._came):
            try:
                self._came = receive(memory)
            except BlockingIOError:
                if time.monotonic() >= until:
                    self._pauses = self._in_vain = min(MOST_PAUSES, 2 * self._in_vain + 1)
                    return
                continue
            except OSError:
                return
            if not self._came:  # `receive` finds the same
                return
        self._in_vain = 0

    def _check_frame(self) -> bool:
        """True if the stream is broken: nothing arrived, and the incomplete frame had an invalid length."""
        try:
            self._reader.check()
        except FrameError as e:
            self._broken = e
        return self._broken is not None

    def wake(self) -> None:
        self._woken = True
        if self._pulse.waiting:
            os.eventfd_write(self._bell, 1)

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, message: Plain) -> None:
        try:
            frame = encode_frame(message)
        except UnicodeEncodeError:  # a text of the system's, such as a path in an error
            frame = encode_frame(escaped(message))
        with self._lock:
            if self._closed is not None:
                return
            if self._outgoing:
                self._outgoing += frame
                return  # the socket is being watched since its first bytes
            sent = self._try_send(frame)
            if sent == len(frame):
                return
            self._outgoing += memoryview(frame)[sent:]
        if threading.get_ident() != self._pulse.thread:
            self.wake()  # so that a waiting admitting thread also waits for room in the socket

    def _flush(self) -> None:
        with self._lock:
            if self._outgoing:
                with memoryview(self._outgoing) as view:
                    sent = self._try_send(view)
                del self._outgoing[:sent]

    def _try_send(self, data: bytearray | memoryview) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as e:
            self._closed = self._closed or str(e)
            return len(data)

    # -- arenas --------------------------------------------------------------------------------------------------------

    def take_descriptor(self, arena: int, descriptor: int | None) -> None:
        """An arena's descriptor has come; None: this process has no room for it, nor for those after it, now.

        On the control thread.
        """
        with self._descriptor_came:
            self._full = descriptor is None
            if descriptor is not None and arena in self._unwanted:
                self._unwanted.remove(arena)
                os.close(descriptor)
            elif descriptor is not None:
                self._descriptors[arena] = descriptor
            self._descriptor_came.notify_all()

    def map_arena(self, arena: int, nbytes: int, address: int) -> int:
        with self._descriptor_came:
            if not self._descriptor_came.wait_for(lambda: self._full or arena in self._descriptors, ARENA_TIME):
                raise TimeoutError(f"the descriptor of arena {arena} did not arrive within {ARENA_TIME:g} s")
            self._descriptor_came.wait_for(lambda: arena in self._descriptors, ROOM_TIME if self._full else 0.0)
            descriptor = self._descriptors.get(arena)
        if descriptor is None:  # it comes when there is room for it
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        memory = mmap.mmap(descriptor, nbytes)  # if this fails, it is kept for another attempt
        os.close(self._descriptors.pop(arena))
        self._mapped[arena] = memory
        # The temporary object is dropped at once, so that the mapping can be closed later.
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def unmap_arena(self, arena: int) -> None:
        mapped = self._mapped.pop(arena, None)
        if mapped is not None:
            mapped.close()
            return
        with self._descriptor_came:
            if arena in self._descriptors:
                os.close(self._descriptors.pop(arena))
            else:
                self._unwanted.add(arena)

    # -- life ----------------------------------------------------------------------------------------------------------

    def busy(self, step: str | None) -> None:
        self._pulse.step(step)

    def serve_here(self) -> None:
        self._pulse.thread = threading.get_ident()

    def beat(self) -> None:
        self._pulse.rounds += 1

    def run_exit_handlers(self) -> None:
        late = threading.Timer(EXIT_TIME, self._stop_exit_handlers)
        late.daemon = True
        late.start()
        atexit._run_exitfuncs()  # what they raise is printed
        late.cancel()

    def _stop_exit_handlers(self) -> None:
        log.warning("functions registered by atexit did not end within %g s; the process leaves", EXIT_TIME)
        self.leave(0)

    def leave(self, code: int) -> None:
        # Whatever blocks below (a full pipe, a lock of the C library), the process ends in time.
        guard = threading.Timer(2 * LEAVE_TIME, os._exit, (code,))
        guard.daemon = True
        guard.start()
        deadline = time.monotonic() + LEAVE_TIME
        poll = select.poll()
        poll.register(self._sock, select.POLLOUT)
        self._flush()
        while self._outgoing and (left := deadline - time.monotonic()) > 0:
            poll.poll(left * 1e3)
            self._flush()
        self._pulse.changed()
        with contextlib.suppress(Exception):  # output that cannot be written any more is lost
            sys.stdout.flush()
            sys.stderr.flush()
            ctypes.CDLL(None).fflush(None)
        os._exit(code)
