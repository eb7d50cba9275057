"""Regions that several applications share: one table of owners, leases, and calls from one application to another."""

from callboard.multi_device.sharding.shared.ledger import Closing, Fences, Granted, Ledger
from callboard.multi_device.sharding.shared.regions import Regions

__all__ = ["Closing", "Fences", "Granted", "Ledger", "Regions"]
