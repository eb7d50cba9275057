"""Tensors of a model whose bytes are in other files (`external_data`): found wherever they are, read or refused."""

import os
import stat
from pathlib import Path

from callboard.kernel.engine.files.protobuf import BYTES, OnnxError, field_bytes, fields_of, grouped, raw_field, text_of

__all__ = ["regular_bytes", "with_contents"]

PARTS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""The fields of ONNX's messages in which there can be tensors, by message."""
DEEPEST = 100
"""Messages in messages: three for a graph in a graph."""
NONBLOCK = getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)


def regular_bytes(path: "str | os.PathLike[str]", begin: int = 0, length: int | None = None) -> bytes:
    """The bytes of a regular file; a pipe or a device, whose reading may never end, is refused.

    Args:
        path: The file.
        begin: The first byte.
        length: Number of bytes; None: up to the end.

    Raises:
        OSError: The file cannot be read.
        OnnxError: It is no regular file, or has no such bytes.
    """
    _check_regular(path, os.stat(path).st_mode)  # before it is opened, as that does something in some devices
    with open(os.open(path, os.O_RDONLY | NONBLOCK | BINARY), "rb") as opened:
        found = os.fstat(opened.fileno())
        _check_regular(path, found.st_mode)
        if begin < 0 or (length is not None and length < 0):
            raise OnnxError(f"{str(path)!r} cannot be read from byte {begin} on")
        if length is not None and begin + length > found.st_size:
            there = max(found.st_size - begin, 0)
            raise OnnxError(
                f"{length} bytes are needed from {begin} on in the file {str(path)!r}, and {there} are there"
            )
        opened.seek(min(begin, found.st_size))
        return opened.read() if length is None else opened.read(length)


def _check_regular(path: "str | os.PathLike[str]", mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe (FIFO)", stat.S_IFSOCK: "a socket"}
    raise OnnxError(f"{str(path)!r} is {kinds.get(stat.S_IFMT(mode), 'a device')}; pass a regular file")


def with_contents(data: bytes, folder: Path | None) -> bytes:
    """A model whose tensors all contain their bytes: those of initializers, attributes, functions and training.

    Args:
        data: The model.
        folder: The folder of its file, in which other files may be; None: tensors in other files are refused.

    Raises:
        OnnxError: A tensor is in a file that is outside of the folder, is missing, too short, or no regular file; or
            there is no folder; names tensor and file.
    """
    if b"location" not in data:  # the key of each such tensor
        return data
    try:
        return bytes(_message(memoryview(data), "model", folder, 0))
    except OnnxError:
        raise
    except (ValueError, TypeError, OverflowError, MemoryError) as e:
        raise OnnxError(f"this is no ONNX model: {type(e).__name__}: {e}") from None


def _message(content: memoryview, kind: str, folder: Path | None, depth: int) -> bytes | memoryview:
    """The message, itself if nothing in it is in another file."""
    if depth > DEEPEST:
        raise OnnxError(f"messages are nested deeper than {DEEPEST}")
    if kind == "tensor":
        return _tensor(content, folder)
    changed, parts = False, []
    for number, wire, value in fields_of(content):
        inner = PARTS[kind].get(number) if wire == BYTES else None
        now = _message(value, inner, folder, depth + 1) if inner else value
        changed = changed or now is not value
        parts.append((number, wire, now))
    return b"".join(raw_field(*each) for each in parts) if changed else content


def _tensor(content: memoryview, folder: Path | None) -> bytes | memoryview:
    """A `TensorProto` that contains its bytes."""
    parts = grouped(content)
    # Whatever stands there counts: readers differ on which of several values, or which bits of one, they take.
    if all(isinstance(each, int) and each == 0 for each in parts.get(14, [])):
        return content
    name = text_of(parts, 8)
    entries = {text_of(each, 1): text_of(each, 2) for each in map(grouped, parts.get(13, []))}
    where = entries.get("location", "")
    if folder is None:
        raise OnnxError(
            f"{name!r} is in another file, {where!r}; pass the path of the model, or a model that contains its weights"
        )
    kept = [raw_field(*each) for each in fields_of(content) if each[0] not in (13, 14)]
    return b"".join([*kept, field_bytes(9, _read(name, where, entries, folder))])


def _read(name: str, where: str, entries: dict[str, str], folder: Path) -> bytes:
    """The bytes of a tensor in another file."""
    try:
        file = (folder / where).resolve()
        if not where or not file.is_relative_to(folder.resolve()):
            raise OnnxError("it is not beside the model")
        length = int(entries["length"]) if entries.get("length") else None
        return regular_bytes(file, int(entries.get("offset") or 0), length)
    except (OSError, ValueError, RuntimeError) as e:  # a RuntimeError: links that lead to each other
        raise OnnxError(f"{name!r} is in the file {where!r}, which cannot be read: {e}") from e
