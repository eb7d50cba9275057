"""Operation graphs: several steps that a backend executes as one, described by ``dev.dnn.fuse()``."""

from callboard.kernel.dnn.graphs.builder import Fusion, GraphValue
from callboard.kernel.dnn.graphs.message import Fused, GraphOutput
from callboard.kernel.dnn.graphs.nodes import GraphNode

__all__ = ["Fused", "Fusion", "GraphNode", "GraphOutput", "GraphValue"]
