"""``Snapshot``: what an application does now. ``msgspec.json.encode(snapshot)`` is what views read."""

from typing import Any

import msgspec

__all__ = [
    "ActorFigures",
    "BlueprintFigures",
    "DeviceFigures",
    "LossFigures",
    "OpFigures",
    "ProcessFigures",
    "ResidentFigures",
    "RingFigures",
    "Snapshot",
]


class ActorFigures(msgspec.Struct, frozen=True, gc=False):  # thousands, of numbers and texts only
    """An actor.

    Attributes:
        path: Path of the actor.
        actor: Its class.
        state: ``"running"``, ``"suspended"`` or ``"stopping"``.
        depth: Messages in its mailbox.
        restarts: Instances after the first.
        handled: Messages handled since telemetry was installed.
        failed: Those of them whose handler raised.
        busy: Seconds in handlers since then, awaits included.
        wait: Seconds that a message waits in the mailbox, estimated from its depth and the rate of messages.
    """

    path: str
    actor: str
    state: str
    depth: int
    restarts: int
    handled: int
    failed: int
    busy: float
    wait: float


class OpFigures(msgspec.Struct):
    """The ops of one tag on one device, since telemetry was installed.

    Attributes:
        submitted: Ops that were called.
        failed: Ops that failed, by themselves or because an operand or the context was lost.
        measured: Ops whose times are in ``seconds``: one in 127, or all while a profile runs.
        seconds: Seconds from their launch to the known completion.
    """

    submitted: int = 0
    failed: int = 0
    measured: int = 0
    seconds: float = 0.0


class ResidentFigures(msgspec.Struct, frozen=True):
    """A resident actor, as in :class:`callboard.ResidentStats`."""

    state: str
    actor: str
    in_flight: int
    completed: int
    failed: int
    restarts: int
    busy: float


class LossFigures(msgspec.Struct, frozen=True):
    """The last lost context of a device.

    Attributes:
        at: Unix seconds.
        generation: Ordinal of the lost context.
        error: Class of the error.
        text: Its text.
        failed: Ops that failed.
        suspects: Ops in flight, oldest first.
        recovered: Seconds until the next context was ready; None while there is none.
        how: ``"hot"``, ``"warm"`` or ``"cold"``; None while there is none.
    """

    at: float
    generation: int
    error: str
    text: str
    failed: int
    suspects: list[str]
    recovered: float | None = None
    how: str | None = None


class DeviceFigures(msgspec.Struct):
    """A device.

    Attributes:
        name, backend, isolation, uuid: The device, and where its context lives. Of several devices of a name in this
            process, such as those of two systems, further ones are ``cpu:0 #2`` …
        state: As in :class:`callboard.DeviceHealth`.
        generation: Ordinal of its context, 1 for the first.
        losses: Contexts lost.
        standby, standbys_ready, host_pid: As in :class:`callboard.DeviceHealth`.
        queued: Calls that are not sent yet.
        in_flight: Ops without a completion, by library.
        completed, failed, out_of_memory: Ops; the last are those that failed for lack of memory.
        ops: Ops by tag.
        memory: ``free``, ``total``, ``used``, ``cached``, ``staged``, ``peak`` (bytes), ``fragmentation`` (ratio):
            those that are known.
        buffers, parked, streams: As in :class:`callboard.DeviceStats`.
        plans: Figures of plan caches by library: ``entries``, ``hits``, ``misses``, ``evictions``.
        residents: Resident actors by name.
        last_loss: The last loss; None if there was none.
        fresh: Whether the context host answered the last time that it was asked.
        system: Name of the system that opened it.
    """

    name: str
    backend: str
    isolation: str
    uuid: str
    state: str
    generation: int
    losses: int
    standby: str
    standbys_ready: int
    host_pid: int | None
    queued: int
    in_flight: dict[str, int]
    completed: int
    failed: int
    out_of_memory: int
    ops: dict[str, OpFigures]
    memory: dict[str, float] = {}
    buffers: int = 0
    parked: int = 0
    streams: int = 0
    plans: dict[str, dict[str, int]] = {}
    residents: dict[str, ResidentFigures] = {}
    last_loss: LossFigures | None = None
    fresh: bool = False
    system: str = ""


class BlueprintFigures(msgspec.Struct, frozen=True):
    """A blueprint's server.

    Attributes:
        name: Its name.
        kind: Its class.
        queued, running: Requests.
        ends: Requests by how they ended.
        figures: Its ``stats()``, as plain data.
    """

    name: str
    kind: str
    queued: int
    running: int
    ends: dict[str, int]
    figures: dict[str, Any]


class ProcessFigures(msgspec.Struct, frozen=True):
    """A process.

    Attributes:
        pid: Its id, on its machine.
        role: ``"application"`` or ``"host"``.
        device: The device of a host; empty for the application.
        rss: Bytes in memory.
        cpu: Seconds of processor time.
        threads: Number of threads.
    """

    pid: int
    role: str
    device: str
    rss: int
    cpu: float
    threads: int


class RingFigures(msgspec.Struct, frozen=True):
    """The ring of events."""

    capacity: int
    waiting: int
    drained: int
    dropped: int


class Snapshot(msgspec.Struct, frozen=True):
    """What an application does now.

    Attributes:
        at: Unix seconds.
        node: Name that was given to telemetry.
        system: Name of the actor system, also if it is numbered; or names with commas between them.
        pid: The application's process.
        actors: Living actors, parents first.
        devices: Open devices.
        blueprints: Servers that have been started.
        processes: The application and the context hosts of this machine.
        ring: The ring of events.
        dead_letters: Dead letters by reason.
        extra: Figures of added sources by their names.
    """

    at: float
    node: str
    system: str
    pid: int
    actors: list[ActorFigures]
    devices: list[DeviceFigures]
    blueprints: list[BlueprintFigures]
    processes: list[ProcessFigures]
    ring: RingFigures
    dead_letters: dict[str, int]
    extra: dict[str, Any]
