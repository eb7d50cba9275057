"""Devices of other machines, placed by the engine of a cluster.

The package of an engine is an extra, and is imported when it is first used.
"""

from callboard.multi_device.machines.engine import ClusterNode, NodeTls, PlacementFailed

__all__ = ["ClusterNode", "NodeTls", "PlacementFailed"]
