"""A node as it is executed, and graphs inside of nodes."""

from collections import ChainMap
from collections.abc import Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import numpy as np

from callboard.core.errors import AccelError, ShapeError, UnsupportedOp
from callboard.kernel.engine.inputs.budget import Walk
from callboard.kernel.engine.inputs.refused import InputRefused
from callboard.kernel.engine.mapped.tools import HostOnly, Operator, ResultTooLarge, Tools, Value, operator_of
from callboard.kernel.engine.onnxfile import Graph, Node, OnnxError

__all__ = ["Step", "call", "check_names", "execute", "graphs_of", "lasting", "names_read", "step_of"]


MOST_AXES = 32
"""Of an array, as NumPy's loops take them."""
NO_NAMES: frozenset[str] = frozenset()


class Step(msgspec.Struct, gc=False):  # thousands, which collections of garbage would go through
    """A node that is executed, and the values that are not needed after it."""

    title: str
    operator: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    captured: frozenset[str] = NO_NAMES
    """Names of values that graphs in the attributes read."""
    drops: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    """Inputs of the model that it is computed of."""
    op: str = ""
    """The operator, with its domain."""
    parts: tuple["Step", ...] = ()
    """Of several nodes: those, for values that its function does not take; it gives None for them."""


def step_of(node: Node, at: int, title: str) -> Step:
    """The step of a node.

    Args:
        node: Of an operator that is mapped.
        at: Its number in the graph.
        title: Name of the model, or of the node that the graph belongs to.
    """
    captured: set[str] = set()
    for graph in graphs_of(node):
        captured |= names_read(graph)
    operator = operator_of(node.title)
    assert operator is not None, "checked when the plan is built"
    return Step(
        _name(node, at, title),
        operator,
        node.inputs,
        node.outputs,
        node.attributes,
        frozenset(captured) or NO_NAMES,
        op=node.title,
    )


def _name(node: Node, at: int, title: str) -> str:
    """The name of a node in errors."""
    return f"{title}: node {at} {node.op}{f' ({node.name})' if node.name else ''}"


def call(tools: Tools, step: Step, values: Mapping[str, Any]) -> Walk[Sequence[Any]]:
    """The outputs of a step, which pauses between the nodes of graphs inside of it.

    Raises:
        ResultTooLarge: An output would have too many elements, or this process has no memory for it.
        InputRefused: It has no result for these values or shapes; names the node.
        UnsupportedOp: It is not mapped as it is; names the node. Errors of plugins are their own.
    """
    tools.title, tools.outputs, tools.scope = step.title, len(step.outputs), values
    inputs = [tools.placed(values[name]) if name else None for name in step.inputs]
    while inputs and inputs[-1] is None:
        inputs.pop()
    if step.parts:
        joined = _joined(tools, step, inputs)
        return joined if joined is not None else (yield from _apart(tools, step, values))
    try:
        with np.errstate(all="ignore"):  # on the host as on the device: quotients by 0 have results, and no warning
            found = step.operator.function(tools, *inputs, **step.attributes)
        if isinstance(found, Generator):
            found = yield from found
    except (HostOnly, UnsupportedOp, ResultTooLarge, InputRefused):
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError, MemoryError, RuntimeError) as e:
        if step.operator.is_plugin:
            e.add_note(f"in {step.title}")
            raise
        if isinstance(e, AccelError) and not isinstance(e, ShapeError):
            raise
        kind = ResultTooLarge if isinstance(e, MemoryError) else InputRefused
        raise kind(f"{step.title}: {e}") from e
    found = found if isinstance(found, tuple | list) else (found,)
    if (axes := max((value.ndim for value in found), default=0)) > MOST_AXES:
        raise tools.misfit(f"a result has {axes} axes, at most {MOST_AXES} are mapped")
    return found


def _joined(tools: Tools, step: Step, inputs: Sequence[Any]) -> Sequence[Any] | None:
    """The outputs of several nodes by one op; None if there is none for these values."""
    try:
        found = step.operator.function(tools, *inputs, **step.attributes)
    except (ShapeError, UnsupportedOp):  # one of the nodes names what is wrong, or can be computed where the op cannot
        return None
    return found if found is None or isinstance(found, list) else [found]


def _apart(tools: Tools, step: Step, values: Mapping[str, Any]) -> Walk[Sequence[Any]]:
    """The outputs of several nodes, one after the other."""
    made: dict[str, Any] = {}
    around: ChainMap[str, Any] = ChainMap(made, values)  # type: ignore[arg-type]
    for at, part in enumerate(step.parts):
        found = yield from call(tools, part, around)
        made.update(zip(part.outputs, found, strict=False))
        needed = {name for later in step.parts[at + 1 :] for name in later.inputs}.union(step.outputs)
        for name in made.keys() - needed:
            del made[name]
        yield
    return [made[name] for name in step.outputs]


def execute(tools: Tools, graph: Graph, inputs: Sequence[Value]) -> Walk[list[Value]]:
    """The outputs of a graph inside of a node, which reads the values around it; pauses after each node."""
    title = tools.title
    values: ChainMap[str, Any] = ChainMap(dict(graph.initializers), tools.scope)  # type: ignore[arg-type]
    values.update(zip((port.name for port in graph.inputs), inputs, strict=True))
    for at, node in enumerate(graph.nodes):
        found = yield from call(tools, step_of(node, at, title), values)
        values.update(zip(node.outputs, found, strict=False))
        yield
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


def check_names(graph: Graph, title: str, around: tuple[AbstractSet[str], ...] = ()) -> None:
    """Check that each value is there before a node reads it.

    Args:
        graph: The graph.
        title: Name of the model, or of the node that the graph belongs to.
        around: Names of the values around the graph, of each graph that it is in.

    Raises:
        OnnxError: One is made nowhere, or only by a later node, as in a graph with a cycle; names node and value.
    """
    known = {*graph.initializers, *(port.name for port in graph.inputs), ""}
    makers = {name: f"node {at} {node.op}" for at, node in enumerate(graph.nodes) for name in node.outputs}
    for at, node in enumerate(graph.nodes):
        what = _name(node, at, title)
        for name in node.inputs:
            if name in known or any(name in each for each in around):
                continue
            if name in makers:
                raise OnnxError(
                    f"{what} reads {name!r}, which {makers[name]} makes: there is a cycle, or nodes are not in order"
                )
            raise OnnxError(f"{what} reads {name!r}, which no input, initializer or node is named")
        for inner in graphs_of(node):
            check_names(inner, what, (known, *around))
        known.update(node.outputs)
    for port in graph.outputs:
        if port.name not in known and not any(port.name in each for each in around):
            raise OnnxError(f"{title}: the output {port.name!r} is made by no node")


def lasting(nodes: Sequence[Node]) -> Iterator["np.ndarray[Any, Any]"]:
    """The arrays in graphs inside of nodes: they are the same in each execution."""
    for node in nodes:
        for graph in graphs_of(node):
            yield from graph.initializers.values()
            for inner in graph.nodes:
                yield from (each for each in inner.attributes.values() if isinstance(each, np.ndarray))
            yield from lasting(graph.nodes)
