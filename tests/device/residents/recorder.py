"""``Recorder``: a resident actor that logs what it runs, importable by context hosts; what it answers and writes."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.device.residents.lab import enter, local, wait_at

import callboard as cb

__all__ = ["Record", "Recorder", "given", "updated"]

SMALL, LARGE, LARGER = 50, 12_000, 50_000
"""Elements of arrays of int64: 400 bytes, 94 KiB, 391 KiB."""


def given(number: int, size: int) -> np.ndarray:
    """The array that call ``number`` brings."""
    return np.arange(number, number + size, dtype=np.int64)


def updated(array: Any, number: int) -> None:
    """What call ``number`` does to a ref's contents; no two of these can be exchanged."""
    array = local(array)
    array *= 3
    array += number


class Recorder(cb.ResidentActor):
    """Each method takes the call's number and logs it first.

    Args:
        log: Path of the file.
        name: Of this actor, among all that write to it.
    """

    supervision = cb.OneForOne(
        {cb.ReplyError: cb.Directive.RESUME, LookupError: cb.Directive.RESTART, OSError: cb.Directive.RESUME},
        default=cb.Directive.RESTART,
    )
    max_in_flight = 64

    def __init__(self, log: str, name: str) -> None:
        self.log = log
        self.name = name
        self.kept = 0, np.zeros(0, np.int64)

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = enter(ctx)

    def note(self, what: str, number: int) -> None:
        file = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{self.name} {what} {number}\n".encode())
        os.close(file)

    def short(self, number: int) -> int:
        self.note("ran", number)
        return 3 * number + 1

    def blocked(self, number: int, gate: str, ref: Any = None) -> int:
        self.note("ran", number)
        wait_at(gate)
        if ref is not None:
            updated(ref, number)
        return 3 * number + 1

    def array(self, number: int, array: np.ndarray) -> np.ndarray:
        self.note("ran", number)
        return array + 1

    def keep(self, number: int, array: np.ndarray) -> np.ndarray:
        """Keeps the array beyond the call, and gives the one kept before, with its number."""
        self.note("ran", number)
        before, self.kept = self.kept, (number, array)
        return np.append(before[1], before[0])

    def write(self, number: int, ref: Any) -> None:
        self.note("ran", number)
        updated(ref, number)

    def computed(self, number: int, ref: cb.In) -> np.ndarray:
        """A copy of the ref's contents, by ops of the actor's own device."""
        self.note("ran", number)
        device = self.ctx.device
        return device.copy(device.put(local(ref))).get()

    def fail(self, number: int, how: str, ref: Any = None) -> None:
        self.note("ran", number)
        if ref is not None:
            updated(ref, number)
        match how:
            case "answer":
                raise cb.ReplyError(str(number))
            case "resume":
                raise OSError(str(number))
            case "restart":
                raise KeyError(number)
            case "exit":
                raise SystemExit(number)

    def items(self, number: int, n: int, size: int) -> Iterator[Any]:
        self.note("opened", number)
        try:
            for i in range(n):
                yield given(number + i, size) if size else number + i
        finally:
            self.note("closed", number)


class Record:
    """What recorders have logged.

    Args:
        path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[tuple[str, str, int]]:
        """``(actor, what, number)`` in order."""
        if not self.path.exists():
            return []
        found = [line.split() for line in self.path.read_text().splitlines()]
        return [(actor, what, int(number)) for actor, what, number in found]

    def numbers(self, what: str) -> set[int]:
        """Calls of which this was logged."""
        return {number for _, said, number in self.lines() if said == what}

    def check_order(self) -> None:
        """Each actor has run its calls in the order of calling, none twice."""
        ran: dict[str, list[int]] = {}
        for actor, what, number in self.lines():
            if what == "ran":
                ran.setdefault(actor, []).append(number)
        for actor, numbers in ran.items():
            assert numbers == sorted(set(numbers)), f"{actor} has run {numbers}"

    def check_closed(self) -> None:
        """Each generator that began was closed once."""
        opened, closed = self.numbers("opened"), Counter(n for _, what, n in self.lines() if what == "closed")
        assert closed == Counter(opened), f"opened {opened}, closed {closed}"
