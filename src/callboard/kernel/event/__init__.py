"""Operations of ``dev.event``.

An event is a point in the work of a device: recorded after ops, reached when they are done. Two of them measure the
device's time between them; another process can open one and have its own work wait for it.
"""

from callboard.kernel.event.actor import EventActor
from callboard.kernel.event.handle import DeviceTime, Event
from callboard.kernel.event.messages import Destroy, Elapsed, GetIpcHandle, IpcEventHandle, OpenIpcHandle, Record, Wait

__all__ = [
    "Destroy",
    "DeviceTime",
    "Elapsed",
    "Event",
    "EventActor",
    "GetIpcHandle",
    "IpcEventHandle",
    "OpenIpcHandle",
    "Record",
    "Wait",
]
