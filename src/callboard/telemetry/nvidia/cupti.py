"""``CuptiSession``: kernels, copies and API calls of a CUDA device, as CUPTI records them, with their ops."""

import contextlib
from collections.abc import Collection
from types import TracebackType
from typing import Any, Self

import msgspec

from callboard.core.errors import ContextLost, UnsupportedOp
from callboard.device.client.handle import Device
from callboard.device.host.profiling.activity import KINDS
from callboard.events.kinds import ACTIVITY
from callboard.events.ring import EVENTS, now

__all__ = ["BACKENDS", "ActivityRecord", "CuptiSession", "Drained"]

BACKENDS = {"cuda"}
DEFAULT = "kernel", "memcpy", "memset"
PART = 4096
"""Records of one answer of the host."""
ANSWER = 30.0
"""Seconds for a request: CUPTI may have to be loaded."""


class ActivityRecord(msgspec.Struct, array_like=True, frozen=True):
    """What CUPTI recorded.

    Attributes:
        kind: ``"kernel"``, ``"memcpy"``, ``"memset"``, ``"runtime"`` or ``"driver"``.
        name: Mangled name of the kernel, kind of the copy (``"htod"``), or name of the API call.
        op: Id of the op that caused it, as in records of ``dev.trace``; 0: none, such as a call of a resident actor.
        tag: ``"<library>.<op>"``; empty if there is none.
        start: When it began, in seconds of ``time.monotonic()`` of the device's machine.
        seconds: How long it took.
        stream: CUPTI's number of the stream; 0 for API calls.
        nbytes: Bytes that were copied or set.
    """

    kind: str
    name: str
    op: int
    tag: str
    start: float
    seconds: float
    stream: int
    nbytes: int


class Drained(msgspec.Struct, frozen=True):
    """What :meth:`CuptiSession.drain` returns.

    Attributes:
        records: Finished records.
        dropped: Records that were dropped because more than 65,536 waited.
        losses: Contexts that were lost since the last call; their records that were not drained are lost with them.
    """

    records: list[ActivityRecord]
    dropped: int = 0
    losses: int = 0


class CuptiSession:
    """Records a device with CUPTI, in its context host, also in later contexts. One session for a device at a time.

    No other profiler can use CUPTI in that process meanwhile. Resident actors with processes of their own are not
    recorded. What is drained is also written to the trace files of the application (``perfetto="app.pftrace"``).

    ::

        async with CuptiSession(gpu) as session:
            await gpu.blas.gemm(a, b)
            for record in (await session.drain()).records:
                print(record.tag, record.name, record.seconds)

    Args:
        device: A CUDA device.

    Raises:
        UnsupportedOp: It is of another backend.
    """

    def __init__(self, device: Device) -> None:
        if device.backend not in BACKENDS:
            raise UnsupportedOp(f"CUPTI records CUDA devices; {device.name} is of the backend {device.backend!r}")
        self._device = device
        self._settings = device._actor.settings
        self._losses = 0

    async def start(self, kinds: Collection[str] = DEFAULT) -> None:
        """Begin to record.

        Args:
            kinds: ``"kernel"``, ``"memcpy"``, ``"memset"``, ``"runtime"``, ``"driver"``.

        Raises:
            ValueError: One of them is unknown, or there is none.
            BackendUnavailable: ``cupti-python`` is not installed where the context lives.
            UnsupportedOp: Another session or profiler uses CUPTI in the host.
        """
        unknown = sorted(set(kinds) - KINDS.keys())
        if unknown or not kinds:
            what = f"unknown {unknown[0]!r}" if unknown else "nothing to record"
            raise ValueError(f"kinds: {what}; choose of {', '.join(KINDS)}")
        if self._settings.has("cupti-start"):
            raise UnsupportedOp(f"{self._device.name} is recorded by a CuptiSession already: stop that first")
        wanted = sorted(set(kinds))
        self._losses = self._device._port.losses
        self._settings.set("cupti-start", wanted)
        self._note([])
        try:
            await self._device._answers.ask("cupti-start", wanted, timeout=ANSWER)
        except BaseException:  # also cancelled: later contexts are not to begin
            self._settings.forget("cupti-start")
            raise

    async def drain(self) -> Drained:
        """Take the finished records. Await the ops before, if their records are to be among them.

        Raises:
            AskTimeout, DeviceStopped: The host does not answer.
        """
        records: list[ActivityRecord] = []
        dropped = 0
        while True:
            try:
                part, more = await self._device._answers.ask(
                    "cupti-drain", PART, timeout=ANSWER, type=tuple[list[ActivityRecord], int]
                )
            except ContextLost:  # counted below
                continue
            records += part
            dropped += more
            if len(part) < PART:
                break
        before, self._losses = self._losses, self._device._port.losses
        if records:
            self._note([msgspec.structs.astuple(record) for record in records])
        return Drained(records, dropped, self._losses - before)

    def _note(self, records: list[tuple[Any, ...]]) -> None:
        ring = EVENTS.ring
        if ring is not None:
            ring.append((next(ring.numbers), now(), ACTIVITY, self._device.name, records))

    async def stop(self) -> Drained:
        """Record no more; returns the records that were not drained. Await the ops before, as for :meth:`drain`."""
        if not self._settings.has("cupti-start"):
            return Drained([])
        self._settings.forget("cupti-start")
        if self._device.stopped:
            return Drained([], 0, self._device._port.losses - self._losses)
        with contextlib.suppress(ContextLost):  # the next context is not told to begin
            await self._device._answers.ask("cupti-stop", timeout=ANSWER)
        return await self.drain()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
