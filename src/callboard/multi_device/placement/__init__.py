"""Placement of work on devices: policies, reservations, gangs."""

from callboard.multi_device.placement.actor import DeviceChoice, PlacementActor
from callboard.multi_device.placement.book import Explanation
from callboard.multi_device.placement.errors import NoEligibleDevice
from callboard.multi_device.placement.hints import Candidate, PlacementHints
from callboard.multi_device.placement.policies import PlacementPolicy

__all__ = [
    "Candidate",
    "DeviceChoice",
    "Explanation",
    "NoEligibleDevice",
    "PlacementActor",
    "PlacementHints",
    "PlacementPolicy",
]
