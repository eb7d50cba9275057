"""The interface of a backend: the operations that an accelerator has to implement.

A backend is found by entry point. It enumerates devices without initialising them, and opens one inside a context host,
on the host's admitting thread. From then on, that thread makes every call of this interface, except
:meth:`AccelDevice.probe` and prepares, which may run on the host's helper thread.

Every backend is asynchronous: ``launch``, ``record`` and ``wait`` return before the work is done, and only ``query``,
``synchronize`` and ``probe`` report results. Errors are those of :mod:`callboard.core.errors`; no vendor exception
leaves a backend.
"""

from callboard.actors.loops.bell import Bell
from callboard.actors.loops.threads import Threads
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
    "Bell",
    "DeviceInfo",
    "Memory",
    "Readback",
    "Replayed",
    "Status",
    "Threads",
    "UserEvent",
]
