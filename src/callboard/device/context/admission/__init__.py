"""Admission: what becomes of the calls that a context host is sent."""

from callboard.device.context.admission.admission import Admission

__all__ = ["Admission"]
