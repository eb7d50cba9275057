"""``Costs``: the time that ops took on their streams, by op."""

import html
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from callboard.events.kinds import TRACED
from callboard.events.ring import Event

__all__ = ["SO_FAR", "Costs", "CostsFile", "OpCost"]

SO_FAR = "so far:\n"
"""Begins a table that is not complete."""
EVERY = 0.25
"""Seconds between two tables of a program that runs."""


class OpCost(NamedTuple):
    """The ops of one tag.

    Attributes:
        op: The tag.
        calls: Number of ops.
        seconds: Seconds that their streams were at work on them; of calls of a resident actor, from the begin of the
            method to its end and that of the work that it enqueued.
        share: Part of the time of all ops, 0 to 1.
        longest: Seconds of the longest one.
        launching: Seconds that the host took to launch them; 0 of calls of resident actors.
        failed: Number of those that failed.
    """

    op: str
    calls: int
    seconds: float
    share: float
    longest: float
    launching: float
    failed: int


class Costs:
    """Sums of trace records.

    An op takes the seconds that events on its stream measured; where there are none, those from its launch, or from the
    end of the op before it on its stream, until its completion was known. A call of a resident actor takes the time of
    its method.
    """

    def __init__(self) -> None:
        self._until: dict[tuple[str, int], float] = {}
        self._sums: dict[str, list[Any]] = {}

    def add(self, device: str, records: Iterable[Any]) -> None:
        """Count these: see :class:`callboard.TraceRecord`."""
        until, sums = self._until, self._sums
        for _, tag, stream, began, enqueued, completed, ok, started, measured in records:
            start = max(enqueued, until.get((device, stream), 0.0))
            until[device, stream] = max(start, completed)
            found = sums.get(tag)
            if found is None:
                found = sums[tag] = [0, 0.0, 0.0, 0.0, 0]
            seconds = measured if started else max(0.0, completed - start)
            found[0] += 1
            found[1] += seconds
            found[2] = max(found[2], seconds)
            found[3] += 0.0 if tag.startswith("actor:") else enqueued - began
            found[4] += not ok

    @property
    def ops(self) -> list[OpCost]:
        """Costs by op, the costliest first."""
        total = sum(found[1] for found in self._sums.values()) or 1.0
        costs = [
            OpCost(tag, calls, seconds, seconds / total, longest, launching, failed)
            for tag, (calls, seconds, longest, launching, failed) in self._sums.items()
        ]
        return sorted(costs, key=lambda cost: -cost.seconds)

    def table(self, rows: int = 10) -> str:
        """The costliest ops, as text."""
        ops = self.ops
        if not ops:
            return "no ops"
        lines = [
            f"{'op':<32} {'calls':>8} {'total ms':>10} {'share':>6} {'mean us':>10} {'max us':>10} {'launch us':>10}"
        ]
        for cost in ops[:rows]:
            mean, launch = cost.seconds / cost.calls * 1e6, cost.launching / cost.calls * 1e6
            lines.append(
                f"{cost.op:<32} {cost.calls:>8,} {cost.seconds * 1e3:>10.3f} {cost.share:>6.1%} {mean:>10.1f} "
                f"{cost.longest * 1e6:>10.1f} {launch:>10.1f}" + (f"  {cost.failed} failed" if cost.failed else "")
            )
        if len(ops) > rows:
            rest = ops[rows:]
            seconds, share = sum(cost.seconds for cost in rest), sum(cost.share for cost in rest)
            calls = sum(cost.calls for cost in rest)
            lines.append(f"{f'{len(rest)} others':<32} {calls:>8,} {seconds * 1e3:>10.3f} {share:>6.1%}")
        return "\n".join(lines)

    def picture(self) -> str:
        """A flame picture in HTML: libraries, and under each its ops, as wide as their part of the time."""
        libraries: dict[str, list[OpCost]] = {}
        for cost in self.ops:
            libraries.setdefault(cost.op.partition(".")[0], []).append(cost)
        upper, lower = [], []
        for number, (name, costs) in enumerate(libraries.items()):
            upper.append(_block(name, sum(cost.share for cost in costs), number, f"{name}: {len(costs)} ops"))
            lower += [_block(each.op, each.share, number, f"{each.op}: {each.calls:,} calls") for each in costs]
        row = '<div style="display:flex;width:100%;font:12px sans-serif">{}</div>'
        return row.format("".join(upper)) + row.format("".join(lower))


class CostsFile:
    """A subscriber that writes the table of the costliest ops, again and again: a program that crashes leaves one.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._costs = Costs()
        self._write(SO_FAR)

    def take(self, events: list[Event]) -> None:
        """Count the ops among these."""
        found = False
        for event in events:
            if event[2] == TRACED:
                self._costs.add(event[3], event[4])
                found = True
        if found and time.monotonic() - self._written >= EVERY:
            self._write(SO_FAR)

    def close(self) -> None:
        """Write the whole table."""
        self._write("")

    def _write(self, before: str) -> None:
        try:
            with open(self._path, "w", encoding="utf-8") as file:
                file.write(before + self._costs.table())
        except OSError as e:  # of a write, it does not name the file
            raise OSError(e.errno, e.strerror, self._path) from None
        self._written = time.monotonic()


def _block(name: str, share: float, hue: int, title: str) -> str:
    style = (
        f"width:{share:.4%};background:hsl({hue * 67 % 360} 55% 75%);color:#000;overflow:hidden;white-space:nowrap;"
        "box-sizing:border-box;border:1px solid #fff;padding:2px"
    )
    title = html.escape(f"{title}, {share:.1%}", quote=True)
    return f'<div style="{style}" title="{title}">{html.escape(name)}</div>'
