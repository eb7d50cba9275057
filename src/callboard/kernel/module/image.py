"""``Image``: a cubin, PTX text, fatbin or LTO-IR, from memory or from a file."""

import hashlib
import os
from pathlib import Path

import msgspec

from callboard.core.errors import ShapeError

__all__ = ["MOST_IN_MEMORY", "Image", "image_of"]

MOST_IN_MEMORY = 4 << 20
"""Bytes of an image that travels with a launch; a larger one is read by the host, from its file."""
SMALL = 64 << 10
"""A file up to this number of bytes is sent like an image in memory."""


class Image(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """A binary.

    Attributes:
        title: Name of the binary in messages.
        data: The bytes; empty if they are in a file.
        path: Path of the file.
        digest: SHA-256 of the file, so that another content is another image.
    """

    title: str
    data: bytes = b""
    path: str = ""
    digest: str = ""


def image_of(image: "bytes | bytearray | str | os.PathLike[str]", title: str = "") -> Image:
    """An image, checked.

    Args:
        image: The bytes, PTX text (it has a line ``.version``), or the path of a file.
        title: Name of the binary in messages; the name of the file by default.

    Raises:
        TypeError: None of these.
        ShapeError: Empty, or too large to travel: pass the path of a file.
        OSError: The file cannot be read.
    """
    if isinstance(image, str) and ".version" in image and "\n" in image:
        image = image.encode()
    if isinstance(image, bytes | bytearray):
        if not image:
            raise ShapeError("the image is empty; pass a cubin, PTX, a fatbin or LTO-IR")
        if len(image) > MOST_IN_MEMORY:
            raise ShapeError(
                f"the image has {len(image)} bytes, and at most {MOST_IN_MEMORY} travel in memory; pass a file's path"
            )
        return Image(title or "image", bytes(image))
    if not isinstance(image, str | os.PathLike):
        raise TypeError(f"image is {type(image).__name__}; pass bytes, PTX text or the path of a file")
    path = Path(image).resolve()
    content = path.read_bytes()
    if not content:
        raise ShapeError(f"{path} is empty; pass a cubin, PTX, a fatbin or LTO-IR")
    if len(content) <= SMALL:
        return Image(title or path.name, content)
    return Image(title or path.name, b"", str(path), hashlib.sha256(content).hexdigest())
