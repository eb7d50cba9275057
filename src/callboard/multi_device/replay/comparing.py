"""``DeviceScript``: compares the ops of the devices of a replay with those of a recording."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callboard.core.ref import GpuRef
from callboard.multi_device.replay.devices import Array, DeviceNames
from callboard.multi_device.replay.entries import (
    Content,
    DeviceChosen,
    DeviceLost,
    DeviceOp,
    DeviceOpened,
    DeviceResult,
    Entry,
)
from callboard.multi_device.replay.plain import TOLERANCES, Comparison, Difference, shown
from callboard.multi_device.replay.report import Divergence, ReplayReport

__all__ = ["DeviceScript"]

MISSING = "it is not opened"

MOST = 100
"""Divergences and notes of one kind that a report lists."""


class DeviceScript:
    """The device entries of one run, and what a replay has made of them. Devices are matched by the order of opening.

    Args:
        entries: Entries of the run, with their sequences.
        report: Receives the divergences.
        tolerances: In place of those of :data:`.TOLERANCES`, by dtype.
        redact: That of the recording.

    Attributes:
        complete: The replay goes to the end of the run: ops that are missing at its end, or too many, are divergences.
    """

    def __init__(
        self,
        entries: Sequence[tuple[int, Entry]],
        report: ReplayReport,
        tolerances: Mapping[str, float],
        redact: Callable[[Any], Any] | None,
    ) -> None:
        self.report = report
        self.complete = True
        self.contents: dict[str, tuple[str, bytes]] = {}
        self.tolerances = {**TOLERANCES, **tolerances}
        self.redact = redact
        self.end = entries[-1][0] + 1 if entries else 1
        self._devices: dict[str, _Recorded] = {}
        self._choices: list[tuple[int, str]] = []
        self._chosen = 0
        self._opened: set[str] = set()
        self._running: set[str] = set()
        for sequence, entry in entries:
            if isinstance(entry, Content):
                self.contents[entry.digest] = entry.dtype, entry.data
            elif isinstance(entry, DeviceChosen):
                self._choices.append((sequence, entry.actor))
            elif isinstance(entry, DeviceOpened | DeviceOp | DeviceResult | DeviceLost):
                self._devices.setdefault(entry.actor, _Recorded()).add(sequence, entry)
        for actor, recorded in self._devices.items():
            report.losses += [f"{actor} ({recorded.name}) after op {n}: {error}" for n, error in recorded.losses]

    def attach(self, actor: str, name: str, backend: str) -> "DeviceComparer":
        """The log of a device that is opened as ``actor``."""
        self._opened.add(actor)
        self._running.add(actor)
        recorded = self._devices.get(actor)
        if recorded is None:
            self.differs(Divergence(actor, 0, self.end, "no such device", f"{name} is opened"))
            recorded = _Recorded()
        elif recorded.name != name:
            self.report.environment.append(f"{actor} was {recorded.name} and is {name}")
        return DeviceComparer(self, actor, recorded, backend)

    def chosen(self, actor: str) -> None:
        """A placement of the replay chose a device."""
        at, self._chosen = self._chosen, self._chosen + 1
        sequence, was = self._choices[at] if at < len(self._choices) else (self.end, "no further choice")
        if was != actor and (at < len(self._choices) or self.complete):
            self.differs(Divergence(actor, at + 1, sequence, was, actor, op="placement", unit="choice"))

    def differs(self, divergence: Divergence) -> None:
        """Note a divergence, in the order of the journal."""
        found = self.report.divergences
        if len(found) < MOST or divergence.sequence < found[-1].sequence:
            found.append(divergence)
            found.sort(key=lambda each: each.sequence)
            del found[MOST:]

    def closed(self, actor: str) -> None:
        """A device of the replay is closed."""
        self._running.discard(actor)

    def finish(self, expected: Callable[[str], bool] = lambda actor: False) -> ReplayReport:
        """The report, with the devices that were not opened.

        Args:
            expected: Whether the replay has to open a device; one that is missing while none is open is a divergence.
        """
        report = self.report
        missing = {actor: recorded for actor, recorded in self._devices.items() if actor not in self._opened}
        for actor in self._devices:
            report.skipped.pop(actor, None)
        report.skipped.update((actor, len(recorded.ops)) for actor, recorded in missing.items())
        report.divergences[:] = [each for each in report.divergences if each.got != MISSING]  # of an earlier reading
        if not self._running:
            for actor in filter(expected, missing):
                recorded = missing[actor]
                self.differs(Divergence(actor, 0, recorded.first, f"{recorded.name} is opened", MISSING))
        return self.report


class _Recorded:
    """One device of a recording."""

    def __init__(self) -> None:
        self.name = self.backend = ""
        self.first = 0
        self.ops: dict[int, tuple[int, DeviceOp]] = {}
        self.results: dict[tuple[int, str], DeviceResult] = {}
        self.losses: list[tuple[int, str]] = []

    def add(self, sequence: int, entry: DeviceOpened | DeviceOp | DeviceResult | DeviceLost) -> None:
        self.first = self.first or sequence
        if isinstance(entry, DeviceOpened):
            self.name, self.backend = entry.name, entry.backend
        elif isinstance(entry, DeviceOp):
            self.ops[entry.number] = sequence, entry
        elif isinstance(entry, DeviceResult):
            self.results[entry.number, entry.name] = entry
        else:
            self.losses.append((entry.number, entry.error))


class DeviceComparer(DeviceNames):
    """The :class:`log <callboard.device.client.recorded.DeviceLog>` of a device that is replayed."""

    def __init__(self, script: DeviceScript, actor: str, recorded: _Recorded, backend: str) -> None:
        super().__init__(actor, script.redact)
        self._script = script
        self._recorded = recorded
        exact = recorded.backend == backend
        self._comparison = Comparison(script.contents, script.tolerances, exact)
        self._last = 0
        self._is_other = not recorded.ops  # it does something else by now

    def ready(self) -> None:
        """Nothing is written."""

    def called(self, op: str, arguments: Mapping[str, Any], outputs: Mapping[str, GpuRef[Any]]) -> int:
        live: dict[str, Array] = {}

        def keep(array: Array, digest: str) -> None:
            live[digest] = array

        given = {name: self.plain(value, keep) for name, value in arguments.items()}
        self._last = number = self.numbered(outputs)
        if self._is_other:
            return number
        report = self._script.report
        if number not in self._recorded.ops:
            if number > max(self._recorded.ops) and self._script.complete:
                self._differs(number, self._script.end, op, Difference("", "no further op", op + self._after_loss()))
                self._is_other = True
            return number
        sequence, was = self._recorded.ops[number]
        report.device_ops += 1
        if was.op != op:
            self._is_other = True
            self._differs(number, sequence, op, Difference("", was.op, op + self._after_loss()))
            return number
        found = self._compare(number, op, "argument", "", was.arguments, given, live)
        if found is not None:
            self._differs(number, sequence, op, found._replace(at=f"argument {found.at}"))
        return number

    def wants(self, number: int, name: str, nbytes: int | None) -> bool:
        wanted = not self._is_other and (number, name) in self._recorded.results
        if not wanted and not self._is_other and number in self._recorded.ops:
            self._script.report.unread += 1
        return wanted

    def unread(self, number: int, name: str) -> None:
        self._script.report.unread += 1

    def returned(self, number: int, name: str, value: Any) -> None:
        was = self._recorded.results.get((number, name))
        if was is None or (self._is_other and number >= self._last):
            return
        live: dict[str, Array] = {}

        def keep(array: Array, digest: str) -> None:
            live[digest] = array

        now = self.plain(value, keep)
        if was.lost and not isinstance(value, BaseException):
            return  # the loss is in the report
        sequence, op = self._recorded.ops[number]
        self._script.report.device_results += 1
        found = self._compare(number, op.op, "result", name, was.value, now, live)
        if found is not None:
            source = op.arguments.get("src") if op.op == "memory.get" else None
            of = "" if source is None else f" of {shown(source)}"
            self._differs(number, sequence, op.op, found._replace(at=f"result {found.at}{of}"))

    def chosen(self) -> None:
        self._script.chosen(self.actor)

    def lost(self, error: BaseException) -> None:
        self._script.report.losses.append(f"the replay's {self.actor} after op {self._last}: {error}")

    def closed(self) -> None:
        ahead = [number for number in self._recorded.ops if number > self._last]
        if ahead and self._script.complete and not self._is_other:
            sequence, op = self._recorded.ops[min(ahead)]
            self._differs(op.number, sequence, op.op, Difference("", op.op, "the device is closed"))
        self._is_other = True
        self._script.closed(self.actor)

    def _compare(
        self, number: int, op: str, what: str, at: str, was: Any, now: Any, live: dict[str, Array]
    ) -> Difference | None:
        comparison, report = self._comparison, self._script.report
        comparison.by_hash, comparison.unproven = [], []
        found = comparison.difference(at, was, now, live)
        place = f"{self.actor}, op {number} {op}, {what} "
        report.by_hash += [place + text for text in comparison.by_hash[: max(0, MOST - len(report.by_hash))]]
        report.unproven += [place + text for text in comparison.unproven[: max(0, MOST - len(report.unproven))]]
        return found

    def _differs(self, number: int, sequence: int, op: str, found: Difference) -> None:
        what = f"{found.at}: " if found.at else ""
        self._script.differs(
            Divergence(self.actor, number, sequence, what + found.expected, found.got, op=op, unit="op")
        )

    def _after_loss(self) -> str:
        if not self._recorded.losses:
            return ""
        last = max((n for n, _ in self._recorded.losses if n < self._last), default=math.inf)
        return f" (the recording lost its context after op {last}, this replay did not)" if last < math.inf else ""
