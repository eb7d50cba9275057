"""Tensor data of the Open Inference Protocol: as JSON numbers, and as raw little-endian bytes."""

import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from callboard.serve.errors import BadModelResult, BadRequest
from callboard.serve.tensors import Array, Tensor, index_of

__all__ = ["from_binary", "from_json", "to_binary", "to_json", "to_json_text"]

_LENGTH = struct.Struct("<I")
HALF = ("FP16", "BF16")
MAX_NESTING = 32
"""Lists in lists, of the data of BYTES; NumPy has its own limit for numbers."""


def from_json(tensor: Tensor, shape: Sequence[int], data: Any) -> Array:
    """The array of an input whose ``data`` are JSON values, flat or nested like its shape.

    Raises:
        BadRequest: Another number of values, a nesting that is not the shape's, values that the datatype cannot hold.
    """
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


def to_binary(tensor: Tensor, array: Array) -> bytes | memoryview:
    """An output as raw bytes, not copied if it is contiguous; each element of BYTES follows its length of 4 bytes."""
    if tensor.datatype != "BYTES":
        return np.ascontiguousarray(array, tensor.dtype).reshape(-1).view(np.uint8).data
    parts: list[bytes] = []
    for each in array.ravel():
        element = _element(each)
        parts += [_LENGTH.pack(len(element)), element]
    return b"".join(parts)


def to_json(tensor: Tensor, array: Array) -> list[Any]:
    """An array as a flat list of JSON values; floats may be NaN or infinite.

    Raises:
        BadRequest: Bytes that are not UTF-8, which JSON cannot hold.
    """
    if tensor.datatype == "BYTES":
        try:
            return [_element(each).decode() for each in array.ravel()]
        except UnicodeDecodeError as e:
            raise BadRequest(f"output {tensor.name!r} is not UTF-8 text: ask for binary_data") from e
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


def _element(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="replace")  # a model may give half of a surrogate pair
    raise BadModelResult(f"an element of BYTES is {type(value).__name__}: give bytes or str")
