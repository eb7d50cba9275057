"""Frames: how :mod:`callboard.device.protocol` crosses a stream socket.

``u32 length | u8 kind | MessagePack body``, little-endian, ``length`` counting the body only. The kind picks the decoder, so a sound
frame of an unknown kind is told apart from a broken stream: the first is answered, the second ends the connection.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Generic, TypeVar, get_args

import msgspec

from callboard.device.protocol import FromHost, Plain, ToHost

__all__ = ["FrameError", "FrameReader", "UnknownKind", "encode_frame"]

HEADER = Struct("<IB")
MAX_FRAME = 64 << 20
"""A longer frame is a broken one (arrays travel in arenas, never in frames)."""

M = TypeVar("M")


class FrameError(Exception):
    """The stream is broken: a length, a kind's body or the end does not fit. The connection cannot go on."""


class UnknownKind(msgspec.Struct, frozen=True):
    """A sound frame of a kind that this end does not know."""

    kind: int


_encoder = msgspec.msgpack.Encoder()
_KINDS: dict[type[Any], int] = {
    cls: int(cls.__struct_config__.tag) for union in (ToHost, FromHost) for cls in get_args(union)
}


def encode_frame(message: Plain) -> bytearray:
    """One frame."""
    frame = bytearray(HEADER.size)
    _encoder.encode_into(message, frame, HEADER.size)
    HEADER.pack_into(frame, 0, len(frame) - HEADER.size, _KINDS[type(message)])
    return frame


class FrameReader(Generic[M]):
    """Takes bytes as they come and gives messages. Sans-IO."""

    __slots__ = ("_buffer", "_decoders")

    def __init__(self, union: Any) -> None:
        self._buffer = bytearray()
        self._decoders = {_KINDS[cls]: msgspec.msgpack.Decoder(cls).decode for cls in get_args(union)}

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[M | UnknownKind]:
        """The messages that are now complete.

        Raises:
            FrameError: The stream is broken; messages before the break have been given.
        """
        buffer = self._buffer
        buffer += data
        start, end = 0, len(buffer)
        try:
            while end - start >= HEADER.size:
                length, kind = HEADER.unpack_from(buffer, start)
                if length > MAX_FRAME:
                    raise FrameError(f"frame of {length} bytes; at most {MAX_FRAME} are allowed")
                stop = start + HEADER.size + length
                if stop > end:
                    return
                decode = self._decoders.get(kind)
                with memoryview(buffer) as view, view[start + HEADER.size : stop] as body:
                    if decode is None:
                        message: Any = UnknownKind(kind)
                    else:
                        try:
                            message = decode(body)
                        except msgspec.DecodeError as e:
                            raise FrameError(f"frame of kind {kind}: {e}") from e
                start = stop
                yield message
        finally:
            del buffer[:start]

    def end(self) -> None:
        """The stream has ended.

        Raises:
            FrameError: In the middle of a frame.
        """
        if self._buffer:
            raise FrameError(f"the stream ended inside a frame ({len(self._buffer)} bytes of it)")
