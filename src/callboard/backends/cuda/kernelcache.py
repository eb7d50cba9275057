"""Compiled kernels on disk, which all processes of a user share: written whole, checked when read, bounded.

A file with unexpected contents (cut short, changed, of another version) is a miss. When there are more bytes than
``CALLBOARD_CACHE_BYTES``, the least recently used files are deleted.
"""

import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Let one thread of all processes at a time compile what is cached under this name; the others wait.

        A thread that has waited must look into the cache again. The lock ends with its process. Where the folder cannot
        be written, nothing is kept and no thread waits.
        """
        path = self.folder / f"{name}.lock"
        descriptor = _locked(path)
        try:
            yield
        finally:
            if descriptor is not None:
                with suppress(OSError):
                    path.unlink()  # the threads that wait find that it is gone, and create it again
                os.close(descriptor)

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


def _locked(path: Path) -> int | None:
    """The descriptor of a lock file that this thread holds; None if there can be none."""
    try:
        import fcntl
    except ImportError:  # on Windows
        return None
    while True:
        descriptor = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):  # deleted by the thread that held it before
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except OSError as e:
            _log.debug("%s is not locked: %s", path, e)
            if descriptor is not None:
                os.close(descriptor)
            return None
        except BaseException:  # a signal while it waits
            if descriptor is not None:
                os.close(descriptor)
            raise
        os.close(descriptor)


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
