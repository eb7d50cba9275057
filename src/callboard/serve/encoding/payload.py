"""Inputs of the Open Inference Protocol: arrays of JSON values, and of raw little-endian bytes."""

import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from callboard.serve.encoding.flat import pieces
from callboard.serve.errors import BadRequest
from callboard.serve.tensors import Array, Tensor, index_of

__all__ = ["finite", "from_binary", "from_json"]

_LENGTH = struct.Struct("<I")
MAX_NESTING = 32
"""Lists in lists, of the data of BYTES; NumPy has its own limit for numbers."""


def from_json(tensor: Tensor, shape: Sequence[int], data: Any) -> Array:
    """The array of an input whose ``data`` are JSON values, flat or nested like its shape.

    Raises:
        BadRequest: Another number of values, a nesting that is not the shape's, values that the datatype cannot hold.
    """
    if isinstance(data, memoryview):
        return _numbers_in_pieces(tensor, shape, data)
    if not isinstance(data, list):
        raise BadRequest(f"input {tensor.name!r}: data must be a list")
    array = _bytes_of(tensor, data) if tensor.datatype == "BYTES" else _numbers_of(tensor, data)
    if array.size != math.prod(shape):
        raise BadRequest(
            f"input {tensor.name!r} has {array.size} values, but its shape {list(shape)} has {math.prod(shape)}"
        )
    if array.size and array.ndim != 1 and array.shape != tuple(shape):
        raise BadRequest(
            f"input {tensor.name!r}: data is nested as {list(array.shape)}, but its shape is {list(shape)}"
        )
    return array if array.shape == tuple(shape) else array.reshape(shape)


def _numbers_of(tensor: Tensor, data: list[Any]) -> Array:
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError) as e:
        raise BadRequest(f"input {tensor.name!r}: data is not a regular array of numbers") from e
    wanted = tensor.dtype
    if not array.size:
        return array.astype(wanted)
    if array.dtype == wanted and wanted.kind in "iu":
        return array
    if tensor.datatype == "BOOL":
        if array.dtype.kind != "b":
            raise BadRequest(f"input {tensor.name!r}: data must be true and false")
        return array
    if wanted.kind in "iu":
        whole = array.dtype.kind in "iu"
        if tensor.datatype == "UINT64" and array.dtype.kind == "f":  # the common type of int64 and uint64, for NumPy
            array = np.asarray(data, object)
            whole = all(type(each) is int for each in array.flat)
        if not whole:
            raise BadRequest(f"input {tensor.name!r}: data must be integers of 64 bits at most")
        limits = np.iinfo(wanted)
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            wrong = low if low < limits.min else high
            raise BadRequest(f"input {tensor.name!r}: {wrong} is out of the range of {tensor.datatype}")
        return array.astype(wanted)
    if array.dtype.kind not in "iuf":
        raise BadRequest(f"input {tensor.name!r}: data must be numbers")
    with np.errstate(over="ignore"):
        found = array.astype(wanted)
    if not (np.isfinite(found) | ~np.isfinite(array)).all():  # the client may have sent infinities
        raise BadRequest(f"input {tensor.name!r} has a number that is out of the range of {tensor.datatype}")
    return found


def _numbers_in_pieces(tensor: Tensor, shape: Sequence[int], inside: memoryview) -> Array:
    """The array of an input whose data is the inside of a long flat list."""
    if tensor.datatype == "BYTES":
        raise BadRequest(f"input {tensor.name!r}: data of BYTES must be strings")
    size, count = math.prod(shape), 0
    found: Array = np.empty(min(size, len(inside)), tensor.dtype)  # no list has more values than bytes
    try:
        for piece in pieces(inside):
            values = _numbers_of(tensor, _list_of(piece))
            if count + len(values) <= len(found):
                found[count : count + len(values)] = values
            count += len(values)
    except BadRequest:
        raise
    except ValueError as e:  # the decoders' errors, too
        raise BadRequest(f"input {tensor.name!r}: data is no list of numbers: {e}") from e
    if count != size:
        raise BadRequest(f"input {tensor.name!r} has {count} values, but its shape {list(shape)} has {size}")
    return found.reshape(shape)


