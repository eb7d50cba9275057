"""The tables of the view: each has columns, and makes rows of a snapshot and the one before."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from callboard.telemetry.sampling.snapshot import DeviceFigures, Snapshot

__all__ = ["TABLES", "Column", "Row", "Table", "bytes_text"]

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Column:
    """A column: its heading, how a value is written, and whether large values come first when it sorts."""

    name: str
    text: Callable[[Any], str] = str
    right: bool = True


@dataclass(frozen=True)
class Row:
    """A row: the name of what it shows, and a value for each column."""

    key: str
    values: Values


@dataclass(frozen=True)
class Table:
    """A table: ``rows(now, before)``, with ``before`` None for the first snapshot."""

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Snapshot, Snapshot | None], Iterator[Row]]


def bytes_text(value: float | None) -> str:
    """``3.2M``; a dash for what is not known."""
    if value is None:
        return "-"
    for unit in ("", "K", "M", "G"):
        if abs(value) < 1024:
            return f"{value:.0f}{unit}" if unit in ("", "K") else f"{value:.1f}{unit}"
        value /= 1024
    return f"{value:.1f}T"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f}us"
    return f"{seconds * 1e3:.1f}ms" if seconds < 1 else f"{seconds:.2f}s"


def _share(value: float) -> str:
    return f"{value * 100:.0f}%"


def _left(name: str) -> Column:
    return Column(name, right=False)


def _elapsed(now: Snapshot, before: Snapshot | None) -> float:
    return max(1e-3, now.at - before.at) if before is not None else 0.0


def _per_second(now: float, before: float | None, elapsed: float) -> float:
    return max(0.0, now - before) / elapsed if before is not None and elapsed else 0.0


def _devices(now: Snapshot, before: Snapshot | None) -> Iterator[Row]:
    elapsed = _elapsed(now, before)
    old = {device.name: device for device in before.devices} if before else {}
    for device in now.devices:
        last = old.get(device.name)
        loss = device.last_loss
        yield Row(
            device.name,
            (
                device.name,
                device.state,
                device.generation,
                device.losses,
                f"{device.standbys_ready} {device.standby}".strip(),
                device.queued,
                sum(device.in_flight.values()),
                _per_second(device.completed, last.completed if last else None, elapsed),
                device.failed,
                device.memory.get("used"),
                device.memory.get("free"),
                "" if loss is None else f"{loss.error}: {loss.text}",
            ),
        )


def _ops(now: Snapshot, before: Snapshot | None) -> Iterator[Row]:
    elapsed = _elapsed(now, before)
    old: dict[str, DeviceFigures] = {device.name: device for device in before.devices} if before else {}
    for device in now.devices:
        for tag, op in device.ops.items():
            last = old[device.name].ops.get(tag) if device.name in old else None
            mean = op.seconds / op.measured if op.measured else None
            rate = _per_second(op.submitted, last.submitted if last else None, elapsed)
            values = device.name, tag, op.submitted, rate, op.failed, mean, mean and mean * op.submitted
            yield Row(f"{device.name} {tag}", values)


def _actors(now: Snapshot, before: Snapshot | None) -> Iterator[Row]:
    elapsed = _elapsed(now, before)
    old = {actor.path: actor for actor in before.actors} if before else {}
    for actor in now.actors:
        last = old.get(actor.path)
        yield Row(
            actor.path,
            (
                actor.path,
                actor.actor,
                actor.state,
                actor.depth,
                actor.wait,
                _per_second(actor.handled, last.handled if last else None, elapsed),
                _per_second(actor.busy, last.busy if last else None, elapsed),
                actor.failed,
                actor.restarts,
            ),
        )


def _residents(now: Snapshot, before: Snapshot | None) -> Iterator[Row]:
    elapsed = _elapsed(now, before)
    old = {device.name: device.residents for device in before.devices} if before else {}
    for device in now.devices:
        for name, actor in device.residents.items():
            last = old.get(device.name, {}).get(name)
            yield Row(
                f"{device.name}/{name}",
                (
                    f"{device.name}/{name}",
                    actor.actor,
                    actor.state,
                    actor.in_flight,
                    _per_second(actor.completed, last.completed if last else None, elapsed),
                    _per_second(actor.busy, last.busy if last else None, elapsed),
                    actor.failed,
                    actor.restarts,
                ),
            )


def _servers(now: Snapshot, before: Snapshot | None) -> Iterator[Row]:
    elapsed = _elapsed(now, before)
    old = {server.name: server for server in before.blueprints} if before else {}
    for server in now.blueprints:
        last = old.get(server.name)
        done = server.ends.get("completed", 0)
        others = ", ".join(f"{count} {end}" for end, count in server.ends.items() if count and end != "completed")
        rate = _per_second(done, last.ends.get("completed", 0) if last else None, elapsed)
        yield Row(server.name, (server.name, server.kind, server.queued, server.running, done, rate, others))


def _processes(now: Snapshot, before: Snapshot | None) -> Iterator[Row]:
    elapsed = _elapsed(now, before)
    old = {process.pid: process for process in before.processes} if before else {}
    for process in now.processes:
        last = old.get(process.pid)
        cpu = _per_second(process.cpu, last.cpu if last else None, elapsed)
        yield Row(str(process.pid), (process.pid, process.role, process.device, cpu, process.rss, process.threads))


TABLES = (
    Table(
        "devices",
        (
            _left("device"),
            _left("state"),
            Column("gen"),
            Column("losses"),
            _left("standbys"),
            Column("queued"),
            Column("in flight"),
            Column("ops/s", _rate),
            Column("failed"),
            Column("used", bytes_text),
            Column("free", bytes_text),
            _left("last loss"),
        ),
        _devices,
    ),
    Table(
        "ops",
        (
            _left("device"),
            _left("op"),
            Column("calls"),
            Column("calls/s", _rate),
            Column("failed"),
            Column("mean", _time),
            Column("total", _time),
        ),
        _ops,
    ),
    Table(
        "servers",
        (
            _left("server"),
            _left("class"),
            Column("queued"),
            Column("running"),
            Column("completed"),
            Column("per s", _rate),
            _left("other ends"),
        ),
        _servers,
    ),
    Table(
        "residents",
        (
            _left("resident"),
            _left("class"),
            _left("state"),
            Column("in flight"),
            Column("calls/s", _rate),
            Column("busy", _share),
            Column("failed"),
            Column("restarts"),
        ),
        _residents,
    ),
    Table(
        "actors",
        (
            _left("actor"),
            _left("class"),
            _left("state"),
            Column("depth"),
            Column("wait", _time),
            Column("msgs/s", _rate),
            Column("busy", _share),
            Column("failed"),
            Column("restarts"),
        ),
        _actors,
    ),
    Table(
        "processes",
        (
            Column("pid"),
            _left("role"),
            _left("device"),
            Column("cpu", _share),
            Column("memory", bytes_text),
            Column("threads"),
        ),
        _processes,
    ),
)
"""The tables, in the order of their keys 1, 2, …"""
