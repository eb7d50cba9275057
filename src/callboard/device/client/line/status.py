"""State and statistics of a device, as plain data."""

import enum
from typing import NamedTuple

import msgspec

__all__ = [
    "MEMORY_STEP",
    "DeviceHealth",
    "DeviceStats",
    "HostStats",
    "MemoryFigures",
    "MemoryPoolClass",
    "MemoryPoolStats",
    "PlanStats",
    "ResidentState",
    "ResidentStats",
    "TraceRecord",
]


MEMORY_STEP = 256 << 20
"""Bytes by which the use of memory must change to be reported."""


class ResidentState(enum.StrEnum):
    """The state of a resident actor; equal to its text: ``actor.state == "ready"``."""

    STARTING = "starting"
    """The actor has not been ready yet: there is no context, or the first ``setup`` has not finished."""
    READY = "ready"
    """``setup`` of its instance is done."""
    RESTARTING = "restarting"
    """The actor's instance has failed, or its context was lost, and another instance is being created."""
    STOPPED = "stopped"
    """It takes no more calls."""


class HostStats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a context host, for :class:`DeviceStats`."""

    compute_capability: tuple[int, int]
    free_bytes: int
    total_bytes: int
    used_bytes: int
    cached_bytes: int
    buffers: int
    allocations: int
    parked: int
    live_streams: int
    plans: "dict[str, PlanStats]"
    libraries: dict[str, str]
    library_restarts: dict[str, int] = {}
    residents_busy: dict[int, float] = {}
    usage: tuple[int, float, int] | None = None


class PlanStats(msgspec.Struct, frozen=True, kw_only=True):
    """The plans that a context host keeps of one library (one for each combination of op, settings and layouts).

    Attributes:
        entries: Kept now.
        hits: Launches that found theirs.
        misses: Plans made.
        evictions: Plans dropped because the library's limit was reached (:attr:`Library.max_plans`).
    """

    entries: int
    hits: int
    misses: int
    evictions: int


class ResidentStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one resident actor, for :class:`DeviceStats`.

    Attributes:
        state: ``"starting"``, ``"ready"``, ``"restarting"`` or ``"stopped"``.
        error: Class and text of its :attr:`ResidentRef.cause <callboard.ResidentRef.cause>`; None if there is no cause.
        actor: Name of its class, or of the function that makes it.
        in_flight: Calls without an answer.
        completed, failed: Answered calls, by a result or by an error, over all contexts.
        restarts: After failures, over all contexts.
        busy: Seconds that its thread has been in calls in the present context, measured there: reading the arguments,
            running the method, writing the result. The call that runs now is included.
    """

    state: ResidentState
    error: str | None
    actor: str
    in_flight: int
    completed: int
    failed: int
    restarts: int
    busy: float


class DeviceStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a device and its context host (``DeviceLoad`` in the specification, and more).

    Attributes:
        name, uuid, backend, isolation: The device, its backend, and where its context lives (``"process"`` or
            ``"thread"``).
        generation: Generation of the context; ``ordinal`` is 1 for the first.
        restarts: Contexts lost so far.
        compute_capability: ``(major, minor)``; ``(0, 0)`` on a CPU.
        free_bytes, total_bytes: Memory of the device, including the use of other processes.
        used_bytes: Held by our buffers.
        cached_bytes: Kept by our pool for reuse.
        staged_bytes: Host memory in arenas that is in use.
        buffers: Arrays on the device.
        allocations: Blocks of memory that the present context has given to arrays, new and reused ones.
        queue_depth: Calls not yet sent.
        in_flight: Ops without a completion.
        parked: Ops that wait in the host for a plan, a call or memory.
        live_streams: Streams of the context.
        completed, failed: Ops, over all generations.
        out_of_memory: Ops and calls that failed for lack of memory, over all generations; not those that failed because
            they use the results of such an op. ``zeros`` and ``full`` are two ops, each of which asks for the memory.
        fused: Kernels that were not launched, because another kernel computed their result (``fuse``), or because it
            was dropped before it was needed.
        recorded: Ops that were not sent one by one, as the replay of a chain stood for them (``auto_record``).
        plans: Plan cache figures of each library that the context has used, by library name (``"blas"``, ``"memory"``).
        libraries: Implementation in use, in words, for libraries that have several; empty when there is only one.
        library_restarts: The number of times that each library was made again after a failure, in this context.
        residents: Resident actors by name, including failed ones (the last 64, until a name is used again).
    """

    name: str
    uuid: str
    backend: str
    isolation: str
    generation: int
    ordinal: int
    restarts: int
    compute_capability: tuple[int, int]
    free_bytes: int
    total_bytes: int
    used_bytes: int
    cached_bytes: int
    staged_bytes: int
    buffers: int
    allocations: int
    queue_depth: int
    in_flight: int
    parked: int
    live_streams: int
    completed: int
    failed: int
    out_of_memory: int
    fused: int
    recorded: int
    plans: dict[str, PlanStats]
    libraries: dict[str, str]
    library_restarts: dict[str, int]
    residents: dict[str, ResidentStats]


class MemoryFigures(NamedTuple):
    """The memory of a device at some moment.

    Attributes:
        free_bytes, total_bytes: Memory of the device, including the use of other processes.
        used_bytes: Held by our arrays.
        cached_bytes: Kept by our pool for reuse.
    """

    free_bytes: int
    total_bytes: int
    used_bytes: int
    cached_bytes: int


class MemoryPoolClass(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of one size, for :class:`MemoryPoolStats`.

    Attributes:
        block_bytes: Size of the blocks. There are eight sizes per doubling; a block serves requests of its size only.
        in_use: Blocks that hold an array.
        cached: Blocks that are kept for reuse.
    """

    block_bytes: int
    in_use: int
    cached: int


class MemoryPoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """The device memory that a context holds: blocks of arrays, and blocks kept for reuse in stream order.

    Attributes:
        used_bytes: Bytes of blocks that hold an array; ``asked_bytes`` is the part that the arrays need.
        cached_bytes: Bytes of blocks kept for reuse. ``busy_bytes`` of them are still used by work in flight: they can
            be reused in stream order, but not trimmed yet.
        peak_bytes: The most that ``used_bytes`` has been in this context.
        limit_bytes: ``memory_limit``; None if it is not limited.
        free_bytes, total_bytes: Memory of the device, including the use of other processes.
        hits, misses: Blocks taken from those kept, and from the driver.
        trimmed_bytes: Bytes returned to the driver so far.
        classes: Blocks by size, smallest first.
    """

    used_bytes: int
    asked_bytes: int
    cached_bytes: int
    busy_bytes: int
    peak_bytes: int
    limit_bytes: int | None
    free_bytes: int
    total_bytes: int
    hits: int
    misses: int
    trimmed_bytes: int
    classes: list[MemoryPoolClass]

    @property
    def reserved_bytes(self) -> int:
        """Taken from the driver."""
        return self.used_bytes + self.cached_bytes

    @property
    def rounding(self) -> float:
        """Share of ``used_bytes`` that no array needs (internal fragmentation), 0 to 1."""
        return 1 - self.asked_bytes / self.used_bytes if self.used_bytes else 0.0

    @property
    def fragmentation(self) -> float:
        """Share of ``cached_bytes`` that a request of the largest kept block's size cannot have, 0 to 1.

        A context that has many sizes keeps many small blocks: near 1, with much cached, :meth:`callboard.Device.trim`
        gives a large request room.
        """
        largest = max((c.block_bytes for c in self.classes if c.cached), default=0)
        return 1 - largest / self.cached_bytes if self.cached_bytes else 0.0


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a device.

    Attributes:
        state: ``"starting"``, ``"ready"``, ``"rebuilding"``, ``"half_open"`` or ``"stopped"``.
        ok: It is ready.
        generation: The one that ops belong to; ``ordinal`` is 1 for the first, as ``repr(device)`` counts them.
        restarts: Contexts lost so far.
        standby: ``"none"``, ``"starting"``, ``"ready"`` (at least one) or ``"failed"`` (another is started).
        standbys_ready: Standbys that could take over now, of ``standbys_wanted`` that are to be kept; those of actors
            in processes of their own included.
        host_pid: Process of the active context; this process's own under thread isolation.
        error: The reason why it has stopped.
        residents: State of each resident actor, by name, as in :class:`DeviceStats`. They do not count for ``ok``.
    """

    state: str
    ok: bool
    generation: int
    ordinal: int
    restarts: int
    standby: str
    standbys_ready: int
    standbys_wanted: int
    host_pid: int | None
    error: str | None
    residents: dict[str, ResidentState]


class TraceRecord(NamedTuple):
    """One op, or one call of a resident actor, as a trace saw it in the context host.

    Attributes:
        op: Id of the op.
        tag: ``"blas.gemm"``; of a call ``"actor:embedder.embed"``: the actor's name and the method, or the message's
            class.
        stream: Id of the stream.
        began, enqueued, completed: Seconds of this machine's ``time.monotonic()``; from another machine translated, and
            late by the time on the way at most. Of an op: admission began, the launch returned, the completion was
            known. Of a call: the actor began it, the method returned and its result was written, and the work that it
            enqueued on the actor's stream finished.
        ok: True if it succeeded.
        started, seconds: Of an op: when the stream began it, and the seconds that it took, by events of the device;
            both are 0.0 if they are not known. Of a call: ``began``, and the seconds until the method had returned and
            the work that it enqueued was done, while it awaited included.
    """

    op: int
    tag: str
    stream: int
    began: float
    enqueued: float
    completed: float
    ok: bool
    started: float = 0.0
    seconds: float = 0.0
