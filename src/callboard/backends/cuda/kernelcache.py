"""Compiled kernels on disk, which all processes of a user share: written whole, checked when read, bounded.

A file with unexpected contents (cut short, changed, of another version) is a miss. When there are more bytes than
``CALLBOARD_CACHE_BYTES``, the least recently used files are deleted.
"""

import hashlib
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path

from callboard.core.backend.machine import cache_folder

__all__ = ["KernelCache"]

MAGIC = b"callboard kernel 1\n"
DEFAULT_BYTES = 512 << 20

_log = logging.getLogger("callboard.cuda")


class KernelCache:
    """The files of one folder.

    Args:
        folder: Folder, created when the first file is stored; ``cuda`` in :func:`.cache_folder` when None.
        limit: Most bytes in all; ``CALLBOARD_CACHE_BYTES`` when None, else 512 MiB.
    """

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        self.folder = cache_folder() / "cuda" if folder is None else folder
        self.limit = _limit() if limit is None else limit

    def get(self, name: str) -> bytes | None:
        """Return the data cached under this name; None if absent or corrupt."""
        path = self.folder / name
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        content = _checked(raw)
        if content is None:
            _log.warning("%s is damaged, and compiled again", path)
            return None
        with suppress(OSError):
            os.utime(path)  # it is used
        return content

    def keep(self, name: str, content: bytes) -> None:
        """Keep it; nothing if the folder cannot be written."""
        path = self.folder / name
        partial = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(MAGIC + hashlib.sha256(content).digest() + content)
            partial.replace(path)  # other processes read: whole or not at all
            self._trim()
        except OSError as e:  # a read-only home: the next process compiles again
            _log.debug("%s is not kept: %s", name, e)
            with suppress(OSError):
                partial.unlink()

    def _trim(self) -> None:
        files: list[tuple[float, int, Path]] = []
        for entry in os.scandir(self.folder):
            with suppress(OSError):  # another process trims, too
                stat = entry.stat()
                files.append((stat.st_mtime, stat.st_size, Path(entry.path)))
        used = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if used <= self.limit:
                break
            with suppress(OSError):
                path.unlink()
            used -= size


def _checked(raw: bytes) -> bytes | None:
    start = len(MAGIC) + hashlib.sha256().digest_size
    digest, content = raw[len(MAGIC) : start], raw[start:]
    return content if raw.startswith(MAGIC) and hashlib.sha256(content).digest() == digest else None


def _limit() -> int:
    given = os.environ.get("CALLBOARD_CACHE_BYTES", "")
    try:
        return max(0, int(given)) if given else DEFAULT_BYTES
    except ValueError:
        _log.warning("CALLBOARD_CACHE_BYTES is %r, no number of bytes; %d is used", given, DEFAULT_BYTES)
        return DEFAULT_BYTES
