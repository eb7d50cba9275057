"""Messages of protobuf, read and written by their fields' numbers.

Everything is checked against the length of the message, so damaged or hostile bytes raise :class:`OnnxError`.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from callboard.core.errors import AccelError

__all__ = [
    "BYTES",
    "OnnxError",
    "field_bytes",
    "fields_of",
    "grouped",
    "printed",
    "raw_field",
    "text_of",
    "varint",
]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_FIELD = (1 << 29) - 1
NOTHING: Mapping[int, Any] = {}


def printed(text: str) -> str:
    """A text with its control characters escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class OnnxError(AccelError, ValueError):
    """The bytes are no ONNX model that callboard can read; says why.

    Args:
        message: The reason; control characters, which names in damaged files have, are escaped.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printed(message))


def field_bytes(number: int, value: int | float | str | bytes) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, float):
        return _varint_bytes(number << 3 | FIXED32) + struct.pack("<f", value)
    if isinstance(value, int):
        return _varint_bytes(number << 3) + _varint_bytes(value & (1 << 64) - 1)
    content = value.encode() if isinstance(value, str) else value
    return _varint_bytes(number << 3 | BYTES) + _varint_bytes(len(content)) + content


def raw_field(number: int, wire: int, value: Any) -> bytes:
    """A field as it was read."""
    if wire == VARINT:
        return field_bytes(number, int(value))
    if wire == BYTES:
        return field_bytes(number, bytes(value))
    return _varint_bytes(number << 3 | wire) + bytes(value)


def _varint_bytes(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def fields_of(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value (an int, or the bytes) of each field."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if not 0 < number <= MOST_FIELD:  # protobuf's own readers cut such numbers off, and would see another field
            raise OnnxError(f"there is no field {number}")
        if wire == VARINT:
            value, at = varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = varint(data, at)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise OnnxError(f"field {number} has the wire type {wire}")
        if size > end - at:
            raise OnnxError(f"field {number} has {size} bytes, and {end - at} are left: it is cut off")
        yield number, wire, data[at : at + size]
        at += size


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of variable length that begins at ``at``, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise OnnxError("a number is cut off")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def grouped(data: Any, others: Mapping[int, Callable[[Any], object]] = NOTHING) -> dict[int, list[Any]]:
    """The values of each field of a message, but those of ``others``, which are passed to these functions."""
    if not isinstance(data, memoryview):
        raise OnnxError("a message is a number")
    found: dict[int, list[Any]] = {}
    for number, _, value in fields_of(data):
        if number in others:
            others[number](value)
        else:
            found.setdefault(number, []).append(value)
    return found


def text_of(parts: dict[int, list[Any]], number: int) -> str:
    """A field of text; empty if it is left out."""
    if number not in parts:
        return ""
    if not isinstance(parts[number][-1], memoryview):
        raise OnnxError("a text is a number")
    return bytes(parts[number][-1]).decode()