def _list_of(piece: bytes) -> list[Any]:
    found: list[Any]
    if b"N" in piece or b"I" in piece:  # NaN and Infinity, which msgspec does not read
        found = json.loads(piece, parse_float=finite)
    else:
        found = msgspec.json.decode(piece, type=list[Any])
    return found


def finite(text: str) -> float:
    """A number of JSON.

    Raises:
        ValueError: It is out of range.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text:.40} is out of range")
    return value


def _bytes_of(tensor: Tensor, data: list[Any]) -> Array:
    shape: list[int] = []
    level: Any = data
    while isinstance(level, list):
        shape.append(len(level))
        level = level[0] if level else None
        if len(shape) > MAX_NESTING:
            raise BadRequest(f"input {tensor.name!r}: data is nested more than {MAX_NESTING} deep")
    flat = list(_leaves(data, len(shape)))
    if not all(isinstance(each, str) for each in flat):
        raise BadRequest(f"input {tensor.name!r}: data of BYTES must be strings")
    array = np.empty(len(flat), object)
    try:
        encoded = [each.encode() for each in flat]
        array[:] = flat if tensor.text else encoded
    except UnicodeEncodeError as e:
        raise BadRequest(f"input {tensor.name!r}: data has half of a surrogate pair, which is no text: {e}") from e
    if math.prod(shape) != len(flat):
        raise BadRequest(f"input {tensor.name!r}: data is not a regular array")
    return array.reshape(shape)


def _leaves(data: list[Any], depth: int) -> Iterator[Any]:
    """The values ``depth`` lists down; a list there is no string, and refused as such."""
    for each in data:
        if depth > 1 and isinstance(each, list):
            yield from _leaves(each, depth - 1)
        else:
            yield each


def from_binary(tensor: Tensor, shape: Sequence[int], data: memoryview) -> Array:
    """The array of an input that came as raw bytes. It is writable if ``data`` is, and aligned.

    Raises:
        BadRequest: Another number of bytes than the shape asks for.
    """
    count = math.prod(shape)
    if tensor.datatype == "BYTES":
        if count > len(data) // _LENGTH.size:
            raise BadRequest(f"input {tensor.name!r} ends before its {count} elements")
        array = np.empty(count, object)
        array[:] = list(_split(tensor, data, count))
        return _decoded(tensor, array, shape) if tensor.text else array.reshape(shape)
    if len(data) != count * tensor.dtype.itemsize:
        raise BadRequest(
            f"input {tensor.name!r} has {len(data)} bytes, but {tensor.datatype} of shape {list(shape)} has "
            f"{count * tensor.dtype.itemsize}"
        )
    found = np.frombuffer(data, tensor.dtype).reshape(shape)
    return found if found.flags.aligned else found.copy()


def _decoded(tensor: Tensor, array: Array, shape: Sequence[int]) -> Array:
    for i, each in enumerate(array):
        try:
            array[i] = each.decode()
        except UnicodeDecodeError as e:
            raise BadRequest(f"input {tensor.name!r}: element {index_of(i, shape)} is not UTF-8: {e}") from e
    return array.reshape(shape)


def _split(tensor: Tensor, data: memoryview, count: int) -> Iterator[bytes]:
    position = 0
    for _ in range(count):
        if position + _LENGTH.size > len(data):
            raise BadRequest(f"input {tensor.name!r} ends before its {count} elements")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size + length
        if position > len(data):
            raise BadRequest(f"input {tensor.name!r}: an element of {length} bytes is longer than the rest of the data")
        yield bytes(data[position - length : position])
    if position != len(data):
        raise BadRequest(f"input {tensor.name!r} has {len(data) - position} bytes more than its {count} elements")
