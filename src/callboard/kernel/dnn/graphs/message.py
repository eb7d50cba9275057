"""``Fused``: an operation graph as a message."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.op import Op, StructOutputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.checks import FLOATS, DataLayout, check_like
from callboard.kernel.dnn.graphs.nodes import KINDS, GraphNode, Shape, shape_of_node, text_of_node

__all__ = ["Fused", "GraphOutput", "layouts_of", "shapes_of"]


class GraphOutput(msgspec.Struct, frozen=True, array_like=True):
    """A value that is stored.

    Attributes:
        value: Number of the value, as in :attr:`GraphNode.inputs`; must be that of a node.
        dtype: The dtype of the stored array: f16, bf16, f32 or f64.
    """

    value: int
    dtype: str


class Fused(Op[CudnnActor, tuple[GpuRef, ...]], tag="dnn.fused"):
    """A graph of steps in one op (``OperationGraphSpec``); ``dev.dnn.fuse()`` describes one.

    Args:
        operands: f16, bf16, f32 or f64, any strides; each is taken by some node.
        nodes: The steps, each after those whose values it takes; every one leads to an output.
        outputs: Values to store, each once.
        outs: Arrays for them, in order; new ones when None.
        layout: Order of the axes of images and filters.
        tf32: f32 factors may be rounded to TF32 (10 bits of mantissa), if the device has it.
        deterministic: Equal calls give equal bits. The CPU always does.
        autotune: Time the engines of the library when a graph of this kind is first met, and keep the fastest.

    All nodes compute in f32, or in f64 if an operand is f64. Stored values are rounded once. A node's value that is a
    factor of a product is rounded to the dtype of the operands, if they have one. On CUDA the graph is a cuDNN graph.
    cuDNN has engines for a convolution or a matrix product with element-wise functions before and after it, for such
    functions alone, and for reductions and norms among them. ``UnsupportedOp`` names the first node for which there is
    no engine. cuDNN's functions such as tanh and exp are approximations, in f32 with errors of about 1e-5.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("outs",)

    operands: tuple[In, ...]
    nodes: tuple[GraphNode, ...]
    outputs: tuple[GraphOutput, ...]
    outs: tuple[Out, ...] | None = None
    layout: DataLayout = "NCHW"
    tf32: bool = False
    deterministic: bool = False
    autotune: bool = False

    @property
    def wide(self) -> DType:
        """The compute dtype of the nodes."""
        return DTYPES["f64" if any(x.dtype.name == "f64" for x in self.operands) else "f32"]

    @property
    def factors(self) -> DType:
        """The dtype that factors are rounded to: that of the operands if they share one, else the compute dtype."""
        dtypes = {x.dtype for x in self.operands}
        return dtypes.pop() if len(dtypes) == 1 else self.wide

    def infer(self) -> StructOutputs:
        names = ", ".join(d.name for d in FLOATS)
        for i, operand in enumerate(self.operands):
            if operand.dtype not in FLOATS:
                raise refuse(self, f"operands[{i}] is {operand.layout!r}; its dtype must be one of {names}")
        shapes, first = shapes_of(self), len(self.operands)
        self._check_use(first)
        made = []
        for i, (at, name) in enumerate((output.value, output.dtype) for output in self.outputs):
            if not first <= at < len(shapes):
                raise refuse(self, f"outputs[{i}] is value {at}; those of nodes are {first} to {len(shapes) - 1}")
            if DTYPES.get(name) not in FLOATS:
                raise refuse(self, f"outputs[{i}] has dtype {name!r}; it must be one of {names}")
            made.append(layout_of(DTYPES[name], shapes[at]))
        if self.outs is None:
            return {"outs": tuple(made)}
        if len(self.outs) != len(made):
            raise refuse(self, f"there are {len(self.outs)} outs for {len(made)} outputs; give one for each, or None")
        for i, (out, layout) in enumerate(zip(self.outs, made, strict=True)):
            check_like(self, f"outs[{i}]", out, layout.shape, "the shape of the value")
            if out.dtype is not layout.dtype:
                raise refuse(self, f"outs[{i}] is {out.layout!r}; its dtype must be that of the output: {layout.dtype}")
        return {"outs": tuple(made)}

    def _check_use(self, first: int) -> None:
        values = [output.value for output in self.outputs]
        if not values:
            raise refuse(self, "nothing is stored; output at least one value")
        if len(set(values)) != len(values):
            raise refuse(self, f"outputs are of the values {values}; each may be stored once")
        used = {i for node in self.nodes for i in node.inputs}
        for i in range(first):
            if i not in used:
                raise refuse(self, f"operands[{i}] is taken by no node; leave it out")
        for index, node in enumerate(self.nodes):
            if first + index not in used and first + index not in values:
                raise refuse(self, f"{text_of_node(node, index, first)} leads to no output; output it, or leave it out")


def layouts_of(op: Fused, shapes: Sequence[Shape]) -> list[Layout]:
    """Layouts of the outputs: given, or allocated by the host."""
    if op.outs is not None:
        return [out.layout for out in op.outs]
    return [layout_of(DTYPES[output.dtype], shapes[output.value]) for output in op.outputs]


def shapes_of(op: Fused) -> list[Shape]:
    """The shape of each value.

    Raises:
        ShapeError: The operands do not fit a node; names the node.
    """
    shapes, first = [operand.shape for operand in op.operands], len(op.operands)
    for index, node in enumerate(op.nodes):
        kind, text = KINDS.get(node.kind), text_of_node(node, index, first)
        if kind is None:
            raise refuse(op, f"{text}: there is no such kind; use one of {', '.join(KINDS)}")
        if len(node.inputs) != kind.inputs or any(not 0 <= i < first + index for i in node.inputs):
            raise refuse(op, f"{text}: it takes {kind.inputs} values from earlier nodes")
        try:
            shapes.append(shape_of_node(node, [shapes[i] for i in node.inputs], op.layout))
        except ShapeError as e:
            raise refuse(op, f"{text}: {e}") from None
    return shapes
