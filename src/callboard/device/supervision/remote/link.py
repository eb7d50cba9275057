"""``Link``: frames over a stream between machines, with signs of life."""

import asyncio
import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Generic, TypeVar

from callboard.device.protocol.messages import Calls, Plain, ProtocolError
from callboard.device.protocol.remote import PIECE, Bytes, PulseMessage
from callboard.device.protocol.signatures import SignatureWriter
from callboard.device.protocol.wire import FrameReader, UnknownKind, encode_frame

__all__ = ["Link", "Piece", "pieces"]

RECEIVE = 256 << 10
MOST_BUFFERED = 256 << 10
"""Bytes that the transport may hold; more waits here."""
AT_ONCE = 4 << 20
"""Bytes after which other callbacks of the loop get their turn, however fast the connection takes them."""

M = TypeVar("M")


class Piece:
    """A part of an arena, read when it is sent: no second copy of a large array waits for the connection.

    Its bytes stay unchanged until the other end has answered the message that follows.

    Args:
        arena, offset: Destination: arena and bytes from its start.
        address: Address of the bytes in this process.
        nbytes: Number of bytes.
    """

    __slots__ = ("_address", "_arena", "_nbytes", "_offset")

    def __init__(self, arena: int, offset: int, address: int, nbytes: int) -> None:
        self._arena = arena
        self._offset = offset
        self._address = address
        self._nbytes = nbytes

    def __len__(self) -> int:
        return self._nbytes

    def frame(self) -> bytearray:
        """It, as it is sent."""
        return encode_frame(Bytes(self._arena, self._offset, ctypes.string_at(self._address, self._nbytes)))


def pieces(arena: int, offset: int, address: int, nbytes: int) -> Iterator[Piece]:
    """A part of an arena in pieces. Args as of :class:`Piece`."""
    for at in range(0, nbytes, PIECE):
        yield Piece(arena, offset + at, address + at, min(PIECE, nbytes - at))


