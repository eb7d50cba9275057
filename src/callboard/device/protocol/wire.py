"""Frames: how :mod:`callboard.device.protocol.messages` crosses a stream socket.

``u32 length | u8 kind | MessagePack body``, little-endian, ``length`` counting the body only. The kind picks the
decoder, so a valid frame of an unknown kind is not taken for a broken stream. Both end the connection: a host that is
sent an unknown kind reports it, and is replaced.
"""

from collections.abc import Collection, Iterator
from struct import Struct
from typing import Any, Generic, TypeVar, get_args

import msgspec

from callboard.device.protocol.messages import FromHost, Plain, ProtocolError, ToHost
from callboard.device.protocol.remote import FromNode, ToNode
from callboard.device.protocol.sharing import FromHolder, ToHolder

__all__ = ["FrameError", "FrameReader", "TruncatedStream", "UnknownKind", "as_text", "encode_frame", "escaped"]

HEADER = Struct("<IB")
MAX_FRAME = 64 << 20
"""A longer frame is a broken one (arrays travel in arenas, never in frames)."""

M = TypeVar("M")


class FrameError(ProtocolError):
    """The stream is broken: a length, a kind's body or the end does not fit. The connection is unusable."""


class TruncatedStream(FrameError):
    """The stream ended inside a frame."""


class UnknownKind(msgspec.Struct, frozen=True):
    """A valid frame of a kind unknown to this end."""

    kind: int


_encoder = msgspec.msgpack.Encoder()
_any = msgspec.msgpack.Decoder().decode
_KINDS: dict[type[Any], int] = {
    cls: int(cls.__struct_config__.tag)
    for union in (ToHost, FromHost, ToNode, FromNode, ToHolder, FromHolder)
    for cls in get_args(union)
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


def as_text(text: str, limit: int) -> str:
    """The text as UTF-8 can carry it: lone surrogates are escaped, the middle of a long text is left out and counted.

    Args:
        text: Any.
        limit: Bytes that it may keep, as UTF-8.
    """
    data = text.encode(errors="backslashreplace")
    if len(data) <= limit:
        return data.decode()
    half = limit // 2
    begin, end = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    return f"{begin} [... {len(data) - 2 * half:,} bytes left out ...] {end}"


def escaped(message: Plain) -> Plain:
    """The message with lone surrogates of its texts escaped, which no frame can carry."""
    plain = msgspec.to_builtins(message, builtin_types=(bytes,))
    return msgspec.convert(_escaped(plain), type(message))


def _escaped(value: Any) -> Any:
    if type(value) is str:
        return value.encode(errors="backslashreplace").decode()
    if type(value) is dict:
        return {_escaped(k): _escaped(v) for k, v in value.items()}
    return list(map(_escaped, value)) if type(value) in (list, tuple) else value


class FrameReader(Generic[M]):
    """Takes bytes as they come and returns messages. Sans-IO.

    Args:
        union: The messages of the other end.
        relayed: Those of them that are not decoded: adjacent frames of these kinds come as one ``memoryview``, which is
            then part of ``M``.

    Attributes:
        begun: Number of frames that arrived in several portions: identifies the incomplete one.
    """

    __slots__ = ("_decoders", "_needed", "_relayed", "_rest", "begun")

    def __init__(self, union: Any, relayed: Collection[type[Any]] = ()) -> None:
        self.begun = 0
        self._relayed = frozenset(_KINDS[cls] for cls in relayed)
        self._rest = bytearray()  # the beginning of a frame whose end has not come
        self._needed = 0  # bytes needed before the next check
        self._decoders = {_KINDS[cls]: msgspec.msgpack.Decoder(cls).decode for cls in get_args(union)}

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[M | UnknownKind]:
        """The messages that are now complete; exhaust it before feeding more, or changing ``data``.

        Raises:
            FrameError: By the iterator: the stream is broken; messages before the break have been given.
        """
        if len(data) > HEADER.size and not self._rest:  # the usual case: one frame
            length, kind = HEADER.unpack_from(data)
            if length == len(data) - HEADER.size and kind not in self._relayed and kind in self._decoders:
                try:
                    return iter((self._decoders[kind](bytes(data[HEADER.size :])),))
                except Exception:  # the iterator raises what is to be told of it
                    return self._frames(data)
        return self._frames(data)

    def _frames(self, data: bytes | bytearray | memoryview) -> Iterator[M | UnknownKind]:
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._needed:
                return
            whole = bytes(rest)  # immutable, because a decoded ``Raw`` refers to the bytes of its message
            rest.clear()
        else:
            whole = bytes(data)
        start, end = 0, len(whole)
        relayed, begun = self._relayed, 0  # where the frames begin that are given as they are
        view = memoryview(whole)
        try:
            while end - start >= 5:
                length, kind = HEADER.unpack_from(whole, start)
                stop = start + 5 + length
                if length <= MAX_FRAME:
                    if stop > end:
                        break
                    if kind in relayed:
                        start = stop
                        continue
                if begun < start:
                    yield view[begun:start]  # type: ignore[misc]
                if length > MAX_FRAME:
                    raise FrameError(f"a frame of {length} bytes; at most {MAX_FRAME} are allowed")
                body = view[start + 5 : stop]
                start = begun = stop
                decode = self._decoders.get(kind)
                if decode is None:
                    yield UnknownKind(kind)
                    continue
                try:
                    message = decode(body)
                except Exception as e:  # msgspec's own, and what Unicode, nesting or unhashable keys raise through it
                    raise FrameError(f"frame of kind {kind}: {e}") from e
                yield message
            if begun < start:
                yield view[begun:start]  # type: ignore[misc]
        finally:
            if start < end:
                rest += view[start:]
                self.begun += 1
                self._needed = 5 if end - start < 5 else 5 + HEADER.unpack_from(whole, start)[0]

    @property
    def partial(self) -> bool:
        """True if a frame is incomplete."""
        return bool(self._rest)

    def check(self) -> None:
        """See whether the incomplete frame can still become a message, after a pause of the stream.

        MessagePack defines where a value ends: a message that is complete before its frame had a false length.

        Raises:
            FrameError: It cannot.
        """
        if len(self._rest) < HEADER.size:
            return
        length, kind = HEADER.unpack_from(self._rest)
        try:
            self._decoders.get(kind, _any)(bytes(self._rest)[HEADER.size :])
        except Exception as e:  # as in `feed`
            if "truncated" in str(e):
                return
            raise FrameError(f"frame of kind {kind}: {e}") from e
        raise FrameError(f"frame of kind {kind}: its length is {length}, its message is shorter")

    def end(self) -> None:
        """The stream has ended.

        Raises:
            TruncatedStream: In the middle of a frame.
        """
        if self._rest:
            raise TruncatedStream(f"the stream ended inside a frame ({len(self._rest)} bytes of it arrived)")
