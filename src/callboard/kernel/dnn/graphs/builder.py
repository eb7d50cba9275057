"""``dev.dnn.fuse()``: describes a graph of steps, which is submitted as one op at the end of the block."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.operand import Operand
from callboard.core.ref import GpuRef
from callboard.kernel.api import Submit
from callboard.kernel.dnn.checks import Extents, Padding
from callboard.kernel.dnn.graphs.message import Fused, GraphOutput
from callboard.kernel.dnn.graphs.nodes import KINDS, GraphNode, Shape, shape_of_node

__all__ = ["Fusion", "GraphValue"]


class GraphValue:
    """A value of a graph; no array of it is stored unless it is output. It is added, multiplied … like an array.

    Attributes:
        shape: Shape of the value.
    """

    __slots__ = ("_at", "_graph", "shape")

    def __init__(self, graph: "Fusion[Any]", at: int, shape: Shape) -> None:
        self._graph, self._at, self.shape = graph, at, shape

    def __repr__(self) -> str:
        return f"GraphValue(node {self._at}, shape {self.shape})"

    def __add__(self, other: "Value") -> "GraphValue":
        return self._graph.add(self, other)

    def __sub__(self, other: "Value") -> "GraphValue":
        return self._graph.sub(self, other)

    def __rsub__(self, other: "Value") -> "GraphValue":
        return self._graph.sub(other, self)

    def __mul__(self, other: "Value") -> "GraphValue":
        return self._graph.mul(self, other)

    def __truediv__(self, other: "Value") -> "GraphValue":
        return self._graph.div(self, other)

    def __rtruediv__(self, other: "Value") -> "GraphValue":
        return self._graph.div(other, self)

    def __matmul__(self, other: "ArrayValue") -> "GraphValue":
        return self._graph.matmul(self, other)

    def __neg__(self) -> "GraphValue":
        return self._graph.neg(self)

    __radd__ = __add__
    __rmul__ = __mul__


ArrayValue = GraphValue | GpuRef[Any]
Value = ArrayValue | float
Unary = Callable[[ArrayValue], GraphValue]
Binary = Callable[[Value, Value], GraphValue]
Reduction = Callable[[ArrayValue, int | Sequence[int]], GraphValue]


class _Unary:
    """A method for each function of one value, by its name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._kind = name

    def __get__(self, graph: "Fusion[Any]", owner: type) -> Unary:
        return lambda x: graph.node(self._kind, x)


class _Binary(_Unary):
    """Likewise for two values, which are broadcast as in NumPy."""

    def __get__(self, graph: "Fusion[Any]", owner: type) -> Binary:  # type: ignore[override]
        return lambda x, y: graph.node(self._kind, x, y)


class _Reduction(_Unary):
    """Likewise for a value and its axes, which are kept with extent 1."""

    def __get__(self, graph: "Fusion[Any]", owner: type) -> Reduction:  # type: ignore[override]
        return lambda x, axes: graph.reduce(self._kind, x, axes)


