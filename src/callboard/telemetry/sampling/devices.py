"""``Devices``: the open devices of a system: what the application knows, and what hosts say when they are asked."""

import asyncio
import contextlib
import threading
import weakref
from collections import Counter

import msgspec

from callboard.actors import ActorSystem
from callboard.core.errors import AccelError
from callboard.device.client.handle import Device
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.status import DeviceStats, HostStats, MemoryPoolStats
from callboard.events.forking import after_fork
from callboard.events.ring import EVENTS
from callboard.telemetry.sampling.counting import Counts, DeviceCounts
from callboard.telemetry.sampling.snapshot import DeviceFigures, LossFigures, OpFigures, ResidentFigures

__all__ = ["MEASURED", "Devices", "called_as", "label_of", "open_devices"]

MEASURED = 127
"""One op in so many is measured in its host: a prime, so that all ops of a loop have their turn."""

ANSWER = 5.0
"""Seconds that a host gets to begin or end its measurements."""

Usage = tuple[int, float, int]


_labels: "weakref.WeakKeyDictionary[Device, str]" = weakref.WeakKeyDictionary()
_labelling = threading.Lock()


def _forked() -> None:
    """A forked child has none of its parent's devices; another thread may have held the lock."""
    global _labelling
    _labels.clear()
    _labelling = threading.Lock()


after_fork(_forked)


def label_of(device: Device) -> str:
    """Name of a device among all that are observed in this process: further ones of a name are numbered."""
    found = _labels.get(device)
    if found is None:
        with _labelling:  # systems may be on several threads
            taken = {label for other, label in _labels.items() if not other.stopped}
            number, found = 1, device.name
            while found in taken:
                number += 1
                found = f"{device.name} #{number}"
            _labels[device] = found
    return found


def open_devices(system: ActorSystem) -> list[Device]:
    """The devices of a system that are open now."""
    tasks = getattr(system, "_devices", {}).values()
    return [task.result() for task in list(tasks) if task.done() and not task.cancelled() and not task.exception()]


class _Known:
    """What a device's host said last."""

    def __init__(self) -> None:
        self.stats: DeviceStats | None = None
        self.pool: MemoryPoolStats | None = None
        self.usage: Usage | None = None
        self.fresh = False


