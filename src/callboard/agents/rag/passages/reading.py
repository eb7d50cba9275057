"""``documents_in``: the text files of a folder as documents."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from callboard.agents.rag.passages.documents import Document

__all__ = ["documents_in"]

SUFFIXES = (".md", ".rst", ".txt", ".py")
LARGEST = 4 << 20
"""Bytes: a larger file holds data."""
OTHERS = frozenset(("node_modules", "__pycache__", "site-packages"))


def documents_in(folder: str | os.PathLike[str], suffixes: Sequence[str] = SUFFIXES) -> list[Document]:
    """The text files below a folder, in the order of their names; the source is the path below the folder.

    Hidden files and folders, virtual environments, links, files above 4 MiB and files that are not UTF-8 are left out.

    Args:
        folder: The folder, or a single file.
        suffixes: Of the files.

    Raises:
        FileNotFoundError: There is no such folder.
    """
    root = Path(folder)
    if root.is_file():
        files, root = [root], root.parent
    elif root.is_dir():
        files = sorted(_files(root, tuple(suffixes)))
    else:
        raise FileNotFoundError(f"there is no folder {str(root)!r}")
    found = ((path, _text(path)) for path in files)
    return [Document(path.relative_to(root).as_posix(), text) for path, text in found if text is not None]


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


def _text(path: Path) -> str | None:
    """The text of a file; None if it is not one."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    text = text.replace("\r\n", "\n")
    return None if len(content) > LARGEST or "\0" in text or not text.strip() else text
