"""The application's end of an op socket: writes at once what the socket takes, reads without holding up the loop."""

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from callboard.device.protocol import FromHost, Plain
from callboard.device.wire import FrameError, FrameReader, UnknownKind, encode_frame

__all__ = ["OpLine"]

RECEIVE = 256 << 10
"""Bytes read at once; more than a Unix socket holds by default."""

TURN = 1e-3
"""Seconds of delivering messages before other callbacks of the loop get their turn."""


class OpLine:
    """One op socket on one loop.

    Args:
        loop: Running on the calling thread.
        sock: Connected, not blocking; owned from now on.
        on_message: Called for each message, in order.
        on_end: Called once, when nothing will come any more: with the :class:`FrameError` that broke the stream, None
            at a clean end.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_message: Callable[[FromHost | UnknownKind], None],
        on_end: Callable[[FrameError | None], None],
    ) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._sock = sock
        self._on_message = on_message
        self._on_end: Callable[[FrameError | None], None] | None = on_end
        self._outgoing = bytearray()
        self._writing = False  # whether the loop waits for the socket to take more
        self._handed: deque[bytearray] = deque()  # frames of other threads
        self._handing = False
        self._reader: FrameReader[FromHost] = FrameReader(FromHost)
        self._portion: Iterator[FromHost | UnknownKind] | None = None
        self._memory = memoryview(bytearray(RECEIVE))
        self._open = True
        loop.add_reader(sock, self._readable)

    # -- writing -------------------------------------------------------------------------------------------------------

    def post(self, message: Plain) -> None:
        """Send a message. Any thread; never blocks. Of a dead line it is dropped."""
        frame = encode_frame(message)
        if threading.get_ident() == self._thread:
            self._write(frame)
            return
        self._handed.append(frame)
        if not self._handing:
            self._handing = True
            try:
                self._loop.call_soon_threadsafe(self._take_handed)
            except RuntimeError:  # the loop is closed, so nothing will ever be sent or awaited
                self._handed.clear()

    @property
    def unsent_bytes(self) -> int:
        return len(self._outgoing) + sum(map(len, tuple(self._handed)))

    def _take_handed(self) -> None:
        self._handing = False  # first: what is handed over from now on calls again
        frames = bytearray()
        for _ in range(len(self._handed)):
            frames += self._handed.popleft()
        self._write(frames)

    def _write(self, frame: bytearray) -> None:
        if self._outgoing:
            self._outgoing += frame
            self._flush()  # a caller that does not let the loop run must not leave the host without work
            return
        if not self._open:
            return
        try:
            sent = self._sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:  # the other end is gone; whoever watches the process says so
            return
        if sent < len(frame):
            self._outgoing += memoryview(frame)[sent:]
            self._writing = True
            self._loop.add_writer(self._sock, self._flush)

    def _flush(self) -> None:
        outgoing = self._outgoing
        try:
            with memoryview(outgoing) as view:
                sent = self._sock.send(view[:RECEIVE])
        except BlockingIOError:
            return
        except OSError:
            sent = len(outgoing)
        del outgoing[:sent]
        if not outgoing:
            self._stop_writing()

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock)

    def look(self) -> None:
        """Read what has come, without waiting for the loop to say so."""
        if self._open:
            self._readable()

    # -- reading -------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._portion is not None:
            return  # the rest of the last portion comes first; it is scheduled
        try:
            count = self._sock.recv_into(self._memory)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count:
            self._portion = self._reader.feed(self._memory[:count])
            self._deliver()
        else:
            self._end()

    def _deliver(self) -> None:
        portion = self._portion
        if portion is None:
            return
        deadline = time.perf_counter() + TURN
        try:
            for message in portion:
                self._on_message(message)
                if time.perf_counter() > deadline:
                    self._loop.call_soon(self._deliver)
                    return
        except FrameError as e:
            self._stop_reading(e)
        except Exception as e:  # a bug of the receiver; the messages behind it are other people's answers
            context: dict[str, Any] = {"message": "callboard: a message of a host could not be handled", "exception": e}
            self._loop.call_exception_handler(context)
            self._loop.call_soon(self._deliver)
            return
        self._portion = None

    def _end(self) -> None:
        try:
            self._reader.end()
        except FrameError as e:
            self._stop_reading(e)
        else:
            self._stop_reading(None)

    def _stop_reading(self, error: FrameError | None) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            self._loop.remove_reader(self._sock)
            on_end(error)

    def drain(self) -> None:
        """The other end is dead: read what it has sent, then end; a process that it forked may hold its socket open."""
        if self._on_end is None:
            return
        if self._portion is None:
            try:
                waiting = self._sock.recv(1, socket.MSG_PEEK)
            except OSError:
                waiting = b""
            if not waiting:
                self._end()
                return
            self._readable()
        self._loop.call_soon(self.drain)

    def close(self) -> None:
        """Neither read nor write any more."""
        if self._open:
            self._open = False
            self._on_end = None
            self._loop.remove_reader(self._sock)
            self._stop_writing()
            self._outgoing.clear()
            self._sock.close()

    def after_fork(self) -> None:
        """In a forked child: close without touching the loop, whose selector the parent still uses."""
        self._open = False
        self._sock.close()