class Link(asyncio.BufferedProtocol, Generic[M]):
    """One end of a connection whose handshake is done. The protocol of its transport from then on.

    Args:
        reader, writer: The stream; owned from now on.
        union: Union of the message types that the other end sends.
        interval: Seconds between signs of life.
        lost_after: Seconds without a word from the other end after which the connection counts as cut.
        on_message: Called for each message but :class:`PulseMessage`, in order; what it raises ends the link.
        on_end: Called once, with the reason, and True if the other end sent what cannot be read.
        relayed: Messages whose frames come as they are (:class:`.FrameReader`); ``M`` then has ``memoryview``.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        union: Any,
        interval: float,
        lost_after: float,
        on_message: Callable[[M], None],
        on_end: Callable[[str, bool], None],
        relayed: Collection[type[Any]] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._writer = writer  # it closes the transport when it is dropped
        self._transport: asyncio.Transport = writer.transport  # type: ignore[assignment]
        self._memory = memoryview(bytearray(RECEIVE))
        self._frames: FrameReader[Any] = FrameReader(union, relayed)
        self._signatures = SignatureWriter()
        self._interval = interval
        self._lost_after = lost_after
        self._on_message = on_message
        self._on_end: Callable[[str, bool], None] | None = on_end
        self._silent = 0.0
        self._waiting: deque[bytearray | memoryview | Piece] = deque()
        self._closing = False  # when the frames that wait are sent
        self._tasks = [self._loop.create_task(step) for step in (self._begin(reader), self._beat())]

    def watch(self, interval: float, lost_after: float) -> None:
        """Change how often signs of life are sent, and how long silence may be."""
        self._interval, self._lost_after = interval, lost_after

    # -- out -----------------------------------------------------------------------------------------------------------

    def send(self, *messages: Plain | Piece) -> None:
        """Send messages together, in order. Any thread, but for calls; never blocks. Dropped when it has ended.

        Raises:
            ValueError: One is longer than a frame may be.
        """
        frames = [m if isinstance(m, Piece) else self._encoded(m) for m in messages]
        if threading.get_ident() == self._thread:
            self._write(frames)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._write, frames)

    def forward(self, frames: memoryview) -> None:
        """Send frames as they are. On the loop's thread."""
        self._write([frames])

    def _encoded(self, message: Plain) -> bytearray:
        return encode_frame(self._signatures.shorten(message) if isinstance(message, Calls) else message)

    def _write(self, frames: "Sequence[bytearray | memoryview | Piece]") -> None:
        if self._on_end is None:
            return
        if not self._waiting and self._few(frames):
            for frame in frames:
                self._transport.write(frame.frame() if isinstance(frame, Piece) else frame)
            return
        # Not into the transport: what it buffers is moved with each part of it that is sent.
        idle = not self._waiting  # else the transport or the loop will ask for more
        self._waiting.extend(frames)
        if idle:
            self.resume_writing()

    def _few(self, frames: "Sequence[bytearray | memoryview | Piece]") -> bool:
        """True if the transport may take them at once; also for a single message of any length."""
        buffered = self._transport.get_write_buffer_size()
        return buffered < MOST_BUFFERED and (len(frames) == 1 or sum(map(len, frames)) <= MOST_BUFFERED)

    def resume_writing(self) -> None:
        """Give the transport what waits, until it holds enough; then it calls this again."""
        waiting, transport, given = self._waiting, self._transport, 0
        while waiting and transport.get_write_buffer_size() < MOST_BUFFERED:
            if given >= AT_ONCE:
                self._loop.call_soon(self.resume_writing)
                return
            frame = waiting.popleft()
            given += len(frame)
            transport.write(frame.frame() if isinstance(frame, Piece) else frame)
        if self._closing and not waiting:
            transport.close()

    def forget(self) -> None:
        """Drop unsent frames: the arenas of their pieces are about to be released."""
        self._waiting.clear()

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._waiting))

    # -- in ------------------------------------------------------------------------------------------------------------

    async def _begin(self, reader: asyncio.StreamReader) -> None:
        """Take over from the handshake's reader, which costs a task and two copies for each portion."""
        transport = self._transport
        transport.pause_reading()
        transport.set_protocol(self)
        reader.feed_eof()
        try:
            self._came(await reader.read())  # what it holds; does not wait
        except OSError as e:
            self.connection_lost(e)
        if transport.is_closing():
            self.connection_lost(None)
        else:
            transport.resume_reading()  # tells of an end that the reader was told of, too
            self.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        self._came(self._memory[:nbytes])

    def eof_received(self) -> None:
        self.end("the other end closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self.eof_received()
        else:
            self.end(f"the connection broke: {exc}")

    def _came(self, data: bytes | memoryview) -> None:
        self._silent = 0.0
        try:
            for message in self._frames.feed(data):
                if type(message) is UnknownKind:
                    raise ProtocolError(f"unknown kind {message.kind}")
                if type(message) is not PulseMessage and self._on_end is not None:
                    self._on_message(message)  # type: ignore[arg-type]
        except Exception as e:  # of the stream or of a message: whatever was to be said is lost
            why = f"the other end sent a message that cannot be read: {type(e).__name__}: {e}"
            self.end(why, unreadable=True)

    async def _beat(self) -> None:
        while True:
            began = self._loop.time()
            await asyncio.sleep(self._interval)
            # If this loop did not run (a debugger, a busy callback), that is not the other end's silence: data that
            # arrived meanwhile has not been read yet.
            self._silent += min(self._loop.time() - began, self._interval)
            if self._silent >= self._lost_after:
                self.end(f"no sign of life for {self._lost_after:g} s")
                return
            self.send(PulseMessage())

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self, why: str, *, flush: bool = False, unreadable: bool = False) -> None:
        """Stop reading and writing; with ``flush``, unsent frames are sent before. On the loop's thread."""
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            return
        current = asyncio.current_task() if asyncio._get_running_loop() is self._loop else None
        for task in self._tasks:
            if task is not current:
                task.cancel()
        if flush:
            self._closing = True
            self._transport.set_protocol(self)  # if it has not begun
            self.resume_writing()
        else:
            self.forget()
            self._transport.abort()
        on_end(why, unreadable)
