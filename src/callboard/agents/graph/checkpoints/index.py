"""Where in a journal the checkpoints of each thread are."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Entry", "Index", "Namespace"]

Version = str | int | float


@dataclass(slots=True)
class Entry:
    """A checkpoint: where its record is, and those of the writes that belong to it."""

    id: str
    parent: str | None
    run_id: str | None
    metadata: bytes
    versions: dict[str, Version]
    sequence: int
    writes: dict[tuple[str, int], tuple[str, int, int]] = field(default_factory=dict)
    """Task and number of a write: path of the task, sequence and position."""


@dataclass(slots=True)
class Namespace:
    """The checkpoints of a thread in one namespace (of a graph within a graph), by id, and the values of channels."""

    entries: dict[str, Entry] = field(default_factory=dict)
    blobs: dict[tuple[str, Version], int] = field(default_factory=dict)
    latest: str = ""

    def add(self, entry: Entry) -> None:
        """Add a checkpoint."""
        self.entries[entry.id] = entry
        if entry.id > self.latest:
            self.latest = entry.id

    def keep(self, entries: list[Entry]) -> None:
        """Keep only these, and the values that they need."""
        self.entries = {entry.id: entry for entry in entries}
        self.latest = max(self.entries, default="")
        needed = {pair for entry in entries for pair in entry.versions.items()}
        self.blobs = {pair: sequence for pair, sequence in self.blobs.items() if pair in needed}

    def copy(self) -> "Namespace":
        """Another one of the same contents."""
        entries = {
            key: Entry(e.id, e.parent, e.run_id, e.metadata, dict(e.versions), e.sequence, dict(e.writes))
            for key, e in self.entries.items()
        }
        return Namespace(entries, dict(self.blobs), self.latest)


class Index:
    """The contents of a journal of checkpoints, built by applying its records in order."""

    def __init__(self) -> None:
        self.threads: dict[str, dict[str, Namespace]] = {}

    def apply(self, sequence: int, record: list[Any]) -> None:
        """Apply one record."""
        match record:
            case ["p", thread, ns, id_, parent, run_id, metadata, _, versions, blobs]:
                self.add(sequence, thread, ns, id_, parent, run_id, metadata, versions, blobs)
            case ["w", thread, ns, id_, task, path, writes]:
                entry = self.entry(thread, ns, id_)
                if entry is not None:
                    for position, (number, _, _) in enumerate(writes):
                        if number < 0 or (task, number) not in entry.writes:
                            entry.writes[task, number] = path, sequence, position
            case ["d", thread]:
                self.threads.pop(thread, None)
            case ["r", runs]:
                gone = set(runs)
                for _, _, space in self.spaces():
                    space.keep([entry for entry in space.entries.values() if entry.run_id not in gone])
                self._drop_empty()
            case ["c", source, target]:
                self.threads[target] = {ns: space.copy() for ns, space in self.threads.get(source, {}).items()}
                self._drop_empty()
            case ["k", threads]:
                for thread in threads:
                    for space in self.threads.get(thread, {}).values():
                        space.keep([space.entries[space.latest]] if space.latest else [])
            case _:
                raise ValueError(f"record {sequence} is of a kind that this version does not support: {record[:1]}")

    def add(
        self,
        sequence: int,
        thread: str,
        ns: str,
        id_: str,
        parent: str | None,
        run_id: str | None,
        metadata: bytes,
        versions: dict[str, Version],
        blobs: Iterable[str],
    ) -> None:
        """Apply the record of a checkpoint."""
        spaces = self.threads.get(thread)
        if spaces is None:
            spaces = self.threads[thread] = {}
        space = spaces.get(ns)
        if space is None:
            space = spaces[ns] = Namespace()
        space.add(Entry(id_, parent, run_id, metadata, versions, sequence))
        for channel in blobs:
            space.blobs[channel, versions[channel]] = sequence

    def entry(self, thread: str, ns: str, id_: str | None) -> Entry | None:
        """A checkpoint; the latest one for an id of None."""
        space = self.threads.get(thread, {}).get(ns)
        return None if space is None else space.entries.get(id_ or space.latest)

    def spaces(self) -> Iterator[tuple[str, str, Namespace]]:
        """All namespaces of all threads."""
        for thread, spaces in self.threads.items():
            for ns, space in spaces.items():
                yield thread, ns, space

    def __len__(self) -> int:
        return sum(
            len(space.entries) + sum(len(e.writes) for e in space.entries.values()) for *_, space in self.spaces()
        )

    def _drop_empty(self) -> None:
        for thread, spaces in list(self.threads.items()):
            left = {ns: space for ns, space in spaces.items() if space.entries}
            if left:
                self.threads[thread] = left
            else:
                del self.threads[thread]
