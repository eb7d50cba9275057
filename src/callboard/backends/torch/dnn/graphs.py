"""The plan of an operation graph: node by node."""

from collections.abc import Sequence
from typing import Any

from callboard.backends.torch.dnn.images import forward
from callboard.backends.torch.dnn.norms import moments, normalised
from callboard.backends.torch.dnn.support import channels_first, channels_last
from callboard.backends.torch.elementwise.machine import Machine
from callboard.backends.torch.library import Compute, Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, held_as, torch
from callboard.core.library import plans
from callboard.kernel.dnn.graphs.message import Fused, shapes_of
from callboard.kernel.dnn.graphs.nodes import KINDS, GraphNode, Shape, expression_of, geometry_of_node

__all__ = ["fused"]


def _product(x: Tensor, axes: Sequence[int]) -> Tensor:
    for axis in axes:
        x = x.prod(axis, keepdim=True)
    return x


REDUCED: dict[str, Any] = {
    "sum": lambda x, axes: x.sum(axes, keepdim=True),
    "mean": lambda x, axes: x.mean(axes, keepdim=True),
    "max": lambda x, axes: x.amax(axes, keepdim=True),
    "min": lambda x, axes: x.amin(axes, keepdim=True),
    "prod": _product,
    "amax": lambda x, axes: x.abs().amax(axes, keepdim=True),
    "norm1": lambda x, axes: x.abs().sum(axes, keepdim=True),
    "norm2": lambda x, axes: (x * x).sum(axes, keepdim=True).sqrt(),
}


def _step(library: TorchLibrary, op: Fused, node: GraphNode, given: Sequence[Shape]) -> Compute:
    """The work of a node on wide values."""
    family, wide = KINDS[node.kind].family, held_as(op.wide)
    if family in ("unary", "binary"):
        machine = Machine(expression_of(node, op.wide), library.where)
        return lambda *values: machine(values, ())[0]
    if family == "constant":
        return lambda: torch.tensor(node.number, dtype=wide, device=library.where)
    if family == "reduction":
        return lambda x: REDUCED[node.kind](x, node.axes)
    if family == "norm":
        return lambda x, *parameters: _norm(node, x, *parameters)
    narrow = held_as(op.factors) if max(node.inputs) >= len(op.operands) else wide

    def product(a: Tensor, b: Tensor) -> Tensor:
        a, b = a.to(narrow).to(wide), b.to(narrow).to(wide)
        if family == "matmul":
            return a @ b
        a, b = channels_first(a, op.layout), channels_first(b, op.layout)
        return channels_last(forward(a, b, geometry_of_node(node, given[0], given[1], op.layout)), op.layout)

    return product


def _norm(node: GraphNode, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    mean, variance = moments(x, (-1,), node.kind == "layer_norm")
    return normalised(x, mean, 1 / torch.sqrt(variance + node.number), scale, bias)


@plans(Fused)
def fused(library: TorchLibrary, op: Fused) -> Plan:
    """Return the values that are stored."""
    shapes, wide = shapes_of(op), held_as(op.wide)
    steps = [(_step(library, op, node, [shapes[i] for i in node.inputs]), node.inputs) for node in op.nodes]

    def work(operands: Sequence[Tensor]) -> Any:
        values = [x.to(wide) for x in operands]
        for run, inputs in steps:
            values.append(run(*(values[i] for i in inputs)))
        return ([values[output.value] for output in op.outputs],)

    return library.planned(op, work)
