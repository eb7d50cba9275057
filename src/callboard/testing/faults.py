"""``Faults``: opens devices on which one thing goes wrong, at a chosen op."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

if TYPE_CHECKING:
    from callboard.device.client.handle import Device

__all__ = ["FaultKind", "Faults", "open_faulty"]

FaultKind = Literal["context_poisoned", "oom", "hang", "host_killed", "slow", "stale", "library", "unrecoverable"]

STILL = 0.25
"""Default seconds of delay of a ``slow`` op."""

CLOSE = 0.5
"""Seconds that closing waits for a stalled stream in a process host, which is then killed."""


class Faults(Protocol):
    """The fixture ``fault``: :func:`open_faulty`, with a place for its notes."""

    def __call__(
        self,
        kind: FaultKind,
        *,
        at: int = 1,
        backend: str = "cpu",
        isolation: Literal["process", "thread"] = "process",
        **options: Any,
    ) -> "AbstractAsyncContextManager[Device]": ...


@asynccontextmanager
async def open_faulty(
    kind: FaultKind,
    *,
    at: int = 1,
    backend: str = "cpu",
    isolation: Literal["process", "thread"] = "process",
    delay: float = STILL,
    **options: Any,
) -> "AsyncIterator[Device]":
    """A device on which one thing goes wrong, once.

    ``async with open_faulty("host_killed", at=3) as dev``: an opened device, to be used as any other.

    * ``context_poisoned``: after op ``at`` the context is dead: ops without a completion fail with
        ``ContextPoisoned``.
    * ``oom``: op ``at`` fails with ``OutOfMemory``.
    * ``hang``: the stream of op ``at`` stalls after it until the device is closed, or its context given up as
      lost: ``stall_after=1.0`` among the options does that after a second.
    * ``host_killed``: the host gets SIGKILL when it launches op ``at``; process isolation only.
    * ``slow``: the stream of op ``at`` stalls after it for ``delay`` seconds.
    * ``stale``: op ``at`` is answered ``GpuRefStale`` (``"context rebuilt"``) by the host.

    * ``library``: a library raises an exception of its own at op ``at``, which fails with ``LibraryError``.
    * ``unrecoverable``: the device reports ``Unrecoverable`` at op ``at``.

    Args:
        kind: Kind of the fault.
        at: The op, counted from 1 in the context that is hit first; ``put``, ``get`` and fills count.
        backend: Backend of the device; ``hang`` and ``slow`` need ``"cpu"``.
        isolation: ``"process"`` (the context is replaced) or ``"thread"`` (a lost context ends the device).
        delay: Seconds.
        options: Options of :func:`callboard.device`; there is no standby unless ``standby`` is given.

    Raises:
        ValueError: No such kind, one that needs another isolation, or ``at`` below 1.
    """
    import callboard as cb
    from callboard.core import registry

    if kind not in get_args(FaultKind):
        raise ValueError(f"fault {kind!r}; there are {', '.join(get_args(FaultKind))}")
    if kind == "host_killed" and isolation != "process":
        raise ValueError("fault 'host_killed' would kill the test itself under thread isolation; use 'process'")
    if at < 1:
        raise ValueError(f"at is {at}; ops are counted from 1")
    options = {"standby": None, **options}
    if kind == "hang":
        options.setdefault("close_timeout", CLOSE)
    with tempfile.TemporaryDirectory(prefix="callboard-fault-") as folder:
        once = os.path.join(folder, "struck")
        faulty = _backend(kind, at, backend, delay, once)
        undo = registry.register(faulty.spec, faulty)
        try:
            async with cb.System("faulty") as system:
                device = await system.device(faulty.spec, isolation=isolation, **options)
                try:
                    yield device
                finally:
                    for opened in faulty.opened:
                        opened.release_hang()
        finally:
            undo()


def _backend(kind: FaultKind, at: int, backend: str, delay: float, once: str) -> Any:
    from callboard.testing.faulty import FaultyBackend

    faults: dict[FaultKind, dict[str, Any]] = {
        "context_poisoned": {"poison_at": at},
        "oom": {"refuse_at": at, "refuse_with": "OutOfMemory"},
        "hang": {"hang_at": at},
        "host_killed": {"kill_at": at},
        "slow": {"slow_at": at, "delay": delay},
        "stale": {"refuse_at": at, "refuse_with": "GpuRefStale"},
        "library": {"crash_at": at},
        "unrecoverable": {"refuse_at": at, "refuse_with": "Unrecoverable"},
    }
    return FaultyBackend(backend, once=once, **faults[kind])
