"""``Counts``: what is counted from events, on the thread that drains the ring."""

import time
from collections import defaultdict
from typing import Any

from callboard.events.kinds import ACTOR, LOST, MESSAGE, RECOVERED, TRACED
from callboard.events.ring import Event
from callboard.telemetry.sampling.histogram import SECONDS, Bounded
from callboard.telemetry.sampling.snapshot import LossFigures, OpFigures

__all__ = ["Counts", "DeviceCounts", "Handled"]

RATE_OVER = 5.0
"""Seconds over which the rate of an actor's messages is averaged."""


class Handled:
    """Messages of one actor."""

    __slots__ = ("_since", "_then", "count", "failed", "nanoseconds", "rate")

    def __init__(self) -> None:
        self.count = self.failed = self.nanoseconds = 0
        self.rate = 0.0
        self._since = self._then = 0

    def measure(self, now: int) -> None:
        """Renew the rate of messages, of which the last few seconds count most; before it is read."""
        if not self._since:
            self._since, self._then = now, self.count
        elif now - self._since > 1e8:
            seconds = (now - self._since) / 1e9
            share = min(1.0, seconds / RATE_OVER)
            self.rate += share * ((self.count - self._then) / seconds - self.rate)
            self._since, self._then = now, self.count


class DeviceCounts:
    """Measured ops, and losses, of one device."""

    def __init__(self) -> None:
        self.ops: defaultdict[str, OpFigures] = defaultdict(OpFigures)
        self.seconds: dict[str, Bounded] = {}
        self.recoveries = Bounded(SECONDS)
        self.last_loss: LossFigures | None = None


class Counts:
    """Sums of events; all dictionaries are only written by :meth:`take`, and may be read on any thread."""

    def __init__(self) -> None:
        self.handled: defaultdict[str, Handled] = defaultdict(Handled)
        self.restarts: defaultdict[str, int] = defaultdict(int)
        self.devices: defaultdict[str, DeviceCounts] = defaultdict(DeviceCounts)
        self._ways = {
            ACTOR: self._actor,
            TRACED: self._traced,
            LOST: self._lost,
            RECOVERED: self._recovered,
        }

    def take(self, events: list[Event]) -> None:
        """Count these."""
        ways, all_handled = self._ways, self.handled
        for event in events:
            if event[2] == MESSAGE:  # nearly all
                _, ended, _, path, _, began, ok = event
                handled = all_handled[path]
                handled.count += 1
                handled.nanoseconds += ended - began
                if not ok:
                    handled.failed += 1
            elif (way := ways.get(event[2])) is not None:
                way(event)

    def _actor(self, event: Event) -> None:
        if event[4] == "restarted":
            self.restarts[event[3]] += 1

    def _traced(self, event: Event) -> None:
        counts = self.devices[event[3]]
        for _, tag, _, _, enqueued, completed, _, _, measured in event[4]:
            seconds = measured or completed - enqueued
            figures = counts.ops[tag]
            figures.measured += 1
            figures.seconds += seconds
            if tag not in counts.seconds:
                counts.seconds[tag] = Bounded(SECONDS)
            counts.seconds[tag].add(seconds)

    def _lost(self, event: Event) -> None:
        _, at, _, device, generation, error, text, failed, suspects, _ = event
        counts = self.devices[device]
        unix = time.time() - (time.monotonic_ns() - at) / 1e9
        counts.last_loss = LossFigures(unix, generation, error, text, failed, suspects)

    def _recovered(self, event: Event) -> None:
        _, _, _, device, _, how, seconds = event
        counts = self.devices[device]
        counts.recoveries.add(seconds)
        loss: Any = counts.last_loss
        if loss is not None:
            fields = loss.at, loss.generation, loss.error, loss.text, loss.failed, loss.suspects
            counts.last_loss = LossFigures(*fields, seconds, how)

    def forget_all_but(self, paths: set[str]) -> None:
        """Drop the counts of actors that have ended."""
        for counts in (self.handled, self.restarts):
            for path in [path for path in counts if path not in paths]:
                counts.pop(path, None)
