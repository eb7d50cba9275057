"""``Alarms``: the thread that waits for a GPU's errors (Xid) and for what the GPU needs to recover from them."""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from callboard.telemetry.nvidia.reading import Gpu, Gpus

__all__ = ["Alarm", "Alarms"]

log = logging.getLogger("callboard.telemetry")

XID = 0x8
EVENTS = {
    XID: "xid",
    0x1000: "non_fatal_poison",
    0x2000: "fatal_poison",
    0x4000: "gpu_unavailable",
    0x8000: "recovery_action",
}
"""``nvmlEventType…``: those that are waited for, where the GPU and the driver have them."""

WAIT = 200
"""Milliseconds that the thread waits for the driver at a time: then it looks whether it is to end."""
END = 5.0
"""Seconds that the end waits for the thread, whose driver may hang."""

XIDS = {
    13: "a kernel has failed",
    31: "a kernel has accessed invalid memory",
    43: "the work of a context was stopped",
    45: "the contexts of a process were torn down",
    48: "memory has an error that cannot be corrected",
    62: "the GPU's internal processor has stopped",
    63: "a row of memory is remapped",
    64: "a row of memory could not be remapped",
    74: "NVLink has failed",
    79: "the GPU has fallen off the bus",
    92: "memory has had many corrected errors",
    94: "a memory error ended one application",
    95: "a memory error may have reached all applications",
    109: "a context could not be switched",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor has failed",
    140: "memory has an error that cannot be corrected",
    143: "the GPU could not be initialised",
    154: "the GPU needs to be recovered",
}
"""What the usual Xids mean (NVIDIA, "XID Errors")."""

FATAL = frozenset({62, 79, 95, 119, 120, 143})
"""Xids after which no context of the GPU can be used. Others are of one process, which may be another application's."""


class Alarm(NamedTuple):
    """An event of a GPU.

    Attributes:
        gpu: The GPU; None if NVML does not say.
        kind: ``"xid"``, ``"recovery_action"``, ``"gpu_unavailable"``, ``"fatal_poison"``, ``"non_fatal_poison"`` or
            ``"lost"``.
        code: Number of the Xid, otherwise the event's data.
        text: What it means.
        fatal: No context of the GPU can be used any more; False: perhaps one has died.
        uuids: The GPU and its MIG devices.
    """

    gpu: Gpu | None
    kind: str
    code: int
    text: str
    fatal: bool
    uuids: tuple[str, ...]


class Alarms:
    """Waits for events on a thread of its own.

    Args:
        gpus: The GPUs.
        on_alarm: Called on that thread.

    Attributes:
        watched: GPUs that tell of errors.
    """

    def __init__(self, gpus: Gpus, on_alarm: Callable[[Alarm], None]) -> None:
        self._gpus = gpus
        self._nvml = gpus.nvml
        self._on_alarm = on_alarm
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.watched: list[Gpu] = []

    def start(self) -> None:
        """Begin, if there is a GPU that tells of errors."""
        events = self._registered(self._gpus.gpus)
        if events is not None:
            self._thread = threading.Thread(target=self._run, args=(events,), name="callboard-nvml-events", daemon=True)
            self._thread.start()

    def _registered(self, gpus: list[Gpu]) -> Any:
        """A set of the events of these GPUs; None if they have none."""
        try:
            events = self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError as e:
            log.info("no Xid events: %s", e)
            return None
        self.watched = [gpu for gpu in gpus if self._register(gpu, events)]
        if self.watched:
            return events
        self._free(events)
        return None

    def _free(self, events: Any) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlEventSetFree(events)

    def _register(self, gpu: Gpu, events: Any) -> bool:
        try:
            supported = self._nvml.nvmlDeviceGetSupportedEventTypes(gpu.handle)
            wanted = sum(kind for kind in EVENTS if kind & supported)
            if wanted:
                self._nvml.nvmlDeviceRegisterEvents(gpu.handle, wanted, events)
        except self._nvml.NVMLError as e:
            log.info("GPU %s tells of no Xid events: %s", gpu.uuid, e)
            return False
        return bool(wanted)

    def _run(self, events: Any) -> None:
        try:
            while events is not None and not self._ended.is_set():
                try:
                    self._alarm(self._nvml.nvmlEventSetWait_v2(events, WAIT))
                except self._nvml.NVMLError_Timeout:
                    continue
                except self._nvml.NVMLError_GpuIsLost:
                    self._free(events)
                    events = self._registered(self._answering())
        except self._nvml.NVMLError as e:
            log.warning("no more Xid events: %s", e)
        finally:
            if events is not None:
                self._free(events)

    def _answering(self) -> list[Gpu]:
        """The GPUs without the lost one: NVML does not say which that is, and waits for none of its set any more."""
        lost = {figures.index for figures in self._gpus.read() if figures.lost}
        for gpu in self.watched:
            if gpu.number in lost:
                self._on_alarm(Alarm(gpu, "lost", 0, "the GPU does not answer", True, self._uuids(gpu)))
        self._ended.wait(WAIT / 1000)  # not a loop without a pause if none of them seems to be lost
        return [gpu for gpu in self.watched if gpu.number not in lost]

    def _alarm(self, event: Any) -> None:
        gpu = self._gpu(event.device)
        kind = next((name for bit, name in EVENTS.items() if event.eventType & bit), "")
        code, fatal = int(event.eventData), kind == "gpu_unavailable"
        text = kind.replace("_", " ")
        if kind == "xid":
            text = f"Xid {code}" + (f": {XIDS[code]}" if code in XIDS else "")
            fatal = code in FATAL
        elif kind == "recovery_action" and gpu is not None:
            text = f"recovery action: {self._gpus.recovery_action(gpu) or code}"
        self._on_alarm(Alarm(gpu, kind, code, text, fatal, () if gpu is None else self._uuids(gpu)))

    def _uuids(self, gpu: Gpu) -> tuple[str, ...]:
        with contextlib.suppress(self._nvml.NVMLError):
            return gpu.uuid, *self._gpus.mig_devices(gpu)
        return (gpu.uuid,)

    def _gpu(self, handle: Any) -> Gpu | None:
        """The GPU of an event, whose handle need not be the same object."""
        with contextlib.suppress(self._nvml.NVMLError):
            uuid = self._nvml.nvmlDeviceGetUUID(handle)
            uuid = uuid.decode() if isinstance(uuid, bytes) else uuid
            return next((gpu for gpu in self._gpus.gpus if gpu.uuid == uuid), None)
        return next((gpu for gpu in self._gpus.gpus if gpu.handle == handle), None)

    def close(self) -> bool:
        """End the thread, and wait for it a few seconds at most; False: it hangs in the driver."""
        self._ended.set()
        if self._thread is None:
            return True
        self._thread.join(END)
        return not self._thread.is_alive()
