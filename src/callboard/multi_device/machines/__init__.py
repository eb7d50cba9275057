"""Devices of other machines, placed by a cluster's own engine. An engine's package is an extra, imported lazily."""

from callboard.multi_device.machines.engine import ClusterNode, NodeTls, PlacementFailed

__all__ = ["ClusterNode", "NodeTls", "PlacementFailed"]
