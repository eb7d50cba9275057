"""The integers that inputs of a model may hold, where a table that they index is known when the plan is built."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from callboard.kernel.engine.inputs.refused import InputRefused
from callboard.kernel.engine.onnxfile import ELEMENTS, Graph, Node

__all__ = ["Bounds", "bounds_of"]

Array = np.ndarray[Any, Any]
SAME = {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators whose output has all elements of their first input, unchanged."""
INTEGERS = {"i8", "i16", "i32", "i64", "u8", "u16", "u32"}
"""Dtypes whose values all are `i64`."""
INDEXED = {"Gather", "GatherElements"}
"""Operators whose second input indexes one axis of the first."""


@dataclass(frozen=True)
class Bounds:
    """The smallest and largest integer of an input, and why.

    Attributes:
        least: The smallest.
        most: The largest.
        why: The node, and the table that it reads.
    """

    least: int
    most: int
    why: str

    def check(self, title: str, name: str, array: Array) -> None:
        """Check a host array.

        Raises:
            InputRefused: It holds another integer; names input, place, value and range.
        """
        if not array.size or (self.least <= array.min() and array.max() <= self.most):
            return
        outside = (array < self.least) | (array > self.most)
        place = [int(n) for n in np.argwhere(outside)[0]]
        raise InputRefused(
            f"{title}: input {name!r} holds {array[tuple(place)]} at {place}, and {int(outside.sum())} of "
            f"{array.size} values are outside of {self.least} to {self.most}: {self.why}; pass values in that range"
        )


def bounds_of(graph: Graph) -> dict[str, Bounds]:
    """Bounds of a graph's integer inputs that are indices of initializers, by name.

    Inputs are followed through nodes that move their elements. Nodes whose results are not used bound nothing, and
    neither do those in branches and loops, which may not be executed.
    """
    used = _used(graph)
    inputs = {each.name for each in graph.inputs if each.dtype in INTEGERS}
    comes_from = {name: name for name in inputs}
    found: dict[str, Bounds] = {}
    for at, node in enumerate(graph.nodes):
        if node.domain not in ("", "ai.onnx") or not used.intersection(node.outputs):
            continue
        if _moves(node) and node.inputs and node.inputs[0] in comes_from:
            comes_from[node.outputs[0]] = comes_from[node.inputs[0]]
        elif node.op in INDEXED and len(node.inputs) == 2 and node.inputs[1] in comes_from:
            table = graph.initializers.get(node.inputs[0])
            axis = node.attributes.get("axis", 0)
            if table is None or not -table.ndim <= axis < table.ndim:
                continue
            extent = table.shape[axis]
            why = f"node {at} {node.op} reads axis {axis} of {node.inputs[0]!r}, whose extent is {extent}"
            name = comes_from[node.inputs[1]]
            if name not in found or extent <= found[name].most:
                found[name] = Bounds(-extent, extent - 1, why)
    return found


def _used(graph: Graph) -> set[str]:
    """The values that the outputs are computed of."""
    makers: Mapping[str, Node] = {name: node for node in graph.nodes for name in node.outputs}
    found: set[str] = set()
    open_ = [port.name for port in graph.outputs]
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += makers[name].inputs if name in makers else ()
    return found


def _moves(node: Node) -> bool:
    """Whether it keeps each value: a cast does only to the widest integers."""
    return node.op in SAME or (node.op == "Cast" and ELEMENTS.get(node.attributes.get("to", 0)) == "i64")
