"""Operation graphs on a GPU: cuDNN's. Where it has no engine for one, the node that it does not take is found.

cuDNN 9.19 wants arrays of equally many axes: images with their channels after the batch; matrices with one axis of a
batch; for norms and reductions rows, as images of one pixel. Its reductions are sums and largest and smallest elements
of rows or columns, stored in f32.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.conv import settings, two_axes
from callboard.backends.cuda.dnn.frontend import Frontend, GraphBuilder, Planned
from callboard.core.dtype import DTYPES, DType, dtypes_of
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import Layout, layout_of
from callboard.core.library import plans
from callboard.core.op import info_of
from callboard.kernel.dnn.checks import DataLayout
from callboard.kernel.dnn.graphs.message import Fused, layouts_of, shapes_of
from callboard.kernel.dnn.graphs.nodes import KINDS, GraphNode, Shape, geometry_of_node, text_of_node
from callboard.kernel.dnn.layouts import channels_first

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["GraphPlan"]

LEAST_AXES = 3


class Placing:
    """The arrays of a graph, as described to cuDNN.

    Args:
        op: The message.
        shapes: Shapes of all values.

    Attributes:
        axes: Number of axes of every array, as described to cuDNN.
    """

    def __init__(self, op: Fused, shapes: Sequence[Shape]) -> None:
        families = {KINDS[node.kind].family for node in op.nodes}
        self._layout: DataLayout = op.layout
        self._most = max(LEAST_AXES, *(len(shape) for shape in shapes))
        self._images = "conv" in families
        self._kept = 0 if self._images else 2 if "matmul" in families else 1 if families & {"norm", "reduction"} else 0
        wide = [(1,) * (self._most - len(shape)) + shape for shape in shapes]
        self._outer = max((shape[: self._most - self._kept] for shape in wide), key=math.prod)
        self.axes = {0: max(self._most, 4) if self._images else self._most, 1: 4, 2: 3}[self._kept]

    def of(self, array: Layout, name: str) -> Layout:
        """An operand, a value or a result.

        Raises:
            UnsupportedOp: Its leading axes cannot be merged into one.
        """
        more = self._most - array.ndim
        outer = max(array.shape[0] * array.strides[0], 1) if array.ndim else 1
        whole = layout_of(array.dtype, (1,) * more + array.shape, (outer,) * more + array.strides)
        if self._images:
            return two_axes(channels_first(whole, self._layout))
        if not self._kept:
            return whole
        rows, pitch = self._joined(whole, name)
        shape, steps = whole.shape[-self._kept :], whole.strides[-self._kept :]
        if self._kept == 2:
            return layout_of(array.dtype, (rows, *shape), (pitch, *steps))
        ((columns,), (step,)) = shape, steps
        return layout_of(array.dtype, (rows, columns, 1, 1), (pitch, step, columns * step, columns * step))

    def _joined(self, array: Layout, name: str) -> tuple[int, int]:
        """The leading axes as one: its extent, and the step along it."""
        count = array.ndim - self._kept
        outer, steps = array.shape[:count], array.strides[:count]
        if math.prod(outer) != 1 and outer != self._outer:
            raise UnsupportedOp(
                f"cuda, dnn.fused: {name} is {array!r}; but for the last {self._kept} its axes must be 1, or all be "
                f"those of the largest value, {self._outer}"
            )
        rows, pitch = 1, array.strides[count] * array.shape[count]
        for n, step in reversed(list(zip(outer, steps, strict=True))):
            if n > 1 and rows > 1 and step != rows * pitch:
                raise UnsupportedOp(
                    f"cuda, dnn.fused: {name} is {array!r}; its rows do not follow each other (dev.copy)"
                )
            rows, pitch = rows * n, step if n > 1 and rows == 1 else pitch
        return rows, max(pitch, 1)


class Description:
    """Describes the first nodes of a graph, with their unread values as results.

    Args:
        op: The message.
        count: So many nodes; all when None, with the message's own results.

    Attributes:
        is_exact: Tensor cores round nothing: there are no products, or no factors of f32.
    """

    def __init__(self, op: Fused, count: int | None = None) -> None:
        self._op, self._shapes = op, shapes_of(op)
        self._first = len(op.operands)
        self._nodes = op.nodes if count is None else op.nodes[:count]
        self._placing = Placing(op, self._shapes)
        products = [node for node in self._nodes if KINDS[node.kind].family in ("matmul", "conv")]
        self._factors = {i for node in products for i in node.inputs}
        self.is_exact = not (products and any(x.dtype.name == "f32" for x in op.operands))
        if count is None:
            made = zip((output.value for output in op.outputs), layouts_of(op, self._shapes), strict=True)
            self._stored = dict(made)
        else:
            read = {i for node in self._nodes for i in node.inputs}
            ends = [at for at, node in enumerate(self._nodes, self._first) if at not in read and node.inputs]
            self._stored = {at: layout_of(_stored(op, at), self._shapes[at]) for at in ends}

    def __call__(self, g: GraphBuilder) -> None:
        op, placing = self._op, self._placing
        used = {i for node in self._nodes for i in node.inputs}
        values: list[Any] = [
            g.input(placing.of(x.layout, f"operands[{i}]")) if i in used else None for i, x in enumerate(op.operands)
        ]
        for at, node in enumerate(self._nodes, self._first):
            value = self._node(g, node, [values[i] for i in node.inputs])
            values.append(value)
            if node.kind != "constant" and at not in self._stored:
                g.virtual(value, op.factors if at in self._factors else op.wide)
                if KINDS[node.kind].family == "reduction":
                    layout = placing.of(layout_of(op.wide, self._shapes[at]), "a sum")
                    value.set_dim(list(layout.shape)).set_stride(list(layout.strides))
        for at, layout in self._stored.items():
            g.output(values[at], placing.of(layout, "a result"))

    def _node(self, g: GraphBuilder, node: GraphNode, given: list[Any]) -> Any:
        kind, raw = KINDS[node.kind], g.raw
        function = kind.function
        if kind.family == "constant":
            return g.scalar(node.number, self._placing.axes)
        if kind.family == "reduction":
            return self._reduction(g, node, given[0])
        if kind.family == "matmul":
            return raw.matmul(*given)
        if kind.family == "conv":
            x, w = (self._shapes[i] for i in node.inputs)
            return raw.conv_fprop(*given, **settings(geometry_of_node(node, x, w, self._op.layout)))
        if kind.family == "norm":
            names = ("input", "scale", "bias")
            phase = g.module.norm_forward_phase.INFERENCE
            return getattr(raw, function.node)(
                norm_forward_phase=phase, epsilon=g.scalar(node.number, 4), **dict(zip(names, given, strict=False))
            )[0]
        own = {function.parameter: node.number} if function.parameter else {}
        return getattr(raw, function.node)(*given, **own)

    def _reduction(self, g: GraphBuilder, node: GraphNode, value: Any) -> Any:
        """With the parts that cuDNN lacks executed first, in f32."""
        shape = self._shapes[node.inputs[0]]
        mode = KINDS[node.kind].function.node
        if node.kind == "mean":
            value = g.raw.mul(value, g.scalar(1 / math.prod(shape[a] for a in node.axes), self._placing.axes))
        elif node.kind == "norm1":
            value = g.raw.abs(value)
        if node.kind in ("mean", "norm1"):
            g.virtual(value, self._op.wide)
        return g.raw.reduction(value, mode=getattr(g.module.reduction_mode, mode))


def _stored(op: Fused, at: int) -> DType:
    """Return the dtype in which a value is stored, or would be."""
    names = [output.dtype for output in op.outputs if output.value == at]
    return DTYPES[names[0]] if names else op.wide


@plans(Fused, dtypes=dtypes_of("f16 bf16 f32"))
class GraphPlan:
    """A plan: ``plan(stream, operands, outs)``."""

    def __init__(self, library: "CudaDnn", op: Fused) -> None:
        self._plan: Planned | None = None
        if not any(layout.size for layout in layouts_of(op, shapes_of(op))):
            return
        frontend, key, whole = library.frontend, info_of(Fused).split(op).signature, Description(op)
        try:
            self._plan = frontend.plan(
                whole, key, "dnn.fused", compute=op.wide, tensor_cores=op.tf32 or whole.is_exact,
                deterministic=op.deterministic, autotune=op.autotune,
            )  # fmt: skip
        except UnsupportedOp as e:
            raise UnsupportedOp(_blame(frontend, op) or str(e)) from None

    def __call__(self, stream: "CudaStream", operands: Sequence[int], outs: Sequence[int]) -> None:
        if self._plan is not None:
            self._plan(stream, *operands, *outs)

    def close(self) -> None:
        """Free the workspace; no launch uses it any more."""
        if self._plan is not None:
            self._plan.close()


def _blame(frontend: Frontend, op: Fused) -> str | None:
    """Return the error for a graph without an engine: the first node that has none, and cuDNN's reason."""
    for count, node in enumerate(op.nodes, 1):
        part = Description(op, count if count < len(op.nodes) else None)
        tensor_cores = op.tf32 or part.is_exact
        why = None if node.kind == "constant" else frontend.why_not(part, "dnn.fused", op.wide, tensor_cores)
        if why is not None:
            break
    else:
        return None
    cure = "store what comes before it, and go on in another graph"
    if not tensor_cores and frontend.why_not(part, "dnn.fused", op.wide, tensor_cores=True) is None:
        cure = f"with tf32=True, which rounds factors, it has one; or {cure}"
    text = text_of_node(node, count - 1, len(op.operands))
    return f"cuda, dnn.fused: cuDNN has no engine for {text} together with the nodes before it: {why}; {cure}"