class Devices:
    """Devices of one system.

    Args:
        system: The system.
        counts: Counts of their ops.
    """

    def __init__(self, system: ActorSystem, counts: Counts) -> None:
        self._system = system
        self._counts = counts
        self._known: dict[Device, _Known] = {}
        self._everything = 0
        self._measuring: dict[Device, int] = {}

    def open(self) -> list[Device]:
        """The devices that are open now."""
        return open_devices(self._system)

    async def refresh(self, timeout: float) -> None:
        """Ask all hosts at once; those that do not answer keep what they said."""
        devices = self.open()
        for device in devices:  # here, so that numbers are in the order of the systems
            label_of(device)
        for known in (self._known, self._measuring):
            for gone in known.keys() - set(devices):
                known.pop(gone)
        await asyncio.gather(*(self._ask(device, timeout) for device in devices))

    def default(self) -> int:
        """Have contexts that are opened from now on measure as many ops as are wanted now: one in so many."""
        EVENTS.every = 1 if self._everything else MEASURED
        return EVENTS.every

    async def measure(self) -> None:
        """Have the hosts of all devices measure some ops, or all of them while that is wanted."""
        every = self.default()
        late = [device for device in self.open() if self._measuring.get(device) != every]
        await asyncio.gather(*(self._measure(device, every) for device in late))

    async def _measure(self, device: Device, every: int) -> None:
        answers = device._answers
        answers.sampled = self._measuring[device] = every
        with contextlib.suppress(AccelError):  # the next context is told of it as soon as it is ready
            await answers.trace(ANSWER)

    def everything(self, more: int) -> None:
        """Measure all ops while the sum of ``more``, which is 1 or -1, is positive: :meth:`measure` has it done."""
        self._everything += more
        self.default()

    async def _ask(self, device: Device, timeout: float) -> None:
        known = self._known.setdefault(device, _Known())
        known.fresh = False
        with contextlib.suppress(AccelError, TimeoutError):
            async with asyncio.timeout(timeout):
                known.stats, known.pool = await asyncio.gather(device.stats(), device.pool_stats())
                if device._actor.remote:  # the processes of this machine are looked at here
                    known.usage = (await device._answers.ask("stats", timeout=timeout, type=HostStats)).usage
            known.fresh = True

    def figures(self) -> list[DeviceFigures]:
        """Figures of all devices. Never waits."""
        return [self._figures(device) for device in self.open()]

    def _figures(self, device: Device) -> DeviceFigures:
        health, port = device.health(), device._port
        known = self._known.get(device) or _Known()
        counts = self._counts.devices[device.name]
        figures = DeviceFigures(
            name=label_of(device),
            system=self._system.name,
            backend=device.backend,
            isolation=device.isolation,
            uuid=device.uuid,
            state=health.state,
            generation=health.ordinal,
            losses=health.restarts,
            standby=health.standby,
            standbys_ready=health.standbys_ready,
            host_pid=health.host_pid,
            queued=port.queued,
            in_flight=dict(Counter(entry.tag.partition(".")[0] for entry in port.unanswered.entries.copy().values())),
            completed=port.unanswered.completed,
            failed=port.unanswered.failed,
            out_of_memory=port.unanswered.out_of_memory,
            ops=_ops(port, counts),
            last_loss=_own(counts.last_loss, health.restarts),
            fresh=known.fresh,
        )
        if known.stats is not None:
            _add_stats(figures, known.stats)
        if known.pool is not None:
            figures.memory["peak"] = known.pool.peak_bytes
            figures.memory["fragmentation"] = known.pool.fragmentation
        return figures

    def processes(self) -> list[tuple[str, int, Usage | None]]:
        """Device and process of each host, and what one on another machine says of itself."""
        found: list[tuple[str, int, Usage | None]] = []
        for device in self.open():
            known = self._known.get(device)
            far = device._actor.remote
            for host in [*device._actor.fleet.hosts, *device._actor.own.hosts]:
                said = known.usage if known is not None and far and host is device._actor.host else None
                if said is not None or not far:
                    found.append((label_of(device), host.pid, said))
        return found

    async def close(self) -> None:
        """Have the hosts measure no more."""
        await asyncio.gather(*(self._measure(device, 0) for device in self.open()))


def _own(loss: LossFigures | None, losses: int) -> LossFigures | None:
    """The last loss, unless it is of another system's device of this name, which has lost more contexts."""
    return loss if loss is not None and loss.generation <= losses else None


def called_as(tag: str) -> str:
    """The tag of a measured op as the application calls it: hosts mark calls of resident actors."""
    return tag.removeprefix("actor:")


def _ops(port: OpPort, counts: DeviceCounts) -> dict[str, OpFigures]:
    called, failures, measured = port.called.copy(), port.failures.copy(), counts.ops.copy()
    found = {tag: OpFigures(count, failures.get(tag, 0)) for tag, count in called.items()}
    for tag, op in measured.items():
        figures = found.setdefault(called_as(tag), OpFigures())
        figures.measured, figures.seconds = op.measured, op.seconds
    return found


def _add_stats(figures: DeviceFigures, stats: DeviceStats) -> None:
    figures.memory = {
        "free": stats.free_bytes,
        "total": stats.total_bytes,
        "used": stats.used_bytes,
        "cached": stats.cached_bytes,
        "staged": stats.staged_bytes,
    }
    figures.buffers = stats.buffers
    figures.parked = stats.parked
    figures.streams = stats.live_streams
    figures.plans = {lib: msgspec.to_builtins(plan) for lib, plan in stats.plans.items()}
    figures.residents = {
        name: ResidentFigures(
            found.state, found.actor, found.in_flight, found.completed, found.failed, found.restarts, found.busy
        )
        for name, found in stats.residents.items()
    }
