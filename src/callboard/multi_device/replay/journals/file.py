"""``FileJournal``: an append-only log in segments, synchronised to the disk once per group of records."""

import contextlib
import itertools
import mmap
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from callboard.multi_device.replay.errors import JournalConflict, JournalCorrupt
from callboard.multi_device.replay.journals.frames import OLD_MAGIC, frames, is_cut_off, next_frame, scan
from callboard.multi_device.replay.journals.protocol import Recovered
from callboard.multi_device.replay.journals.seals import CURE, seed_of

__all__ = ["FileJournal"]

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


class FileJournal:
    """Files ``<identity>-<first sequence>.journal`` in a folder. A second writer is refused.

    A process that is killed, at any moment, leaves a prefix of its records: all groups that were synchronised, and
    perhaps records after them. Opening cuts off a record whose end is missing, and reports it. A record that is whole
    and does not match its checksum raises :class:`JournalCorrupt`, and so does a missing file that has others after it.

    Args:
        folder: Folder of the journal; created if it does not exist.
        segment_bytes: A new file is begun when one is this long; ``discard`` removes whole files.
        salvage: If a file is damaged, keep what precedes the damage and move the rest to a file ``.damaged``.
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
        self._seed = 0
        self._file: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None
        self._reading = threading.Lock()  # a file is not discarded while it is read
        self._last = 0
        self._size = 0
        self._resume = 0, Path(), 0

    def open(self, identity: str) -> Recovered:
        if not re.fullmatch(r"[\w.@+=~-]+", identity):
            raise ValueError(f"identity {identity!r}: use letters, digits and . @ + = ~ _ -")
        if self._file is not None and identity != self._identity:
            raise JournalConflict(f"this journal object records {self._identity}; make another one for {identity}")
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._identity, self._seed = identity, seed_of(identity)
        self._take_lock()
        try:
            return self._recover()
        except BaseException:  # a cancel, too
            self.close()
            raise

    def _take_lock(self) -> None:
        self._lock = self._path("lock").open("ab")
        try:
            if sys.platform == "win32":
                msvcrt.locking(self._lock.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            self.close()
            if not isinstance(e, BlockingIOError | PermissionError):  # as the first and the second of them say
                raise
            raise JournalConflict(f"another writer has the journal {self._identity} in {self._folder}") from e

    def _recover(self) -> Recovered:
        segments = self._segments()
        self._check_start(segments)
        cut, reason, self._last, self._resume = 0, "", 0, (0, Path(), 0)
        for n, path in enumerate(segments):
            first = _first_of(path)
            if n and first != self._last + 1:
                raise JournalCorrupt(f"{path} follows record {self._last}: a file is missing. {CURE}")
            end = self._check(path, first, is_last=n + 1 == len(segments))
            size = path.stat().st_size
            if end < size:
                self._cut(path, end)
                cut, reason = cut + size - end, f"{path.name}: a torn record at byte {end}"
                for later in segments[n + 1 :]:
                    cut += later.stat().st_size
                    later.rename(later.with_suffix(".damaged"))
                break
        path = self._segments()[-1] if segments else self._segment(1)
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()
        self._sync_folder()
        return Recovered(self._last, cut, reason)

    def _check_start(self, segments: list[Path]) -> None:
        """Raise if the first file is missing: one that was not discarded."""
        start = self._start()
        if segments:
            first, there = _first_of(segments[0]), f"the first file is {segments[0].name}"
        else:
            first, there = 1 << 63 if start > 1 else start, "there are no files"
        if first > start and not (segments and _is_old(segments[0])):
            place = f"{self._folder}, identity {self._identity}"
            raise JournalCorrupt(f"{place}: {there}, and record {start} must be there: a file is missing. {CURE}")

    def _check(self, path: Path, first: int, *, is_last: bool) -> int:
        """Return the end of the valid frames of a file, and keep the sequence of the last one."""
        end, self._last = 0, first - 1
        with _mapped(path) as data:
            for sequence, _, stop in scan(data, self._seed):
                if sequence != self._last + 1:
                    raise JournalCorrupt(f"{path}: record {sequence} follows record {self._last} at byte {end}. {CURE}")
                end, self._last = stop, sequence
            whole = end == len(data) or (is_last and is_cut_off(data, end, self._seed))
            if not whole and not self._salvage:
                raise JournalCorrupt(
                    f"{path}: record {self._last + 1} at byte {end} is damaged: it does not match its checksum. "
                    f"{CURE}; FileJournal(salvage=True) keeps the records before it"
                )
        return end

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
        self._check_alone(self._file)
        try:
            self._write(self._file, first, memoryview(frames(first, records, self._seed)))
        except BaseException:  # a cancel, too: the file may end with a part of a frame, which the next open cuts off
            self.close()
            raise
        self._last = first + len(records) - 1

    def _check_alone(self, file: IO[bytes]) -> None:
        """Raise if another program has written: the file system has no locks, or the file of the lock was replaced."""
        taken = os.fstat(file.fileno()).st_size != self._size
        if self._lock is not None:
            with contextlib.suppress(FileNotFoundError):
                taken |= not os.path.samestat(os.fstat(self._lock.fileno()), self._path("lock").stat())
        if taken:
            raise JournalConflict(f"another writer has taken the journal {self._identity} in {self._folder}")

    def _write(self, file: IO[bytes], first: int, data: memoryview) -> None:
        if self._size >= self._segment_bytes:
            file.close()
            file = self._file = self._segment(first).open("ab", buffering=0)
            self._size = 0
            self._check_alone(file)
            self._sync_folder()
        at = 0
        while at < len(data):
            at += file.write(data[at:]) or 0
        _sync(file.fileno())
        self._size += len(data)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        with self._reading:
            last, segments = self._last, self._segments()
            expected = max(first, _first_of(segments[0])) if segments else first
            end = min(last, expected + count - 1)
            found: list[tuple[int, bytes]] = []
            for n, path in enumerate(segments):
                following = _first_of(segments[n + 1]) if n + 1 < len(segments) else last + 1
                if expected < following and expected <= end:
                    found += self._read(path, expected, end)
                    expected = found[-1][0] + 1 if found else expected
            if expected <= end:
                place = f"{self._folder}, identity {self._identity}"
                raise JournalCorrupt(
                    f"{place}: record {expected} is damaged or missing, and {last} is the last. {CURE}"
                )
            return found

    def _read(self, path: Path, expected: int, end: int) -> list[tuple[int, bytes]]:
        """Return the records of a file from one on, up to the first that does not follow it."""
        found: list[tuple[int, bytes]] = []
        known, file, at = self._resume  # where the last read ended: pages do not scan a file from its start
        with _mapped(path) as data:
            for sequence, start, stop in scan(data, self._seed, at if (known, file) == (expected, path) else 0):
                if sequence > expected or expected > end:
                    break
                if sequence == expected:
                    found.append((sequence, bytes(data[start:stop])))
                    expected += 1
                    self._resume = expected, path, stop
        return found

    def last(self) -> int:
        return self._last

    def discard(self, before: int) -> None:
        with self._reading:
            segments = self._segments()
            gone = [path for path, following in itertools.pairwise(segments) if _first_of(following) <= before]
            if gone:
                self._set_start(_first_of(segments[len(gone)]))
            for path in gone:
                path.unlink()

    def close(self) -> None:
        file, self._file = self._file, None
        lock, self._lock = self._lock, None
        for each in (file, lock):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.close()

    def _start(self) -> int:
        """Return the sequence of the first record that must be there: files before it may have been discarded."""
        path = self._path("start")
        try:
            found = next_frame(path.read_bytes(), 0, self._seed)
        except FileNotFoundError:
            return 1
        if found is None:
            raise JournalCorrupt(f"{path} does not match its checksum. {CURE}")
        return found[0]

    def _set_start(self, sequence: int) -> None:
        path = self._path("start")
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(frames(sequence, [b""], self._seed))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        self._sync_folder()

    def _path(self, what: str) -> Path:
        return self._folder / f"{self._identity}.{what}"

    def _segment(self, first: int) -> Path:
        return self._folder / f"{self._identity}-{first:020d}.journal"

    def _segments(self) -> list[Path]:
        name = re.compile(rf"{re.escape(self._identity)}-\d{{20}}\.journal")
        return sorted(path for path in self._folder.iterdir() if name.fullmatch(path.name))

    def _sync_folder(self) -> None:
        """A new file survives a loss of power only if its folder is synchronised, too."""
        if sys.platform == "win32":
            return
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _first_of(path: Path) -> int:
    return int(path.stem[-20:])


def _is_old(path: Path) -> bool:
    """True for a file of an earlier version, which did not keep the sequence that a journal begins with."""
    with path.open("rb") as file:
        return file.read(len(OLD_MAGIC)) == OLD_MAGIC


_sync = getattr(os, "fdatasync", os.fsync)


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
