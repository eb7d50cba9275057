"""The file of an index: a header of JSON, then arrays that can be mapped into memory."""

import contextlib
import json
import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read", "write"]

MAGIC = b"cb-index"
_START = struct.Struct("<8sIQ")  # magic, CRC-32 and length of the header
ALIGNMENT = 64


def write(path: Path, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a file, which replaces one of this name when it is complete."""
    places: dict[str, Any] = {}
    sums: dict[str, int] = {}
    offset = 0
    for name, array in arrays.items():
        places[name] = [array.dtype.str, list(array.shape), offset]
        sums[name] = _sum(array)
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    text = json.dumps({**header, "arrays": places, "sums": sums}).encode()
    text += b" " * (-(len(text) + _START.size) % ALIGNMENT)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(_START.pack(MAGIC, zlib.crc32(text), len(text)))
            file.write(text)
            for array in arrays.values():
                file.write(np.ascontiguousarray(array).data if array.size else b"")
                file.write(b"\0" * (-array.nbytes % ALIGNMENT))
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:  # whatever it is, no part of a file stays
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def read(path: Path, *, mapped: bool, verify: bool) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of a file.

    Args:
        mapped: Arrays are mapped into memory.
        verify: Read all arrays for their checksums, which older files have not.

    Raises:
        ValueError: It is not the file of an index, not all of it, or damaged; names the array.
    """
    with path.open("rb") as file:
        start = file.read(_START.size)
        magic, checksum, length = _START.unpack(start) if len(start) == _START.size else (b"", 0, 0)
        if magic != MAGIC:
            raise ValueError(f"{path} is not the file of an index; pass one that save() has written")
        size = os.fstat(file.fileno()).st_size
        text = file.read(min(length, size))
    if len(text) != length or zlib.crc32(text) != checksum:
        raise ValueError(f"{path}: its header is damaged; save the index again")
    header = json.loads(text)
    sums = header.pop("sums", {})
    found: dict[str, NDArray[Any]] = {}
    for name, (dtype, shape, offset) in header.pop("arrays").items():
        place, count = _START.size + length + offset, int(np.prod(shape))
        if place + count * np.dtype(dtype).itemsize > size:
            raise ValueError(f"{path} has {size} bytes and ends within {name!r}; save the index again")
        if mapped and count:
            found[name] = np.memmap(path, dtype, "r", place, tuple(shape))
        else:
            found[name] = np.fromfile(path, dtype, count, offset=place).reshape(shape)
        if verify and name in sums and _sum(found[name]) != sums[name]:
            raise ValueError(f"{path}: its array {name!r} is damaged; save the index again, or load a copy of the file")
    return header, found


def _sum(array: NDArray[Any]) -> int:
    """CRC-32 of the bytes in row-major order."""
    return zlib.crc32(np.ascontiguousarray(array).data if array.size else b"")
