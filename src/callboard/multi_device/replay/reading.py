"""Reading of a journal's entries, and of the runs that they belong to."""

import fnmatch
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from callboard.actors.errors import returned
from callboard.multi_device.replay.entries import VERSION, Entry, Run, decode
from callboard.multi_device.replay.errors import JournalCorrupt
from callboard.multi_device.replay.journals.protocol import Journal, checked_page

__all__ = ["read_entries", "run_of"]

PAGE = 65536


def read_entries(
    journal: Journal, first: int = 1, count: int | None = None, actor: str | None = None
) -> Iterator[tuple[int, Entry]]:
    """The entries of a journal, see :meth:`.ReplayHarness.entries`."""
    last: Any = journal.last()
    if not isinstance(last, int):
        raise returned("last of the journal", last, "the sequence of the last record")
    end = last if count is None else min(last, first + count - 1)
    while first <= end:
        page = checked_page(journal.read(first, min(PAGE, end - first + 1)), first)
        if not page:
            return
        for sequence, record in page:
            try:
                entry = decode(record)
            except msgspec.MsgspecError as e:
                raise JournalCorrupt(f"record {sequence} of the journal is no entry of a harness: {e}") from e
            if isinstance(entry, Run) and entry.version > VERSION:
                raise JournalCorrupt(f"the journal has version {entry.version}, and this reads up to {VERSION}")
            if actor is None or fnmatch.fnmatchcase(getattr(entry, "actor", ""), actor):
                yield sequence, entry
        first = page[-1][0] + 1


def run_of(entries: Iterable[tuple[int, Entry]], which: int) -> list[tuple[int, Entry]]:
    """The entries of one run; none if the journal has no run.

    Raises:
        ValueError: There is no such run.
    """
    runs: list[list[tuple[int, Entry]]] = []
    for sequence, entry in entries:
        if isinstance(entry, Run) or not runs:
            runs.append([])
        runs[-1].append((sequence, entry))
    runs = [run for run in runs if len(run) > 1 or not isinstance(run[0][1], Run)]
    if not runs:
        return []
    try:
        return runs[which]
    except IndexError:
        raise ValueError(f"run is {which}, and the journal has {len(runs)}") from None
