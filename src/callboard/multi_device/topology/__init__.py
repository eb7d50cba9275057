"""Peer access between devices, and the links that it uses."""

from callboard.multi_device.topology.graph import P2pGraph
from callboard.multi_device.topology.topology import P2pTopology

__all__ = ["P2pGraph", "P2pTopology"]
