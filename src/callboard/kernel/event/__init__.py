"""Operations of ``dev.event``.

An event is a point in the work of a device: it is recorded after ops, and reached when they are done. Two events
measure the device time between them. Another process can open an event, and make its own work wait for it.
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
