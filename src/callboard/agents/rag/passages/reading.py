"""``documents_in``: the text files of a folder as documents."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from callboard.agents.rag.passages.documents import Document

__all__ = ["documents_in"]

log = logging.getLogger("callboard.agents.rag")

SUFFIXES = (".md", ".rst", ".txt", ".py")
LARGEST = 4 << 20
"""Bytes: a larger file holds data."""
NAMED = 5
"""Files that a warning names."""
OTHERS = frozenset(("node_modules", "__pycache__", "site-packages"))


def documents_in(folder: str | os.PathLike[str], suffixes: Sequence[str] = SUFFIXES) -> list[Document]:
    """The text files below a folder, in the order of their names; the source is the path below the folder.

    Hidden files and folders, virtual environments and links are left out; so are files above 4 MiB and files
    that are not UTF-8, which a warning names.

    Args:
        folder: The folder, or a single file.
        suffixes: Of the files.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: The single file is no text; says why.
    """
    root = Path(folder)
    if root.is_file():
        text = _text(root)
        if text.why:
            raise ValueError(f"{root}: {text.why}")
        return [Document(root.name, text.content)]
    if root.is_dir():
        files = sorted(_files(root, tuple(suffixes)))
    else:
        raise FileNotFoundError(f"there is no folder {str(root)!r}")
    found, left_out = [], []
    for path in files:
        text = _text(path)
        name = path.relative_to(root).as_posix()
        if text.why:
            left_out.append(f"{name} ({text.why})")
        elif text.content.strip():
            found.append(Document(name, text.content))
    if left_out:
        more = f" and {len(left_out) - NAMED} more" if len(left_out) > NAMED else ""
        log.warning("%s: %d files are left out: %s%s", root, len(left_out), ", ".join(left_out[:NAMED]), more)
    return found


def _files(root: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for where, folders, names in os.walk(root):
        folder = Path(where)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in OTHERS and not (folder / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            path = folder / name
            if name.lower().endswith(suffixes) and not name.startswith(".") and not path.is_symlink():
                yield path


class _Text(NamedTuple):
    content: str = ""
    why: str = ""
    """The reason why it is no text."""


def _text(path: Path) -> _Text:
    """The text of a file."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as e:
        return _Text(why=e.strerror or "it cannot be read")
    if len(content) > LARGEST:
        return _Text(why="above 4 MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _Text(why="not UTF-8; convert it")
    return _Text(why="it has NUL characters") if "\0" in text else _Text(text.replace("\r\n", "\n"))
