"""``Checkpoints``: the checkpoints of graphs, in a journal."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec

from callboard.agents.graph.checkpoints.index import Entry, Index, Version
from callboard.multi_device.replay.journals.memory import MemoryJournal
from callboard.multi_device.replay.journals.protocol import Journal, checked_journal

__all__ = ["Checkpoints", "Saved", "Write"]

PAGE = 1024
"""Records that are read at once."""
SPARE = 4096
"""Records that may be dead before the journal is compacted, beside as many as there are checkpoints and writes."""
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True)
class Write:
    """A write of a task that belongs to a checkpoint."""

    task: str
    number: int
    channel: str
    value: bytes = field(repr=False)
    path: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was read."""

    thread: str
    ns: str
    id: str
    parent: str | None
    metadata: bytes = field(repr=False)
    body: bytes = field(repr=False)
    versions: dict[str, Version]
    values: dict[str, bytes] = field(repr=False)
    writes: tuple[Write, ...]


class Checkpoints:
    """Keeps checkpoints in a journal, of any number of threads. A value that did not change is stored once.

    Deleted checkpoints leave the journal when it is compacted, which happens by itself. An index of all checkpoints is
    in memory; their contents are read from the journal. May be used from any thread.

    Args:
        journal: A journal of its own, such as ``cb.FileJournal(folder)``; None keeps them in memory.
        identity: Name of the sequence in the journal. One process at a time may have it.
    """

    def __init__(self, journal: Journal | None = None, identity: str = "checkpoints") -> None:
        self._journal = MemoryJournal() if journal is None else checked_journal(journal)
        self.in_memory = isinstance(self._journal, MemoryJournal)
        """True if nothing here blocks."""
        self._identity = identity
        self._lock = threading.RLock()
        self._index = Index()
        self._next = 0
        self._first = 1

    # -- life ----------------------------------------------------------------------------------------------------------

    def open(self) -> Self:
        """Open the journal and read it. The first use does this by itself.

        Raises:
            JournalConflict: Another process has it.
            JournalCorrupt: It is damaged.
        """
        with self._lock:
            if self._next:
                return self
            last = self._journal.open(self._identity).last
            try:
                self._read_all(last)
            except BaseException:  # a cancel, too
                self._journal.close()
                raise
            self._next = last + 1
            return self

    def _read_all(self, last: int) -> None:
        index, fresh, at, first = Index(), None, 1, 0
        while at <= last:
            page = self._journal.read(at, PAGE)
            if not page:
                break
            for sequence, data in page:
                first = first or sequence
                record = _unpack(data)
                match record:
                    case ["begin"]:
                        fresh = Index()
                    case ["end"] if fresh is not None:
                        index, fresh = fresh, None
                    case ["new", inner] if fresh is not None:
                        fresh.apply(sequence, inner)
                    case ["new", _] | ["end"]:
                        pass  # of a compaction that did not end
                    case _:
                        index.apply(sequence, record)
                at = sequence + 1
        self._index, self._first = index, first or 1

    def close(self) -> None:
        """Let go of the journal; nothing the second time."""
        with self._lock:
            if self._next:
                self._next = 0
                self._journal.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(
        self,
        thread: str,
        ns: str,
        id_: str,
        parent: str | None,
        *,
        body: bytes,
        versions: dict[str, Any],
        values: Mapping[str, bytes],
        metadata: bytes = b"",
        run_id: str | None = None,
    ) -> None:
        """Add a checkpoint.

        Args:
            thread, ns, id_, parent: Its place; ids of a thread grow.
            body: Its contents, except the values of channels.
            versions: The version of each channel; the dict is kept.
            values: The values of those channels that have changed.
            metadata: Kept in memory, too.
            run_id: The run that made it, for :meth:`delete_runs`.
        """
        record = _pack(["p", thread, ns, id_, parent, run_id, metadata, body, versions, values])
        with self._lock:
            if not self._next:
                self.open()
            sequence = self._next
            self._journal.append(sequence, [record])
            self._next = sequence + 1
            self._index.add(sequence, thread, ns, id_, parent, run_id, metadata, versions, values)

    def put_writes(self, thread: str, ns: str, id_: str, writes: Sequence[Write]) -> None:
        """Add writes of one task to a checkpoint. One of the same task and number, from 0, is not replaced."""
        if writes:
            rows = [[write.number, write.channel, write.value] for write in writes]
            self._append(["w", thread, ns, id_, writes[0].task, writes[0].path, rows])

    def delete_thread(self, thread: str) -> None:
        """Delete all checkpoints of a thread."""
        self._append(["d", thread])

    def delete_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, in all threads."""
        if run_ids:
            self._append(["r", list(run_ids)])

    def copy_thread(self, source: str, target: str) -> None:
        """Make the checkpoints of a thread those of another one, too; what that had is deleted."""
        self._append(["c", source, target])

    def prune(self, threads: Sequence[str]) -> None:
        """Keep only the latest checkpoint of each namespace of these threads."""
        if threads:
            self._append(["k", list(threads)])

    def _append(self, record: list[Any]) -> None:
        with self._lock:
            if not self._next:
                self.open()
            sequence = self._next
            self._journal.append(sequence, [_pack(record)])
            self._next = sequence + 1
            self._index.apply(sequence, record)
            if record[0] != "w" and sequence - self._first > SPARE + 2 * len(self._index):
                self.compact()

    def compact(self) -> None:
        """Write what is not deleted again, and discard everything before it."""
        with self._lock:
            self.open()
            records: list[list[Any]] = [["begin"]]
            for thread, ns, space in self._index.spaces():
                written: set[tuple[str, Version]] = set()
                for id_ in sorted(space.entries):
                    entry = space.entries[id_]
                    old = self._record(entry.sequence)
                    new = [pair for pair in entry.versions.items() if pair in space.blobs and pair not in written]
                    written.update(new)
                    blobs = {channel: self._blob(space.blobs[channel, version], channel) for channel, version in new}
                    head = ["p", thread, ns, id_, entry.parent, entry.run_id, entry.metadata, old[7]]
                    records.append(["new", [*head, entry.versions, blobs]])
                    for write in self._writes(entry):
                        row = [write.number, write.channel, write.value]
                        records.append(["new", ["w", thread, ns, id_, write.task, write.path, [row]]])
            records.append(["end"])
            start = self._next
            self._journal.append(start, [_pack(record) for record in records])
            self._next = start + len(records)
            index = Index()
            for sequence, record in enumerate(records[1:-1], start + 1):
                index.apply(sequence, record[1])
            self._index, self._first = index, start
            self._journal.discard(start)

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, thread: str, ns: str = "", id_: str | None = None) -> Saved | None:
        """A checkpoint, the latest one without an id; None if there is none."""
        with self._lock:
            self.open()
            entry = self._index.entry(thread, ns, id_)
            return None if entry is None else self._saved(thread, ns, entry)

    def entries(
        self, thread: str | None = None, ns: str | None = None, before: str | None = None
    ) -> Iterator[tuple[str, str, str, bytes]]:
        """Thread, namespace, id and metadata of checkpoints; those of one namespace from the latest to the first.

        Args:
            thread, ns: Of these only; None for all.
            before: Of ids below this one only.
        """
        with self._lock:
            self.open()
            found = [
                (t, n, id_, space.entries[id_].metadata)
                for t, n, space in self._index.spaces()
                if (thread is None or t == thread) and (ns is None or n == ns)
                for id_ in sorted(space.entries, reverse=True)
                if before is None or id_ < before
            ]
        return iter(found)

    def _saved(self, thread: str, ns: str, entry: Entry) -> Saved:
        blobs = self._index.threads[thread][ns].blobs
        records: dict[int, list[Any]] = {entry.sequence: self._record(entry.sequence)}
        values: dict[str, bytes] = {}
        for channel, version in entry.versions.items():
            sequence = blobs.get((channel, version))
            if sequence is not None:
                if sequence not in records:
                    records[sequence] = self._record(sequence)
                values[channel] = records[sequence][9][channel]
        body = records[entry.sequence][7]
        head = (thread, ns, entry.id, entry.parent, entry.metadata, body, dict(entry.versions))
        return Saved(*head, values, tuple(self._writes(entry)))

    def _writes(self, entry: Entry) -> list[Write]:
        found = []
        for (task, number), (path, sequence, position) in entry.writes.items():
            _, channel, value = self._record(sequence)[6][position]
            found.append(Write(task, number, channel, value, path))
        return found

    def _blob(self, sequence: int, channel: str) -> bytes:
        value: bytes = self._record(sequence)[9][channel]
        return value

    def _record(self, sequence: int) -> list[Any]:
        ((_, data),) = self._journal.read(sequence, 1)
        record: list[Any] = _unpack(data)
        return record[1] if record[0] == "new" else record

    def __repr__(self) -> str:
        threads = len(self._index.threads)
        return f"<Checkpoints {self._identity!r} of {threads} threads in {type(self._journal).__name__}>"
