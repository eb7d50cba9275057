"""``Found``: extents of outputs that a model does not declare, known from an earlier execution with the same shapes."""

import threading
from collections.abc import Collection, Hashable, Sequence
from typing import Any

from callboard.core.layout import OpenLayout
from callboard.kernel.engine.onnxfile import Graph, Model, Node

__all__ = ["Found", "follow"]

MOST_KNOWN = 256
MOST_HELD = 16
"""Sets of shapes whose outputs are held until their extents are known, which the caller finds out by awaiting one."""

NAMES = (
    "Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization BitShift "
    "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Concat Conv ConvInteger ConvTranspose Cos "
    "Cosh CumSum DepthToSpace DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp EyeLike "
    "Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater "
    "GreaterOrEqual GridSample GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf "
    "IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul "
    "MatMulInteger Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg Not Or PRelu Pow QLinearConv "
    "QLinearMatMul QuantizeLinear RMSNormalization RNN Reciprocal Relu RotaryEmbedding Round ScatterElements ScatterND "
    "Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign SpaceToDepth Sqrt Sub Sum Tan Tanh ThresholdedRelu "
    "Transpose Trilu Where Xor"
)
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
BY_VALUE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(NAMES.split(), ()),
    **{f"Reduce{name}": (1,) for name in REDUCTIONS},
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
}
"""Operators whose outputs have shapes that follow from the shapes of their inputs, and from the values of these."""
OF_SHAPES = ("Constant", "Shape", "Size")


def follow(model: Model, replaced: Collection[str] = ()) -> bool:
    """True if the shapes of all values in the model follow from those of the inputs, whatever values these have.

    So does the time of an execution, then.
    False where that cannot be told: of operators that are not in the list above, of functions, and where a shape is
    computed from values of an input.

    Args:
        model: The model.
        replaced: Names of weights that executions may be given others for.
    """
    graph = model.graph
    known = {"", *graph.initializers}.difference(replaced)
    return not model.functions and all(_follows(node, known) for node in graph.nodes)


def _follows(node: Node, known: set[str]) -> bool:
    """Whether the shapes of its outputs do; adds its outputs to what is known if their values follow, too."""
    if any(isinstance(each, Graph) for each in node.attributes.values()):
        return False
    if node.title in OF_SHAPES:
        known.update(node.outputs)
        return True
    read = BY_VALUE.get(node.title)
    if read is None or any(at < len(node.inputs) and node.inputs[at] not in known for at in read):
        return False
    if known.issuperset(node.inputs):
        known.update(node.outputs)
    return True


class Found:
    """Shapes of outputs, by what was executed.

    Args:
        follows: The shapes in the model :func:`follow`; else nothing is kept.
    """

    def __init__(self, follows: bool) -> None:
        self._follows = follows
        self._known: dict[Hashable, tuple[tuple[int, ...], ...]] = {}
        self._held: dict[Hashable, Sequence[Any]] = {}
        self._lock = threading.Lock()  # several threads may call one context

    def shapes(self, key: Hashable) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of all outputs; None if they are not known."""
        with self._lock:
            known = self._known.get(key)
            if known is None and key in self._held:
                layouts = [ref.layout for ref in self._held[key]]
                if not any(isinstance(layout, OpenLayout) for layout in layouts):
                    if len(self._known) >= MOST_KNOWN:
                        self._known.clear()
                    known = self._known[key] = tuple(layout.shape for layout in layouts)
                    del self._held[key]
            return known

    def keep(self, key: Hashable, outs: Sequence[Any]) -> None:
        """The refs of an execution, for which :meth:`shapes` gave none."""
        if self._follows and any(isinstance(ref.layout, OpenLayout) for ref in outs):
            with self._lock:
                self._held.pop(key, None)
                while len(self._held) >= MOST_HELD:
                    del self._held[next(iter(self._held))]
                self._held[key] = outs
