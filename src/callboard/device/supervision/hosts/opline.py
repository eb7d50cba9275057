"""The application's end of an op socket: writes as much as the socket takes, reads without blocking the loop."""

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

from callboard.device.protocol.messages import Calls, FromHost, Plain, ProtocolError
from callboard.device.protocol.signatures import SignatureWriter
from callboard.device.protocol.wire import FrameError, FrameReader, UnknownKind, encode_frame

__all__ = ["OpLine"]

RECEIVE = 256 << 10
"""Bytes read at once; more than a Unix socket holds by default."""

TURN = 1e-3
"""Seconds of delivering messages before other callbacks of the loop get their turn."""

PAUSE = 1.0
"""Seconds between two checks of an incomplete frame."""

FRAME_TIME = 30.0
"""Seconds in which the rest of a frame must arrive, unless the other end has announced that it is busy."""


class OpLine:
    """One op socket on one loop.

    Args:
        loop: Running on the calling thread.
        sock: Connected, not blocking; owned from now on.
        on_message: Called for each message, in order. If it raises, the stream is broken: the answer that it could not
            read must not be waited for.
        on_end: Called once, when nothing will come any more: with the :class:`ProtocolError` that broke the stream,
            None at a clean end.
        busy: True if the other end has announced that it writes nothing for a while.
        relayed: Messages whose frames come as they are (:class:`.FrameReader`).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_message: Callable[[FromHost | memoryview | UnknownKind], None],
        on_end: Callable[[ProtocolError | None], None],
        busy: Callable[[], bool] = lambda: False,
        relayed: Collection[type[Any]] = (),
    ) -> None:
        self._loop = loop
        self._busy = busy
        self._looking: asyncio.TimerHandle | None = None  # at an incomplete frame
        self._thread = threading.get_ident()
        self._sock = sock
        self._on_message = on_message
        self._on_end: Callable[[ProtocolError | None], None] | None = on_end
        self._signatures = SignatureWriter()
        self._outgoing = bytearray()
        self._writing = False  # whether the loop waits for the socket to take more
        self._handed: deque[bytearray] = deque()  # frames of other threads
        self._handing = False
        self._reader: FrameReader[FromHost | memoryview] = FrameReader(FromHost, relayed)
        self._portion: Iterator[FromHost | memoryview | UnknownKind] | None = None
        self._memory = memoryview(bytearray(RECEIVE))
        self._open = True
        loop.add_reader(sock, self._readable)

    # -- writing -------------------------------------------------------------------------------------------------------

    def post(self, message: Plain) -> None:
        """Send a message; never blocks. Any thread may; calls only the loop's. Dropped if the line is dead.

        Raises:
            ValueError: It is longer than a frame may be.
        """
        frame = self._encoded_calls(message) if isinstance(message, Calls) else encode_frame(message)
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

    def forward(self, frames: memoryview) -> None:
        """Send frames of another line, as they are, in place of any calls of :meth:`post`. On the loop's thread."""
        self._write(frames)

    def _encoded_calls(self, message: Calls) -> bytearray:
        assert threading.get_ident() == self._thread, "signatures are numbered in the order in which they are sent"
        try:
            return encode_frame(self._signatures.shorten(message))
        except ValueError:  # nothing of it is sent
            self._signatures.forget()
            raise

    @property
    def unsent_bytes(self) -> int:
        return len(self._outgoing) + sum(map(len, tuple(self._handed)))

    def _take_handed(self) -> None:
        self._handing = False  # first, so that items handed over from now on call again
        frames = bytearray()
        for _ in range(len(self._handed)):
            frames += self._handed.popleft()
        self._write(frames)

    def _write(self, frame: bytearray | memoryview) -> None:
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
        except OSError:  # the other end has ended; the process monitor reports it
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

    def linger(self, done: Callable[[], bool], seconds: float) -> bool:
        """Read until ``done()``, for ``seconds`` at most; returns whether it is done."""
        until = time.perf_counter() + seconds
        receive, memory = self._sock.recv_into, self._memory
        while not done():
            while True:
                if self._portion is not None or not self._open or self._on_end is None:
                    return done()
                try:
                    count = receive(memory)
                except BlockingIOError:
                    if time.perf_counter() > until:
                        return False
                except OSError:
                    count = 0
                    break
                else:
                    break
            self._came(count)
        return True

    # -- reading -------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._portion is not None:
            return  # the rest of the last portion is scheduled first
        try:
            count = self._sock.recv_into(self._memory)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        self._came(count)

    def _came(self, count: int) -> None:
        """Handle ``count`` received bytes; 0: the stream has ended."""
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
        except ProtocolError as e:
            self._stop_reading(e)
        except Exception as e:  # a bug in the receiver; the answer is lost all the same
            error = ProtocolError(f"{type(e).__name__}: {e}")
            error.__cause__ = e
            self._stop_reading(error)
        self._portion = None
        if self._reader.partial and self._looking is None and self._on_end is not None:
            self._look_later(self._reader.begun, 0.0)

    def _look_later(self, frame: int, waited: float) -> None:
        self._looking = self._loop.call_later(PAUSE, self._look_at_frame, frame, waited + PAUSE)

    def _look_at_frame(self, frame: int, waited: float) -> None:
        """Check a frame that is still incomplete: with a wrong length it would swallow the frames after it."""
        self._looking = None
        reader = self._reader
        if not (self._open and reader.partial) or self._on_end is None:
            return
        if frame != reader.begun or self._portion is not None or self._waiting():
            self._look_later(reader.begun, 0.0)
            return
        try:
            reader.check()
            if waited >= FRAME_TIME and not self._busy():
                raise FrameError(f"a frame was not complete after {waited:g} s")
        except FrameError as e:
            self._stop_reading(e)
        else:
            self._look_later(frame, waited)

    def _waiting(self) -> bool:
        """True if unread data has arrived."""
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _end(self) -> None:
        try:
            self._reader.end()
        except FrameError as e:
            self._stop_reading(e)
        else:
            self._stop_reading(None)

    def _stop_reading(self, error: ProtocolError | None) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            self._loop.remove_reader(self._sock)
            on_end(error)

    def drain(self) -> None:
        """Read the rest of the dead host's data, then end; a process that it forked may hold its socket open."""
        if self._on_end is None:
            return
        if self._portion is None:
            if not self._waiting():
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
            if self._looking is not None:
                self._looking.cancel()
            self._stop_writing()
            self._outgoing.clear()
            self._sock.close()

    def after_fork(self) -> None:
        """In a forked child: close without touching the loop, whose selector the parent still uses."""
        self._open = False
        self._sock.close()
