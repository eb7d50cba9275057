"""ONNX files as models need them: with weights that lie in other files, without outputs that no ref can hold."""

import os
from collections.abc import Collection
from pathlib import Path

from callboard.kernel.engine.files.outside import regular_bytes, with_contents
from callboard.kernel.engine.files.protobuf import field_bytes, fields_of, grouped, raw_field, text_of

__all__ = ["whole", "with_outputs"]


def whole(path: "str | os.PathLike[str]") -> bytes:
    """A file with the weights that it names in files beside it (`external_data`).

    Raises:
        OSError: The file cannot be read.
        OnnxError: It is no model, or no regular file; or a file with weights is outside of its folder, is missing, is
            too short, or no regular file.
    """
    return with_contents(regular_bytes(path), Path(path).parent)


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