class Fusion(Generic[Mode]):
    """A graph under construction. Its methods add nodes, whose values are inputs of later ones.

    ::

        with dev.dnn.fuse() as f:
            y = f.relu(f.conv(x, w, padding=1) + bias)
            f.output(y)
        out = f.result

    A method takes values of the graph, arrays of the device and, of two values, numbers. ``sum``, ``mean``, ``max``,
    ``min``, ``prod``, ``amax`` (the largest magnitude), ``norm1`` and ``norm2`` take axes, which stay with extent 1.
    The graph is submitted as one op when the block ends without an exception.

    Raises:
        ShapeError: At the call of the method that does not fit; names the node.
        UnsupportedOp: From the result: the backend has no engine for the graph; names the node and the reason.
    """

    relu, gelu, gelu_tanh, sigmoid, tanh, elu, softplus = (_Unary() for _ in range(7))
    identity, abs, neg, exp, log, sqrt, rsqrt, reciprocal, sin, cos, erf = (_Unary() for _ in range(11))
    add, sub, mul, div, minimum, maximum = (_Binary() for _ in range(6))
    sum, mean, max, min, prod, amax, norm1, norm2 = (_Reduction() for _ in range(8))

    def __init__(self, submit: Submit, settings: dict[str, Any]) -> None:
        self._submit, self._settings = submit, settings
        self._operands: list[GpuRef[Any]] = []
        self._nodes: list[tuple[str, list[GraphValue | int], dict[str, Any]]] = []  # an int names an operand
        self._outputs: list[tuple[GraphValue, str, GpuRef[Any] | None]] = []
        self._answer: tuple[GpuRef[Mode], ...] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._answer = self._submit(self.message())

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def leaky_relu(self, x: "ArrayValue", slope: float = 0.01) -> GraphValue:
        """``x``, or ``slope * x`` below 0."""
        return self.node("leaky_relu", x, number=float(slope))

    def swish(self, x: "ArrayValue", beta: float = 1.0) -> GraphValue:
        """``x * sigmoid(beta * x)``; with 1 it is SiLU."""
        return self.node("swish", x, number=float(beta))

    def matmul(self, a: "ArrayValue", b: "ArrayValue") -> GraphValue:
        """``a @ b`` of ``(..., m, k)`` and ``(..., k, n)``."""
        return self.node("matmul", a, b)

    def conv(
        self,
        x: "ArrayValue",
        w: "ArrayValue",
        *,
        stride: Extents = 1,
        padding: Padding = 0,
        dilation: Extents = 1,
        groups: int = 1,
    ) -> GraphValue:
        """A convolution in the layout of the graph; settings as of :class:`~callboard.kernel.dnn.conv.Conv`."""
        return self.node("conv", x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)

    def layer_norm(
        self, x: "ArrayValue", scale: GpuRef[Any], bias: GpuRef[Any], *, epsilon: float = 1e-5
    ) -> GraphValue:
        """Over the last axis: ``(x - mean) / sqrt(variance + epsilon) * scale + bias``."""
        return self.node("layer_norm", x, scale, bias, number=float(epsilon))

    def rms_norm(self, x: "ArrayValue", scale: GpuRef[Any], *, epsilon: float = 1e-5) -> GraphValue:
        """Over the last axis: ``x / sqrt(mean(x ** 2) + epsilon) * scale``."""
        return self.node("rms_norm", x, scale, number=float(epsilon))

    def reduce(self, kind: str, x: "ArrayValue", axes: int | Sequence[int]) -> GraphValue:
        """A reduction by its name; negative axes count from the last, and reduced axes are kept with extent 1."""
        numbers = (axes,) if isinstance(axes, int) else tuple(axes)
        return self.node(kind, x, axes=tuple(a + len(x.shape) if a < 0 else a for a in numbers))

    def node(self, kind: str, *given: "Value", **settings: Any) -> GraphValue:
        """Add a node by its kind; called by the other methods.

        Raises:
            ShapeError: The operands do not fit the node.
            TypeError: A value is of another graph, or no value.
        """
        for one in given:
            self._check(kind, one)
        shapes = [() if isinstance(one, int | float) else tuple(one.shape) for one in given]
        try:
            shape = shape_of_node(GraphNode(kind, (), **settings), shapes, self._settings["layout"])
        except ShapeError as e:
            raise ShapeError(f"dnn.fuse: node {len(self._nodes)} ({kind}): {e}") from None
        self._nodes.append((kind, [self._taken(one) for one in given], settings))
        return GraphValue(self, len(self._nodes) - 1, shape)

    def output(self, value: GraphValue, dtype: DTypeLike | None = None, *, out: GpuRef[Mode] | None = None) -> None:
        """Have a value stored.

        Args:
            value: Value of a node.
            dtype: f16, bf16, f32 or f64; that of ``out``, or of the graph's first operand, when None.
            out: The array to store it in; a new one when None. Given for all outputs or for none.
        """
        given: Any = value
        if not isinstance(given, GraphValue) or given._graph is not self:
            raise TypeError(f"value is {value!r}; pass a value that a method of this graph returned")
        if dtype is not None:
            name = as_dtype(dtype).name
        else:
            name = "" if out is None else out.dtype.name
        self._outputs.append((value, name, out))

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    def results(self) -> tuple[GpuRef[Mode], ...]:
        """The arrays of all outputs, in order, once the block has ended."""
        if self._answer is None:
            raise RuntimeError("the graph has not been submitted; read its results after the with block")
        return self._answer

    @property
    def result(self) -> GpuRef[Mode]:
        """The array of the only output."""
        if len(self.results) != 1:
            raise RuntimeError(f"the graph has {len(self.results)} outputs; read results")
        return self.results[0]

    def message(self) -> Fused:
        """The graph as a message.

        Raises:
            ShapeError: An array is given for some outputs only.
        """
        outs = [out for _, _, out in self._outputs if out is not None]
        if outs and len(outs) != len(self._outputs):
            raise ShapeError("dnn.fuse: out is given for some outputs; give it for all or for none")
        count = len(self._operands)
        first = self._operands[0].dtype.name if count else "f32"
        return Fused(
            operands=tuple(self._operands),
            nodes=tuple(
                GraphNode(kind, tuple(i if isinstance(i, int) else count + i._at for i in inputs), **settings)
                for kind, inputs, settings in self._nodes
            ),
            outputs=tuple(GraphOutput(count + value._at, name or first) for value, name, _ in self._outputs),
            outs=tuple(outs) if outs else None,
            **self._settings,
        )

    def _check(self, kind: str, one: Any) -> None:
        if isinstance(one, GraphValue):
            if one._graph is not self:
                raise TypeError(f"dnn.fuse: {kind}: {one!r} is of another graph")
        elif not isinstance(one, Operand) and not (isinstance(one, int | float) and KINDS[kind].family == "binary"):
            raise TypeError(f"dnn.fuse: {kind}: {one!r} is neither a value of this graph nor an array of the device")

    def _taken(self, one: Any) -> GraphValue | int:
        if isinstance(one, GraphValue):
            return one
        if isinstance(one, int | float):
            return self._constant(float(one))
        for i, known in enumerate(self._operands):
            if known is one:
                return i
        self._operands.append(one)
        return len(self._operands) - 1

    def _constant(self, number: float) -> GraphValue:
        self._nodes.append(("constant", [], {"number": number}))
        return GraphValue(self, len(self._nodes) - 1, ())
