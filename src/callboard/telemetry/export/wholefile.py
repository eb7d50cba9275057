"""``WholeFile``: a file to which whole pieces are added, also where the disk is full."""

import contextlib
import os
from collections.abc import Callable

__all__ = ["WholeFile"]


class WholeFile:
    """Adds pieces at the end of a file, unbuffered. What is broken off of one that does not fit is taken back.

    Args:
        path: The file.
        mode: ``"ab"``, or ``"wb"`` to replace it.
        whole: ``whole(piece, written)`` returns how many of the written bytes can stand by themselves.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, path: "str | os.PathLike[str]", mode: str, whole: Callable[[bytes, int], int]) -> None:
        self._path = path
        self._whole = whole
        self._file = open(path, mode, buffering=0)  # noqa: SIM115 - closed by close()
        self._full = False

    def add(self, piece: bytes) -> None:
        """Write a piece; after a close, the file is opened again: another system of this process began.

        Raises:
            OSError: It does not fit, and none after it will; names the file.
        """
        if self._file.closed:
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 - likewise
            self._full = False
        if self._full:
            return
        written = 0
        try:
            while written < len(piece):
                written += self._file.write(memoryview(piece)[written:])
        except OSError as e:
            self._full = True
            with contextlib.suppress(OSError):
                end = self._file.tell()
                if end == os.fstat(self._file.fileno()).st_size:  # no other process has added more
                    self._file.truncate(end - written + self._whole(piece, written))
            raise OSError(e.errno, e.strerror, os.fspath(self._path)) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
