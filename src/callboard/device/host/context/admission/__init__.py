"""Admission: the path of a call in a context host, from its arrival to its launch."""

from callboard.device.host.context.admission.admission import Admission
from callboard.device.host.context.admission.arenas import Arenas

__all__ = ["Admission", "Arenas"]
