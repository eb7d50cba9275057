"""Operation graphs on the CPU: node by node, with NumPy, in the dtype in which the graph computes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.conv import computed
from callboard.backends.cpu.dnn.norms import moments, normalised
from callboard.backends.cpu.elementwise.mapped import MapPlan
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.library import plans
from callboard.kernel.dnn.graphs.message import Fused, layouts_of, shapes_of
from callboard.kernel.dnn.graphs.nodes import KINDS, GraphNode, Shape, expression_of, geometry_of_node

__all__ = ["fused"]

Array = np.ndarray[Any, Any]
Step = Callable[..., Array]
"""Function of the values that a node reads, row-major."""

REDUCED: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod,
    "amax": lambda x, **options: np.max(abs(x), initial=0, **options),
    "norm1": lambda x, **options: np.sum(abs(x), **options),
    "norm2": lambda x, **options: np.sqrt(np.sum(x * x, **options)),
}  # fmt: skip


def elements(node: GraphNode, given: Sequence[Shape], shape: Shape, wide: DType) -> Step:
    """A function of elements."""
    program = expression_of(node, wide)
    plan = MapPlan(program, shape, [layout_of(wide, own) for own in given], [layout_of(wide, shape)])

    def work(*arrays: Array) -> Array:
        out = np.empty(shape, wide.np)
        plan([array.ctypes.data for array in arrays], None, [out.ctypes.data])
        return out

    return work


def convolution(op: Fused, node: GraphNode, given: Sequence[Shape], wide: DType) -> Step:
    """A convolution in the layout of the graph."""
    work = computed("forward", geometry_of_node(node, given[0], given[1], op.layout), wide.np.type)
    if op.layout == "NCHW":
        return work
    return lambda x, w: np.moveaxis(work(np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 1)), 1, -1)


def norm(node: GraphNode) -> Step:
    """Over the last axis."""
    centred = node.kind == "layer_norm"

    def work(x: Array, scale: Array, bias: Array | None = None) -> Array:
        mean, variance = moments(x, (-1,), centred=centred)
        return normalised(x, mean, 1 / np.sqrt(variance + x.dtype.type(node.number)), scale, bias)

    return work


def reduction(node: GraphNode) -> Step:
    """Return the step of a reduction whose axes are kept."""
    reduced = REDUCED[node.kind]
    return lambda x: reduced(x, axis=node.axes, keepdims=True)


def step(op: Fused, node: GraphNode, given: Sequence[Shape], shape: Shape) -> Step:
    """The work of a node."""
    family, wide = KINDS[node.kind].family, op.wide
    if family in ("unary", "binary"):
        return elements(node, given, shape, wide)
    if family in ("conv", "matmul"):
        work = convolution(op, node, given, wide) if family == "conv" else np.matmul
        narrow, first = op.factors.np, len(op.operands)
        if narrow == wide.np or max(node.inputs) < first:
            return work
        return lambda a, b: work(a.astype(narrow).astype(wide.np), b.astype(narrow).astype(wide.np))
    if family == "constant":
        return lambda: np.array(node.number, wide.np)
    return norm(node) if family == "norm" else reduction(node)


@plans(Fused)
def fused(op: Fused) -> Callable[..., None]:
    """Called with ``(operands, outs)``."""
    shapes, first, wide = shapes_of(op), len(op.operands), op.wide.np
    views = [viewer(operand.layout) for operand in op.operands]
    layouts = layouts_of(op, shapes)
    results = [(viewer(layout), output.value) for layout, output in zip(layouts, op.outputs, strict=True)]
    steps = [
        (step(op, node, [shapes[i] for i in node.inputs], shapes[at]), node.inputs)
        for at, node in enumerate(op.nodes, first)
    ]
    last = {i: at for at, (_, inputs) in enumerate(steps) for i in inputs if i >= first}
    kept = {output.value for output in op.outputs}

    def work(operands: Sequence[int], outs: Sequence[int]) -> None:
        values: list[Any] = [np.ascontiguousarray(view(at), wide) for view, at in zip(views, operands, strict=True)]
        for at, (run, inputs) in enumerate(steps):
            values.append(np.ascontiguousarray(run(*(values[i] for i in inputs))))
            for i in inputs:
                if last.get(i) == at and i not in kept:
                    values[i] = None
        for (write, value), out in zip(results, outs, strict=True):
            write(out)[...] = values[value]

    return work
