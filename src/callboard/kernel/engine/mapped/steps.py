"""A node as it is executed, and graphs inside of nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from callboard.core.errors import UnsupportedOp
from callboard.kernel.engine.mapped.tools import HostOnly, Operator, Tools, Value, operator_of
from callboard.kernel.engine.onnxfile import Graph, Node

__all__ = ["Step", "call", "execute", "graphs_of", "lasting", "names_read", "step_of"]


@dataclass
class Step:
    """A node that is executed, and the values that are not needed after it."""

    title: str
    operator: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    captured: frozenset[str] = frozenset()
    """Names of values that graphs in the attributes read."""
    drops: tuple[str, ...] = ()


def step_of(node: Node, at: int, title: str) -> Step:
    """The step of a node.

    Args:
        node: Of an operator that is mapped.
        at: Its number in the graph.
        title: Name of the model, or of the node that the graph belongs to.
    """
    name = f"{title}: node {at} {node.op}{f' ({node.name})' if node.name else ''}"
    captured: set[str] = set()
    for graph in graphs_of(node):
        captured |= names_read(graph)
    operator = operator_of(node.title)
    assert operator is not None, "checked when the plan is built"
    return Step(name, operator, node.inputs, node.outputs, node.attributes, frozenset(captured))


def call(tools: Tools, step: Step, values: Mapping[str, Any]) -> Sequence[Any]:
    """The outputs of a step.

    Raises:
        UnsupportedOp: It cannot be executed with these values; names the node. Errors of plugins are their own.
    """
    tools.title, tools.outputs, tools.scope = step.title, len(step.outputs), values
    inputs = [values[name] if name else None for name in step.inputs]
    while inputs and inputs[-1] is None:
        inputs.pop()
    try:
        found = step.operator.function(tools, *inputs, **step.attributes)
    except (HostOnly, UnsupportedOp):
        raise
    except (TypeError, ValueError, IndexError, NotImplementedError) as e:
        if step.operator.is_plugin:
            e.add_note(f"in {step.title}")
            raise
        raise UnsupportedOp(f"{step.title}: {e}") from e
    return found if isinstance(found, tuple | list) else (found,)


def execute(tools: Tools, graph: Graph, inputs: Sequence[Value]) -> list[Value]:
    """The outputs of a graph inside of a node, which reads the values around it."""
    title = tools.title
    values = {**tools.scope, **graph.initializers}
    values.update(zip((port.name for port in graph.inputs), inputs, strict=True))
    for at, node in enumerate(graph.nodes):
        values.update(zip(node.outputs, call(tools, step_of(node, at, title), values), strict=False))
    return [values[port.name] for port in graph.outputs]


def graphs_of(node: Node) -> list[Graph]:
    """The graphs in the attributes of a node."""
    return [each for each in node.attributes.values() if isinstance(each, Graph)]


def names_read(graph: Graph) -> set[str]:
    """Names of values around a graph that it reads."""
    own = {port.name for port in graph.inputs} | set(graph.initializers) | {""}
    found = {port.name for port in graph.outputs}
    for node in graph.nodes:
        found.update(node.inputs)
        for inner in graphs_of(node):
            found |= names_read(inner)
    made = {name for node in graph.nodes for name in node.outputs}
    return found - own - made


def lasting(nodes: Sequence[Node]) -> Iterator["np.ndarray[Any, Any]"]:
    """The arrays in graphs inside of nodes: they are the same in each execution."""
    for node in nodes:
        for graph in graphs_of(node):
            yield from graph.initializers.values()
            for inner in graph.nodes:
                yield from (each for each in inner.attributes.values() if isinstance(each, np.ndarray))
            yield from lasting(graph.nodes)
