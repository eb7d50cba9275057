"""The backend boundary: the operations that an accelerator has to implement.

A backend is found by entry point, enumerates devices without touching them, and opens one inside a context host, on the
host's one admitting thread. From then on that thread makes every call here, except :meth:`AccelDevice.probe` and
prepares, which may run on the host's helper thread.

Asynchrony is real on every backend: ``launch``, ``record`` and ``wait`` return before the work is done; only ``query``,
``synchronize`` and ``probe`` look at results. Errors are of :mod:`callboard.core.errors`; no vendor exception leaves a
backend.
"""

from callboard.core.backend.backend import AccelBackend
from callboard.core.backend.device import AccelDevice, DeviceInfo
from callboard.core.backend.events import AccelEvent, UserEvent
from callboard.core.backend.graphs import AccelGraph, Replayed
from callboard.core.backend.memory import Memory, Readback
from callboard.core.backend.status import Status
from callboard.core.backend.streams import AccelStream

__all__ = [
    "AccelBackend",
    "AccelDevice",
    "AccelEvent",
    "AccelGraph",
    "AccelStream",
    "DeviceInfo",
    "Memory",
    "Readback",
    "Replayed",
    "Status",
    "UserEvent",
]
