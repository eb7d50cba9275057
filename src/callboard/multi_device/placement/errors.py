"""Errors of placement."""

from collections.abc import Mapping

from callboard.core.errors import AccelError
from callboard.multi_device.placement.hints import PlacementHints

__all__ = ["NoEligibleDevice"]


class NoEligibleDevice(AccelError):
    """No device can take a piece of work. Wait until a choice is released, ask for less, or add a device.

    Attributes:
        hints: Requirements of the work.
        reasons: The reason why not, by the id of each device.
    """

    def __init__(self, hints: PlacementHints, reasons: Mapping[str, str], text: str = "") -> None:
        self.hints = hints
        self.reasons = dict(reasons)
        why = "; ".join(f"{device}: {reason}" for device, reason in self.reasons.items())
        super().__init__(text or f"no device can take {said(hints)}: {why or 'there are no devices'}")


def said(hints: PlacementHints) -> str:
    """The needs that are not the default's."""
    fields = [name for name in PlacementHints.__slots__ if getattr(hints, name) != getattr(PlacementHints(), name)]
    return ", ".join(f"{name} = {getattr(hints, name)!r}" for name in fields) or "any work"
