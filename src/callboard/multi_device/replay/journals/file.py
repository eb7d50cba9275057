"""``FileJournal``: an append-only log in segments, synchronised to the disk once per group of records."""

import contextlib
import itertools
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from callboard.multi_device.replay.errors import JournalConflict, JournalCorrupt
from callboard.multi_device.replay.journals.frames import MAGIC, frames, next_frame, scan
from callboard.multi_device.replay.journals.protocol import Recovered

__all__ = ["FileJournal"]

if os.name == "posix":
    import fcntl


class FileJournal:
    """Files ``<identity>-<first sequence>.journal`` in a folder. A second writer is refused.

    A process that is killed, at any moment, leaves a prefix of its records: all groups that were synchronised, and
    perhaps records after them. Opening cuts off a torn last record and reports it; damage in the middle is an error.

    Args:
        folder: Folder of the journal; created if it does not exist.
        segment_bytes: A new file is begun when one is this long; ``discard`` removes whole files.
        salvage: If the middle of a file is damaged, keep what precedes it and move the rest to a file ``.damaged``.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, segment_bytes: int = 256 << 20, salvage: bool = False
    ) -> None:
        if segment_bytes < 1:
            raise ValueError(f"segment_bytes is {segment_bytes}; it is at least 1")
        self._folder = Path(folder)
        self._segment_bytes = segment_bytes
        self._salvage = salvage
        self._identity = ""
        self._file: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None
        self._last = 0
        self._size = 0
        self._resume = 0, Path(), 0

    def open(self, identity: str) -> Recovered:
        if not re.fullmatch(r"[\w.@+=~-]+", identity):
            raise ValueError(f"identity {identity!r}: use letters, digits and . @ + = ~ _ -")
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._identity = identity
        self._take_lock()
        try:
            return self._recover()
        except BaseException:  # a cancel, too
            self.close()
            raise

    def _take_lock(self) -> None:
        lock = (self._folder / f"{self._identity}.lock").open("ab")
        if os.name == "posix":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                lock.close()
                raise JournalConflict(f"another writer has the journal {self._identity} in {self._folder}") from e
        self._lock = lock

    def _recover(self) -> Recovered:
        segments = self._segments()
        cut, reason, self._last = 0, "", 0
        for n, path in enumerate(segments):
            first = _first_of(path)
            if n and first != self._last + 1:
                raise JournalCorrupt(f"{path.name} follows record {self._last}: a file is missing")
            end, last, problem = self._check(path, first)
            self._last = last
            size = path.stat().st_size
            if end < size:
                if n + 1 < len(segments) and not self._salvage:
                    raise JournalCorrupt(f"{path.name}: {problem} at byte {end}, and files follow; see salvage")
                self._cut(path, end)
                cut, reason = cut + size - end, f"{path.name}: {problem} at byte {end}"
                for later in segments[n + 1 :]:
                    cut += later.stat().st_size
                    later.rename(later.with_suffix(".damaged"))
                break
        path = self._segments()[-1] if segments else self._path(1)
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()
        self._sync_folder()
        return Recovered(self._last, cut, reason)

    def _check(self, path: Path, first: int) -> tuple[int, int, str]:
        """Return the end of the valid frames of a file, the last sequence in them, and a description of the rest."""
        end, last = 0, first - 1
        with _mapped(path) as data:
            for sequence, _, stop in scan(data):
                if sequence != last + 1:
                    raise JournalCorrupt(f"{path.name}: record {sequence} follows record {last} at byte {end}")
                end, last = stop, sequence
            at = data.find(MAGIC, end + 1)
            while at >= 0 and not self._salvage:
                found = next_frame(data, at)
                if found is not None and found[0] > last:
                    raise JournalCorrupt(
                        f"{path.name}: record {last + 1} at byte {end} is damaged, and record {found[0]} follows it. "
                        "FileJournal(salvage=True) keeps the records before the damage"
                    )
                at = data.find(MAGIC, at + 1)
        return end, last, "a torn record"

    def _cut(self, path: Path, end: int) -> None:
        if self._salvage:
            with path.open("rb") as source:
                source.seek(end)
                path.with_suffix(".damaged").write_bytes(source.read())
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())

    def append(self, first: int, records: Sequence[bytes]) -> None:
        if first != self._last + 1:
            raise JournalConflict(f"record {first} does not follow record {self._last}", self._last + 1, first)
        if self._file is None:
            raise OSError("the journal is closed")
        if self._size >= self._segment_bytes:
            self._file.close()
            self._file = self._path(first).open("ab", buffering=0)
            self._size = 0
            self._sync_folder()
        data = memoryview(frames(first, records))
        at = 0
        while at < len(data):
            at += self._file.write(data[at:]) or 0
        _sync(self._file.fileno())
        self._size += len(data)
        self._last = first + len(records) - 1

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        segments = self._segments()
        for n, path in enumerate(segments):
            if n + 1 < len(segments) and _first_of(segments[n + 1]) <= first:
                continue
            known, file, at = self._resume  # where the last read ended: pages do not scan a file from its start
            with _mapped(path) as data:
                for sequence, start, end in scan(data, at if (known, file) == (first, path) else 0):
                    if len(found) >= count or sequence > self._last:
                        return found
                    if sequence >= first:
                        found.append((sequence, bytes(data[start:end])))
                        self._resume = sequence + 1, path, end
        return found

    def last(self) -> int:
        return self._last

    def discard(self, before: int) -> None:
        segments = self._segments()
        for path, following in itertools.pairwise(segments):
            if _first_of(following) <= before:
                path.unlink()

    def close(self) -> None:
        file, self._file = self._file, None
        lock, self._lock = self._lock, None
        for each in (file, lock):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.close()

    def _path(self, first: int) -> Path:
        return self._folder / f"{self._identity}-{first:020d}.journal"

    def _segments(self) -> list[Path]:
        name = re.compile(rf"{re.escape(self._identity)}-\d{{20}}\.journal")
        return sorted(path for path in self._folder.iterdir() if name.fullmatch(path.name))

    def _sync_folder(self) -> None:
        """A new file survives a loss of power only if its folder is synchronised, too."""
        if os.name != "posix":
            return
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _first_of(path: Path) -> int:
    return int(path.stem[-20:])


_sync = getattr(os, "fdatasync", os.fsync)


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
