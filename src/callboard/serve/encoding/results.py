"""Outputs of the Open Inference Protocol: as JSON values, and as raw little-endian bytes; long ones in pieces."""

import codecs
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from callboard.serve.encoding.flat import LONG, PIECE
from callboard.serve.errors import BadModelResult, BadRequest
from callboard.serve.tensors import Array, Tensor

__all__ = ["json_weight", "to_binary", "to_binary_pieces", "to_json", "to_json_pieces", "to_json_text"]

_LENGTH = struct.Struct("<I")
HALF = ("FP16", "BF16")
VALUE = 8
"""Bytes that a value counts for in weights, and a text besides its own."""
AT_ONCE = LONG // VALUE
"""Numbers that are written as JSON at once."""


def json_weight(tensor: Tensor, array: Array, most: int) -> int:
    """Bytes of an output as JSON, about; texts are counted up to ``most``."""
    found = VALUE * array.size
    if tensor.datatype == "BYTES":
        for each in array.flat:
            if found >= most:
                break
            found += len(each)
    return found


def to_binary(tensor: Tensor, array: Array) -> bytes | memoryview:
    """An output as raw bytes, not copied if it is contiguous; each element of BYTES follows its length of 4 bytes."""
    pieces = to_binary_pieces(tensor, array)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def to_binary_pieces(tensor: Tensor, array: Array) -> list[bytes | memoryview]:
    """The same in pieces."""
    if tensor.datatype != "BYTES":
        return [np.ascontiguousarray(array, tensor.dtype).reshape(-1).view(np.uint8).data]
    found: list[bytes | memoryview] = []
    short: list[bytes] = []
    size = 0
    for each in _elements(array):
        parts = _element(each)
        length = sum(map(len, parts))
        short += [_LENGTH.pack(length), *parts]
        size += VALUE + length
        if size >= LONG:
            found += [b"".join(short)] if length < LONG else short
            short, size = [], 0
    return [*found, b"".join(short)] if short else found


def to_json(tensor: Tensor, array: Array) -> list[Any]:
    """An array as a flat list of JSON values; floats may be NaN or infinite.

    Raises:
        BadRequest: Bytes that are not UTF-8, which JSON cannot hold.
    """
    if tensor.datatype == "BYTES":
        return ["".join(_text(tensor, each)) for each in _elements(array)]
    return (array.astype(np.float32) if tensor.datatype in HALF else array).ravel().tolist()


def to_json_text(tensor: Tensor, array: Array) -> list[Any] | msgspec.Raw:
    """The same for msgspec's encoder, which has no NaN: it is named as Triton and its clients do, and infinities too.

    Raises:
        BadRequest: As for :func:`to_json`.
    """
    values = to_json(tensor, array)
    floats = tensor.dtype.kind == "f" or tensor.datatype in HALF
    # The sum of finite numbers is finite, but for those at the end of the range; it is cheap where they are few.
    if floats and not math.isfinite(sum(values)) and not np.isfinite(array).all():
        return msgspec.Raw(json.dumps(values).encode())
    return values


def to_json_pieces(tensor: Tensor, array: Array) -> Iterator[bytes]:
    """The text of the same, in pieces.

    Raises:
        BadRequest: As for :func:`to_json`.
    """
    yield b"["
    comma = b""
    for piece in _texts(tensor, array) if tensor.datatype == "BYTES" else _numbers(tensor, array):
        yield comma
        yield from piece
        comma = b","
    yield b"]"


def _numbers(tensor: Tensor, array: Array) -> Iterator[list[bytes]]:
    flat = array.ravel()
    for at in range(0, array.size, AT_ONCE):
        yield [msgspec.json.encode(to_json_text(tensor, flat[at : at + AT_ONCE]))[1:-1]]


def _texts(tensor: Tensor, array: Array) -> Iterator[list[bytes]]:
    """Many short texts, or one that is long."""
    short: list[str] = []
    size = 0
    for each in _elements(array):
        long = len(each) > PIECE
        if short and (long or size >= LONG):
            yield [msgspec.json.encode(short)[1:-1]]
            short, size = [], 0
        if long:
            yield [b'"', *(msgspec.json.encode(piece)[1:-1] for piece in _text(tensor, each)), b'"']
        else:
            short += _text(tensor, each)
            size += VALUE + len(each)
    if short:
        yield [msgspec.json.encode(short)[1:-1]]


def _elements(array: Array) -> Iterator[Any]:
    flat = array.ravel()
    for at in range(0, array.size, AT_ONCE):
        yield from flat[at : at + AT_ONCE].tolist()


def _text(tensor: Tensor, value: Any) -> list[str]:
    """The text of an element: one that is long in pieces, where no character is cut."""
    if isinstance(value, str) and len(value) <= PIECE and value.isascii():
        return [value]
    pieces = _element(value)
    try:
        if len(pieces) == 1:
            return [pieces[0].decode()]
        decoder = codecs.getincrementaldecoder("utf-8")()
        return [*map(decoder.decode, pieces), decoder.decode(b"", final=True)]
    except UnicodeDecodeError as e:
        raise BadRequest(f"output {tensor.name!r} is not UTF-8 text: ask for binary_data") from e


def _element(value: Any) -> list[bytes]:
    """The bytes of an element, in pieces."""
    if not isinstance(value, str | bytes):
        raise BadModelResult(f"an element of BYTES is {type(value).__name__}: give bytes or str")
    if len(value) <= PIECE:
        return [value if isinstance(value, bytes) else value.encode(errors="replace")]
    pieces = [value[at : at + PIECE] for at in range(0, len(value), PIECE)]
    # a model may give half of a surrogate pair
    return [each if isinstance(each, bytes) else each.encode(errors="replace") for each in pieces]
