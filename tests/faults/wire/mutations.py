"""Frames made wrong: bytes changed, fields changed, messages that the other end never sent.

All that is known of the messages comes from their classes (:mod:`callboard.device.protocol.messages`).
"""

import types
from collections.abc import Callable
from random import Random
from typing import Any, Union, get_args, get_origin

import msgspec

from callboard.device.protocol.messages import Plain
from callboard.device.protocol.wire import HEADER, MAX_FRAME, FrameError, FrameReader, UnknownKind, encode_frame

__all__ = ["Mutator", "read_frame"]

NUMBERS = [0, 1, -1, 2, 127, 128, 255, 1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 0.0, -0.5, 1e308]
ODD = [None, True, float("nan"), float("inf"), "", "x", "é" * 40, b"", b"\xc1", bytes(300), [], [[]], {}, {"a": 1}]
CODE = ["subprocess:Popen", "os:system", "builtins:eval", "this:s", "antigravity:geohash", "../x"]
"""Names that a reader which imports or calls what it is told would act on."""
PICKLE = b"cposix\nsystem\n(S'touch /tmp/callboard-fuzz-ran'\ntR."


def read_frame(union: Any, data: bytes) -> list[Any] | None:
    """The messages of some bytes; None if they are not whole messages of known kinds."""
    reader: FrameReader[Any] = FrameReader(union)
    try:
        messages = list(reader.feed(data))
        reader.end()
    except FrameError:
        return None
    return None if any(isinstance(message, UnknownKind) for message in messages) else messages


class Mutator:
    """Makes wrong frames.

    Args:
        union: The messages of this direction.
        random: Where all choices come from.
        code: Names and pickles that would run code are among the wrong values.
    """

    def __init__(self, union: Any, random: Random, *, code: bool) -> None:
        self._random = random
        self._classes: tuple[type[Any], ...] = get_args(union)
        self._kinds = [int(cls.__struct_config__.tag) for cls in self._classes]
        self._values = [*NUMBERS, *ODD, *(CODE if code else ()), *([["0" * 32, PICKLE]] if code else ())]
        self._ways: list[tuple[int, Callable[[bytes], bytes]]] = [
            (35, self._bytes),
            (45, self._fields),
            (5, self._length),
            (5, self._kind),
            (5, self._other),
            (5, self._cut),
        ]

    def __call__(self, frame: bytes) -> bytes:
        """The frame, made wrong; in one of a thousand tries it cannot be and stays as it is."""
        weights, ways = zip(*self._ways, strict=True)
        for way in self._random.choices(ways, weights, k=5):
            wrong: bytes = way(frame)
            if wrong != frame:
                return wrong
        return frame

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def _bytes(self, frame: bytes) -> bytes:
        """Some bytes of the body changed, put in or left out; its length says so, or does not."""
        random = self._random
        body = bytearray(frame[HEADER.size :])
        for _ in range(random.choice([1, 1, 1, 2, 8])):
            at = random.randrange(len(body) + 1)
            match random.randrange(5):
                case 0 if at < len(body):
                    body[at] ^= 1 << random.randrange(8)
                case 1 if at < len(body):
                    body[at] = random.randrange(256)
                case 2:
                    body[at:at] = random.randbytes(random.choice([1, 2, 9]))
                case 3:
                    del body[at : at + random.choice([1, 2, 9])]
                case _:
                    body[at:at] = body[at : at + 16]
        length = len(body) if random.randrange(4) else len(frame) - HEADER.size
        return HEADER.pack(length, frame[4]) + body

    def _length(self, frame: bytes) -> bytes:
        """A false length."""
        length = len(frame) - HEADER.size
        wrong = self._random.choice([0, 1, length - 1, length + 1, length + 40, 2 * length, 1 << 20, MAX_FRAME + 1])
        return HEADER.pack(max(0, wrong), frame[4]) + frame[HEADER.size :]

    def _kind(self, frame: bytes) -> bytes:
        """Another kind in the header, and perhaps in the body."""
        kind = self._random.choice([*self._kinds, 0, 99, 200, 255])
        body = frame[HEADER.size :]
        if self._random.randrange(2):
            fields = msgspec.msgpack.decode(body)
            body = msgspec.msgpack.encode([kind, *fields[1:]])
        return HEADER.pack(len(body), kind) + body

    def _cut(self, frame: bytes) -> bytes:
        """The frame's end is missing, or the frame comes twice."""
        return frame[: self._random.randrange(len(frame))] if self._random.randrange(2) else 2 * frame

    # -- fields --------------------------------------------------------------------------------------------------------

    def _fields(self, frame: bytes) -> bytes:
        """A field, an item of one, or a part of what is encoded in one, is another value."""
        fields = msgspec.msgpack.decode(frame[HEADER.size :])
        for _ in range(self._random.choice([1, 1, 2])):
            fields = self._changed(fields)
        return _framed(frame[4], fields)

    def _changed(self, value: Any) -> Any:
        random = self._random
        if isinstance(value, list) and value and random.randrange(8):
            at = random.randrange(len(value))
            match random.randrange(10):
                case 0:
                    return value[:at] + value[at + 1 :]
                case 1:
                    return [*value[:at], value[at], *value[at:]]
                case 2:
                    return [*value, random.choice(self._values)]
                case _:
                    return [*value[:at], self._changed(value[at]), *value[at + 1 :]]
        if isinstance(value, dict) and value and random.randrange(8):
            key = random.choice(list(value))
            return {**value, key: self._changed(value[key])}
        if isinstance(value, bytes) and value and random.randrange(4):
            try:  # a result, an answer or a signature is MessagePack itself
                return msgspec.msgpack.encode(self._changed(msgspec.msgpack.decode(value)))
            except (msgspec.DecodeError, UnicodeDecodeError):
                return value[: random.randrange(len(value))] + random.randbytes(2)
        if isinstance(value, int) and not isinstance(value, bool) and random.randrange(2):
            return min(max(value + random.choice([-1, 1, 8, 1 << 20]), -(1 << 63)), (1 << 64) - 1)
        if isinstance(value, str) and value and random.randrange(3) == 0:
            return value[: random.randrange(len(value))]
        return random.choice(self._values)

    def _other(self, frame: bytes) -> bytes:
        """A message of any class, with values of the right types."""
        cls = self._random.choice(self._classes)
        return bytes(encode_frame(self._message(cls)))

    def _message(self, cls: type[Any]) -> Any:
        return cls(*(self._value(field.type) for field in msgspec.structs.fields(cls)))

    def _value(self, hint: Any) -> Any:
        random = self._random
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return self._value(random.choice(arguments))
        if origin is list:
            return [self._value(arguments[0]) for _ in range(random.choice([0, 1, 3]))]
        if origin is dict:
            return {self._value(arguments[0]): self._value(arguments[1]) for _ in range(random.choice([0, 1, 3]))}
        if origin is tuple:
            return tuple(self._value(argument) for argument in arguments)
        if isinstance(hint, type) and issubclass(hint, Plain):
            return self._message(hint)
        if hint is msgspec.Raw:
            return msgspec.Raw(msgspec.msgpack.encode(random.choice(self._values)))
        if hint is type(None):
            return None
        if hint is Any:
            return random.choice(self._values)
        fitting = [value for value in self._values if type(value) is hint and value not in ((1 << 64) - 1, -(1 << 63))]
        return random.choice(fitting)


def _framed(kind: int, fields: Any) -> bytes:
    body = msgspec.msgpack.encode(fields)
    return HEADER.pack(len(body), kind) + body
