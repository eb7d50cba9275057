"""Admission: the handling of calls sent to a context host."""

from callboard.device.host.context.admission.admission import Admission
from callboard.device.host.context.admission.arenas import Arenas

__all__ = ["Admission", "Arenas"]
