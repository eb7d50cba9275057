"""Devices in a journal: their names of ops and arrays, and the log that records them."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from callboard.core.errors import ContextLost
from callboard.core.layout import OpenLayout
from callboard.core.ref import Allocation, GpuRef
from callboard.multi_device.replay.codec import contents_of, dtype_text
from callboard.multi_device.replay.entries import (
    Content,
    DeviceChosen,
    DeviceLost,
    DeviceOp,
    DeviceOpened,
    DeviceResult,
    encode,
)
from callboard.multi_device.replay.errors import JournalFailed
from callboard.multi_device.replay.plain import plain
from callboard.multi_device.replay.writer import JournalWriter

__all__ = ["DEVICES", "DeviceNames", "DeviceRecorder"]

DEVICES = "devices/"
KNOWN = 1 << 16
"""Hashes of recorded arrays that are kept, so that each array is recorded once."""

Array = np.ndarray[Any, Any]


class DeviceNames:
    """Numbers the ops of a device, and names its arrays by the ops that made them and wrote them last.

    Args:
        actor: ``devices/<n>``.
        redact: Called with each host array, and each argument and result of a resident actor; returns what to keep.
    """

    def __init__(self, actor: str, redact: Callable[[Any], Any] | None) -> None:
        self.actor = actor
        self._redact = redact
        self._count = itertools.count(1)
        self._others = itertools.count(1)
        self._made: WeakKeyDictionary[Allocation, str] = WeakKeyDictionary()
        self._written: WeakKeyDictionary[Allocation, int] = WeakKeyDictionary()
        self._open: WeakSet[Allocation] = WeakSet()

    def name(self, ref: GpuRef[Any]) -> str:
        """``op 3.out f32[2, 2]``; with the op that wrote it last, if that is another, and its device, likewise."""
        recorded = getattr(ref._port, "recorded", None)
        if recorded is not None and recorded.log is not self and isinstance(recorded.log, DeviceNames):
            return f"{recorded.log.actor} {recorded.log.name(ref)}"
        owner = ref.allocation
        made = self._made.get(owner)
        if made is None:
            made = self._made[owner] = f"op 0.{next(self._others)}"  # imported, or from a resident actor
        written = self._written.get(owner, 0)
        later = f", written by op {written}" if written and not made.startswith(f"op {written}.") else ""
        place = f" at {ref.offset}" if ref.offset else ""
        # When extents that depend on data become known is a matter of time.
        layout = "" if owner in self._open else f" {ref.layout!r}"
        return f"{made}{layout}{place}{later}"

    def numbered(self, outputs: Mapping[str, GpuRef[Any]]) -> int:
        """The number of a new op, which writes these arrays."""
        number = next(self._count)
        for name, ref in outputs.items():
            self._made.setdefault(ref.allocation, f"op {number}.{name}")
            self._written[ref.allocation] = number
            if isinstance(ref.layout, OpenLayout):
                self._open.add(ref.allocation)
        return number

    def plain(self, value: Any, array: Callable[[Array, str], object]) -> Any:
        """An argument or a result as plain data."""
        if self._redact is not None and not isinstance(value, GpuRef):
            value = self._redact(value)
        return plain(value, self.name, array)


class DeviceRecorder(DeviceNames):
    """The :class:`log <callboard.device.client.recorded.DeviceLog>` of a device that is recorded.

    Args:
        opened: The device.
        writer: Destination of the entries.
        known: Hashes of recorded arrays, shared by all devices.
        max_array_bytes: Larger arrays are recorded by hash, dtype and shape.
        result_bytes: Larger results of ops are recorded only when the application reads them.
        redact: See :class:`DeviceNames`.
    """

    def __init__(
        self,
        opened: DeviceOpened,
        writer: JournalWriter,
        known: dict[str, None],
        max_array_bytes: int,
        result_bytes: int,
        redact: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(opened.actor, redact)
        self._writer = writer
        self._known = known
        self._max_array_bytes = max_array_bytes
        self._result_bytes = result_bytes
        self._last = 0
        writer.put(encode(opened))

    def ready(self) -> None:
        self._writer.check()

    def called(self, op: str, arguments: Mapping[str, Any], outputs: Mapping[str, GpuRef[Any]]) -> int:
        given = {name: self.plain(value, self._keep) for name, value in arguments.items()}
        self._last = number = self.numbered(outputs)
        self._writer.put(encode(DeviceOp(self.actor, number, op, given, list(outputs))))
        return number

    def wants(self, number: int, name: str, nbytes: int | None) -> bool:
        return nbytes is not None and nbytes <= self._result_bytes

    def unread(self, number: int, name: str) -> None:
        """Results that are missing are counted by the replay."""

    def returned(self, number: int, name: str, value: Any) -> None:
        lost = isinstance(value, ContextLost)
        self._tell(lambda: DeviceResult(self.actor, number, name, self.plain(value, self._keep), lost))

    def chosen(self) -> None:
        self._writer.put(encode(DeviceChosen(self.actor)))

    def lost(self, error: BaseException) -> None:
        self._tell(lambda: DeviceLost(self.actor, self._last, f"{type(error).__name__}: {error}"))

    def closed(self) -> None:
        """Its last entries are written with those of the harness."""

    def _keep(self, array: Array, digest: str) -> None:
        if array.nbytes > self._max_array_bytes or digest in self._known:
            return
        if len(self._known) >= KNOWN:
            self._known.clear()
        self._known[digest] = None
        self._writer.put(encode(Content(digest, dtype_text(array.dtype), bytes(contents_of(array)))))

    def _tell(self, make: Callable[[], Any]) -> None:
        try:
            self._writer.put(encode(make()))
        except JournalFailed:  # the next op is refused with it
            return
