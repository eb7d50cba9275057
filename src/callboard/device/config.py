"""Configuration of a device: argument, else environment, else default (docs/configuration.md is the one page)."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from callboard.device.strategies.carried import Carried
from callboard.device.strategies.completion import CompletionStrategy
from callboard.device.strategies.streams import StreamAllocator

__all__ = ["DeviceConfig", "DeviceOptions", "HostConfig", "StandbySetting", "defaults", "standbys"]

defaults: ContextVar[Mapping[str, Any]] = ContextVar("callboard_device_defaults", default=MappingProxyType({}))
"""Settings in place of the defaults of :class:`DeviceConfig`, for devices that are opened in this context."""

Amount = Annotated[int, msgspec.Meta(ge=1)]
Duration = Annotated[float, msgspec.Meta(gt=0.0)]
Pause = Annotated[float, msgspec.Meta(ge=0.0)]
Priority = Annotated[int, msgspec.Meta(ge=-1, le=1)]

StandbyKind = Literal["hot", "warm"]
StandbySetting = StandbyKind | int | tuple[StandbyKind, int] | None
"""A kind of standby, a number of standbys, or both."""

MAX_STANDBYS = 64


def standbys(setting: StandbySetting) -> tuple[StandbyKind, int]:
    """The kind and the number of standbys that a setting asks for."""
    match setting:
        case None:
            return "warm", 0
        case int():
            return "warm", setting
        case (kind, count):
            return kind, count
    return setting, 1


class HostConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that a context host gets when it opens.

    Attributes:
        memory_limit: Bytes that ops may allocate on the device; None: all there is.
        completion: How the host waits for work in flight: ``"polled"``, ``"host_fn"``, ``"sync"``, or an object
            of a class that derives from :class:`CompletionStrategy`; None uses the backend's default.
        spin: Seconds that a polling host continues to poll for new work after the last one finished; four times as long
            where the last pause was shorter than that, and for the next call of a resident actor that serves.
        streams: ``"chained"``: one for libraries whose ops mostly follow one another, and one for each other
            actor; ``"per_actor"``, ``"single"`` or ``"pooled"``; or an object of a class that derives from
            :class:`StreamAllocator`.
        pooled_streams: Number of streams when ``streams`` is ``"pooled"``.
        priorities: Stream priority of a library actor by its name: -1 low, 0 normal, 1 high.
        trace: Record every op (:class:`callboard.device.protocol.messages.Traces`).
        warm: Libraries whose handles and code a hot standby has ready.
        interval: Seconds between heartbeats.
        stall_after: Seconds for which a stream with work may complete nothing before its context counts as lost
            (``ContextPoisoned``, with the ops in flight as suspects); None: no limit. Must exceed the duration of the
            longest op.
    """

    memory_limit: Amount | None = None
    completion: Literal["polled", "host_fn", "sync"] | Carried | None = None
    spin: Pause = 100e-6
    streams: Literal["chained", "per_actor", "single", "pooled"] | Carried = "chained"
    pooled_streams: Amount = 4
    priorities: dict[str, Priority] = {}
    trace: bool = False
    warm: tuple[str, ...] = ("memory", "blas")
    interval: Duration = 1.0
    stall_after: Duration | None = None


class DeviceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a device.

    Attributes:
        isolation: ``"process"`` or ``"thread"``; None: as the backend prefers.
        dispatcher: Thread that launches under thread isolation: ``"own"``, or ``"caller"`` for the thread of the loop
            that uses the device (lowest latency; see :mod:`callboard.device.supervision.hosts.loop`).
        standby: ``"hot"`` (own context), ``"warm"`` (packages imported) or None (a cold spawn takes over); with a
            number, ``("hot", 2)``, so many of them, for losses that follow one another faster than a standby starts; a
            number alone: so many warm ones. Each is a process; on CUDA a hot one holds a context with its libraries,
            about 630 MiB of device memory. Process isolation only.
        linger: Seconds that awaiting the only op in flight, or its ``result()`` on another thread, may hold the loop to
            poll for its completion. Code that awaits op by op saves an iteration of the loop for each. The loop gets
            one at least every millisecond, or every ``linger`` seconds if that is longer. 0: never.
        max_in_flight: Ops without a completion before a call raises ``MailboxFull``.
        max_staged_bytes: Bytes of host arrays in arenas before ``put`` and ``get`` raise ``MailboxFull``. A larger
            array is transferred in parts.
        pending_capacity: Ops accepted while no context is ready.
        fuse: Compute consecutive functions of elements of ``dev.xp``, and a reduction that follows, in one kernel.
        auto_record: Send repeated chains of ops as one replay of a recording that is made automatically.
        preview: Elements of a ref of a blocking device that ``print``, a prompt and a notebook copy to show them; 0:
            none.
        hang_after: Seconds without a heartbeat before a host counts as hung; more than ``interval``. During a step,
            only those count in which the host's threads do nothing: it is stopped, or waits with the GIL.
        step_timeout: Seconds in which a host must have imported its packages and have opened the device, else it counts
            as hung. During a step of another thread (a library's prepare, a resident actor's setup), which may hold the
            GIL, heartbeats may be missing for this long.
        max_restarts: Context losses allowed within ``within`` seconds; one more stops the device. None: no limit.
        within: Seconds.
        on_exhausted: ``"stop"``, or ``"half_open"``: the next attempt comes after 1 s, and after twice as long each
            time, ``within`` seconds at most; by the standby if there is one. In the lifespan of an app,
            :class:`callboard.serve.App`, the default is ``"half_open"``, and that of ``isolation`` is ``"process"``.
        abandoned_after: Seconds for which a call of a resident actor may run on after it was cancelled, or its time
            limit has passed; then its code does not return, and its context counts as lost (``ContextPoisoned``): the
            actor is made again. None: no limit. Process isolation only. In the lifespan of an app the default is 60.
        cancelled_after: Seconds for which an op may run on after the task that awaited it was cancelled, or Ctrl-C has
            ended a wait of ``cb.sync`` for it, while nothing waits for it or for an earlier op; then it is ended by a
            new context: other ops in flight fail with ``ContextPoisoned``, and arrays are stale. It does not count as
            a loss. None: the op runs on. Process isolation only.
        close_timeout: Seconds that closing waits for work in flight. Less after Ctrl-C, or when the body is cancelled.
        guardian: Start a small process with each host that ends the processes which resident actors have started,
            however the host ends, also when the application is killed. Without it those continue then.
        host: Settings of the context host.
    """

    isolation: Literal["process", "thread"] | None = None
    dispatcher: Literal["own", "caller"] = "own"
    standby: StandbySetting = "warm"
    linger: Pause = 400e-6
    max_in_flight: Amount = 65_536
    max_staged_bytes: Amount = 4 << 30
    pending_capacity: Annotated[int, msgspec.Meta(ge=0)] = 1024
    fuse: bool = True
    auto_record: bool = False
    preview: Annotated[int, msgspec.Meta(ge=0)] = 1000
    hang_after: Duration = 30.0
    step_timeout: Duration = 300.0
    max_restarts: Annotated[int, msgspec.Meta(ge=0)] | None = 3
    within: Duration = 60.0
    on_exhausted: Literal["stop", "half_open"] = "stop"
    abandoned_after: Duration | None = None
    cancelled_after: Duration | None = None
    close_timeout: Pause = 10.0
    guardian: bool = False
    host: HostConfig = HostConfig()

    def __post_init__(self) -> None:
        # Not a constraint of the type: msgspec misreads one in a union with a tuple.
        if not 0 <= standbys(self.standby)[1] <= MAX_STANDBYS:
            raise ValueError(f"standby = {self.standby!r}: use a number of standbys from 0 to {MAX_STANDBYS}")


class DeviceOptions(TypedDict, total=False):
    """The fields of :class:`DeviceConfig` and :class:`HostConfig` as keywords, for editors and type checkers."""

    isolation: Literal["process", "thread"] | None
    dispatcher: Literal["own", "caller"]
    standby: Literal["hot", "warm"] | int | tuple[Literal["hot", "warm"], int] | None
    linger: float
    max_in_flight: int
    max_staged_bytes: int
    pending_capacity: int
    fuse: bool
    auto_record: bool
    preview: int
    hang_after: float
    step_timeout: float
    max_restarts: int | None
    within: float
    on_exhausted: Literal["stop", "half_open"]
    abandoned_after: float | None
    cancelled_after: float | None
    close_timeout: float
    guardian: bool
    host: HostConfig
    memory_limit: int | None
    completion: Literal["polled", "host_fn", "sync"] | CompletionStrategy | None
    spin: float
    streams: Literal["chained", "per_actor", "single", "pooled"] | StreamAllocator
    pooled_streams: int
    priorities: Mapping[str, int]
    trace: bool
    warm: Sequence[str]
    interval: float
    stall_after: float | None
