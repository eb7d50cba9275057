"""Admission: what becomes of the calls that a context host is sent."""

from callboard.device.host.context.admission.admission import Admission
from callboard.device.host.context.admission.arenas import Arenas

__all__ = ["Admission", "Arenas"]
