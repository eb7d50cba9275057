"""Frames: how :mod:`callboard.device.protocol` crosses a stream socket.

``u32 length | u8 kind | MessagePack body``, little-endian, ``length`` counting the body only. The kind picks the
decoder, so a sound
frame of an unknown kind is told apart from a broken stream: the first is answered, the second ends the connection.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Generic, TypeVar, get_args

import msgspec

from callboard.device.protocol import FromHost, Plain, ToHost

__all__ = ["FrameError", "FrameReader", "TruncatedStream", "UnknownKind", "encode_frame"]

HEADER = Struct("<IB")
MAX_FRAME = 64 << 20
"""A longer frame is a broken one (arrays travel in arenas, never in frames)."""

M = TypeVar("M")


class FrameError(Exception):
    """The stream is broken: a length, a kind's body or the end does not fit. The connection cannot go on."""


class TruncatedStream(FrameError):
    """The stream ended inside a frame."""


class UnknownKind(msgspec.Struct, frozen=True):
    """A sound frame of a kind that this end does not know."""

    kind: int


_encoder = msgspec.msgpack.Encoder()
_KINDS: dict[type[Any], int] = {
    cls: int(cls.__struct_config__.tag) for union in (ToHost, FromHost) for cls in get_args(union)
}


def encode_frame(message: Plain) -> bytearray:
    """One frame. Any thread.

    Raises:
        ValueError: It is longer than the other end accepts.
    """
    frame = bytearray(HEADER.size)
    _encoder.encode_into(message, frame, HEADER.size)
    length = len(frame) - HEADER.size
    if length > MAX_FRAME:
        raise ValueError(
            f"a {type(message).__name__} message of {length} bytes; at most {MAX_FRAME} are allowed: "
            "send arrays, which travel in arenas, instead of bytes and lists"
        )
    HEADER.pack_into(frame, 0, length, _KINDS[type(message)])
    return frame


class FrameReader(Generic[M]):
    """Takes bytes as they come and gives messages. Sans-IO."""

    __slots__ = ("_decoders", "_needed", "_rest")

    def __init__(self, union: Any) -> None:
        self._rest = bytearray()  # the beginning of a frame whose end has not come
        self._needed = 0  # bytes that it must have before it is looked at again
        self._decoders = {_KINDS[cls]: msgspec.msgpack.Decoder(cls).decode for cls in get_args(union)}

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[M | UnknownKind]:
        """The messages that are now complete; exhaust it before feeding more. ``data`` is read at the first step.

        Raises:
            FrameError: The stream is broken; messages before the break have been given.
        """
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._needed:
                return
            whole = bytes(rest)  # immutable, because a decoded ``Raw`` refers to the bytes that it came from
            rest.clear()
        else:
            whole = bytes(data)
        start, end = 0, len(whole)
        view = memoryview(whole)
        try:
            while end - start >= 5:
                length, kind = HEADER.unpack_from(whole, start)
                if length > MAX_FRAME:
                    raise FrameError(f"a frame of {length} bytes; at most {MAX_FRAME} are allowed")
                stop = start + 5 + length
                if stop > end:
                    break
                body = view[start + 5 : stop]
                start = stop
                decode = self._decoders.get(kind)
                if decode is None:
                    yield UnknownKind(kind)
                    continue
                try:
                    message = decode(body)
                except Exception as e:  # msgspec's own, and what Unicode, nesting or unhashable keys raise through it
                    raise FrameError(f"frame of kind {kind}: {e}") from e
                yield message
        finally:
            if start < end:
                rest += view[start:]
                self._needed = 5 if end - start < 5 else 5 + HEADER.unpack_from(whole, start)[0]

    def end(self) -> None:
        """The stream has ended.

        Raises:
            TruncatedStream: In the middle of a frame.
        """
        if self._rest:
            raise TruncatedStream(f"the stream ended inside a frame ({len(self._rest)} bytes of it came)")
