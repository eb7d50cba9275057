"""Operations of ``dev.event``.

An event is a point in the work of a device: it is recorded after ops, and reached when they are done. Two events
measure the device time between them. Another process can open an event, and make its own work wait for it.
"""

from callboard.kernel.event.actor import *
from callboard.kernel.event.handle import *
from callboard.kernel.event.messages import *
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
