"""ONNX files as models need them: with weights that lie in other files, without outputs that no ref can hold."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from callboard.kernel.engine.onnxfile import OnnxError, field_bytes, fields_of, grouped, raw_field, text_of

__all__ = ["whole", "with_outputs"]


def whole(path: "str | os.PathLike[str]") -> bytes:
    """A file with the weights that it names in files beside it (`external_data`).

    Raises:
        OSError: The file cannot be read.
        OnnxError: It is no model; or such a file is outside of its folder, is missing, or is too short.
    """
    path = Path(path)
    data = path.read_bytes()
    if b"location" not in data:
        return data
    return b"".join(
        field_bytes(7, _graph(value, path.parent)) if number == 7 else raw_field(number, wire, value)
        for number, wire, value in fields_of(memoryview(data))
    )


def with_outputs(data: bytes, names: Collection[str]) -> bytes:
    """The file with these outputs only."""

    def graph(content: memoryview) -> bytes:
        return b"".join(
            raw_field(number, wire, value)
            for number, wire, value in fields_of(content)
            if number != 12 or text_of(grouped(value), 1) in names
        )

    return b"".join(
        field_bytes(7, graph(value)) if number == 7 else raw_field(number, wire, value)
        for number, wire, value in fields_of(memoryview(data))
    )


def _graph(content: memoryview, folder: Path) -> bytes:
    return b"".join(
        field_bytes(5, _tensor(value, folder)) if number == 5 else raw_field(number, wire, value)
        for number, wire, value in fields_of(content)
    )


def _tensor(content: memoryview, folder: Path) -> bytes:
    """A `TensorProto` that contains its bytes."""
    parts = grouped(content)
    if parts.get(14, [0])[-1] != 1:
        return bytes(content)
    kept = [raw_field(*each) for each in fields_of(content) if each[0] not in (13, 14)]
    entries = {text_of(each, 1): text_of(each, 2) for each in map(grouped, parts.get(13, []))}
    return b"".join([*kept, field_bytes(9, _read(text_of(parts, 8), entries, folder))])


def _read(name: str, entries: dict[str, str], folder: Path) -> bytes:
    """The bytes of a weight in another file."""
    where = entries.get("location", "")
    file: Any = (folder / where).resolve()
    if not where or not file.is_relative_to(folder.resolve()):
        raise OnnxError(f"{name} is in the file {where!r}, which is not beside the model")
    try:
        begin, length = int(entries.get("offset") or 0), int(entries.get("length") or -1)
        with file.open("rb") as opened:
            opened.seek(begin)
            found: bytes = opened.read(length)
    except (OSError, ValueError) as e:
        raise OnnxError(f"{name} is in the file {where!r}, which cannot be read: {e}") from e
    if length >= 0 and len(found) != length:
        raise OnnxError(f"{name} has {length} bytes from {begin} on in the file {where!r}, and {len(found)} are there")
    return found
