"""``EpilogueVisitorTree``: the work on each element of a product before it is stored, as an expression."""

import math
from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError

__all__ = [
    "BINARY",
    "INPUTS",
    "QUANTIZED",
    "UNARY",
    "EpilogueNode",
    "EpilogueVisitorTree",
    "Per",
    "Reduction",
    "shown",
]

UNARY = ("relu", "gelu", "silu", "tanh", "sigmoid", "exp", "log", "erf", "sqrt", "abs", "negative")
"""Functions of one value. GELU is the tanh form."""
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
"""Functions of two values. A NaN wins in ``maximum`` and ``minimum``."""
INPUTS = ("matrix", "column", "row", "tensor")
"""Arrays of the call: of the result's shape; a number for each column, for each row, for all."""
QUANTIZED = ("i8", "f8_e4m3", "f8_e5m2")
"""Dtypes that a value can be rounded to."""
Per = Literal["column", "row", "tensor"]
Reduction = Literal["sum", "max", "min", "mean"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)


class EpilogueNode(msgspec.Struct, frozen=True, array_like=True):
    """A node of an epilogue.

    Attributes:
        kind: ``"accumulator"``, ``"number"``, ``"quantize"``, ``"reduce"``, or a word of :data:`UNARY`,
            :data:`BINARY` or :data:`INPUTS`.
        arguments: Positions of the nodes that it reads, all before it.
        name: Name of an input or of a reduction; the dtype of ``"quantize"``.
        how: For ``"reduce"``: the operation and the axis that stays, ``"sum column"``.
        value: Value of a number.
    """

    kind: str
    arguments: tuple[int, ...] = ()
    name: str = ""
    how: str = ""
    value: float = 0.0


Nodes = tuple[EpilogueNode, ...]


class EpilogueVisitorTree:
    """An epilogue: an immutable expression of ``alpha * a @ b + beta * c``, of numbers, and of arrays given by name.

    ``cb.EpilogueVisitorTree()`` is the product itself. Methods return the tree with one more node at the top; operators
    combine trees, which may share nodes::

        tree = cb.EpilogueVisitorTree().bias().gelu().residual()
        y = gpu.cutlass.gemm(x, w, epilogue=tree, bias=bias, residual=x)

    The arrays are given to the call under the names of the tree. All of it is computed in f32 (f64 in a product of
    f64), and rounded where ``quantize`` says and when the result is stored.
    """

    __slots__ = ("nodes",)

    def __init__(self, nodes: Iterable[EpilogueNode] = (EpilogueNode("accumulator"),)) -> None:
        self.nodes: Nodes = tuple(nodes)
        check_nodes(self.nodes)

    # -- leaves --------------------------------------------------------------------------------------------------------

    @classmethod
    def matrix(cls, name: str) -> "EpilogueVisitorTree":
        """An array of the result's shape."""
        return cls._input("matrix", name)

    @classmethod
    def column(cls, name: str) -> "EpilogueVisitorTree":
        """An array with a number for each column of the result: ``[n]``, or one such row for each matrix or group."""
        return cls._input("column", name)

    @classmethod
    def row(cls, name: str) -> "EpilogueVisitorTree":
        """An array with a number for each row of the result: its shape without the last axis."""
        return cls._input("row", name)

    @classmethod
    def tensor(cls, name: str) -> "EpilogueVisitorTree":
        """A 0-d array."""
        return cls._input("tensor", name)

    @classmethod
    def number(cls, value: float) -> "EpilogueVisitorTree":
        """A constant, which is part of the plan."""
        return cls((EpilogueNode("number", value=float(value)),))

    @classmethod
    def _input(cls, kind: str, name: str) -> "EpilogueVisitorTree":
        return cls((EpilogueNode(kind, name=name),))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def bias(self, name: str = "bias", per: Per = "column") -> "EpilogueVisitorTree":
        """Add an array with a number for each column or row, or for all."""
        return self._apply("add", self._input(_per(per), name))

    def residual(self, name: str = "residual") -> "EpilogueVisitorTree":
        """Add an array of the result's shape."""
        return self._apply("add", self.matrix(name))

    def gate(self, name: str = "gate", activation: str | None = None) -> "EpilogueVisitorTree":
        """Multiply by an array of the result's shape, to which the activation is applied first."""
        other = self.matrix(name)
        return self._apply("multiply", other if activation is None else other.apply(activation))

    def scale(self, by: "float | str" = "scale", per: Per = "tensor") -> "EpilogueVisitorTree":
        """Multiply by a constant, or by the array of this name: a number for each column or row, or for all."""
        other = self._input(_per(per), by) if isinstance(by, str) else self.number(by)
        return self._apply("multiply", other)

    def relu(self) -> "EpilogueVisitorTree":
        """``max(x, 0)``."""
        return self.apply("relu")

    def gelu(self, approximate: Literal["tanh", "none"] = "tanh") -> "EpilogueVisitorTree":
        """``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``; ``"none"``: ``x / 2 * (1 + erf(x / sqrt(2)))``.

        The latter is what ``dev.dnn.gelu`` and torch compute if nothing is said.
        """
        if approximate not in ("tanh", "none"):
            raise ShapeError(f"epilogue: approximate is {approximate!r}; use 'tanh' or 'none'")
        if approximate == "tanh":
            return self.apply("gelu")
        return self.scale(0.5) * (1 + self.scale(math.sqrt(0.5)).apply("erf"))

    def silu(self) -> "EpilogueVisitorTree":
        """``x / (1 + exp(-x))``."""
        return self.apply("silu")

    def tanh(self) -> "EpilogueVisitorTree":
        """Hyperbolic tangent."""
        return self.apply("tanh")

    def sigmoid(self) -> "EpilogueVisitorTree":
        """``1 / (1 + exp(-x))``."""
        return self.apply("sigmoid")

    def apply(self, function: str) -> "EpilogueVisitorTree":
        """A function of :data:`UNARY` by name."""
        if function not in UNARY:
            raise ShapeError(f"epilogue: {function!r} is no activation; use one of {', '.join(UNARY)}")
        return self._apply(function)

    def clamp(self, low: float, high: float) -> "EpilogueVisitorTree":
        """Limit to an interval; a NaN stays."""
        if not low <= high:
            raise ShapeError(f"epilogue: clamp({low}, {high}): low must not exceed high")
        return self._apply("maximum", self.number(low))._apply("minimum", self.number(high))

    def quantize(self, dtype: DTypeLike) -> "EpilogueVisitorTree":
        """Round to i8, f8_e4m3 or f8_e5m2: to nearest, ties to even; values beyond the range become its ends.

        At the top, it also sets the dtype of the result. Scale first.
        """
        return self._made(*self.nodes, EpilogueNode("quantize", (len(self.nodes) - 1,), as_dtype(dtype).name))

    def reduce(self, how: Reduction, per: Literal["column", "row"], name: str) -> "EpilogueVisitorTree":
        """Also return the sum, maximum, minimum or mean of this value for each column or row, as f32 (f64 beside f64).

        The value itself passes on unchanged.

        Args:
            how: The operation.
            per: The axis that stays: ``"column"`` gives one number for each column.
            name: Name of the additional result.
        """
        return self._made(*self.nodes, EpilogueNode("reduce", (len(self.nodes) - 1,), name, f"{how} {per}"))

    # -- operators -----------------------------------------------------------------------------------------------------

    def __add__(self, other: "EpilogueVisitorTree | float") -> "EpilogueVisitorTree":
        return self._apply("add", other)

    def __sub__(self, other: "EpilogueVisitorTree | float") -> "EpilogueVisitorTree":
        return self._apply("subtract", other)

    def __mul__(self, other: "EpilogueVisitorTree | float") -> "EpilogueVisitorTree":
        return self._apply("multiply", other)

    def __truediv__(self, other: "EpilogueVisitorTree | float") -> "EpilogueVisitorTree":
        return self._apply("divide", other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> "EpilogueVisitorTree":
        return self.number(other)._apply("subtract", self)

    def __rtruediv__(self, other: float) -> "EpilogueVisitorTree":
        return self.number(other)._apply("divide", self)

    def __neg__(self) -> "EpilogueVisitorTree":
        return self._apply("negative")

    def maximum(self, other: "EpilogueVisitorTree | float") -> "EpilogueVisitorTree":
        """The larger of two values."""
        return self._apply("maximum", other)

    def minimum(self, other: "EpilogueVisitorTree | float") -> "EpilogueVisitorTree":
        """The smaller of two values."""
        return self._apply("minimum", other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpilogueVisitorTree) and self.nodes == other.nodes

    def __hash__(self) -> int:
        return hash(self.nodes)

    def __repr__(self) -> str:
        return f"<EpilogueVisitorTree {'; '.join(shown(self.nodes, at) for at in range(len(self.nodes)))}>"

    def _apply(self, kind: str, other: "EpilogueVisitorTree | float | None" = None) -> "EpilogueVisitorTree":
        """A node on top of this tree and, for two arguments, another one; equal nodes are kept once."""
        nodes = list(self.nodes)
        at = len(nodes) - 1
        if other is None:
            return self._made(*nodes, EpilogueNode(kind, (at,)))
        if not isinstance(other, EpilogueVisitorTree):
            other = self.number(other)
        places: list[int] = []
        for node in other.nodes:
            moved = msgspec.structs.replace(node, arguments=tuple(places[one] for one in node.arguments))
            if moved not in nodes:
                nodes.append(moved)
            places.append(nodes.index(moved))
        return self._made(*nodes, EpilogueNode(kind, (at, places[-1])))

    @classmethod
    def _made(cls, *nodes: EpilogueNode) -> "EpilogueVisitorTree":
        return cls(nodes)


def shown(nodes: Nodes, at: int) -> str:
    """A node for errors: ``"%3 = add(%1, %2)"``."""
    node = nodes[at]
    parts = [f"%{one}" for one in node.arguments]
    parts += [repr(node.name)] * bool(node.name) + [node.how] * bool(node.how)
    parts += [repr(node.value)] * (node.kind == "number")
    return f"%{at} = {node.kind}({', '.join(parts)})"


def check_nodes(nodes: Nodes) -> None:
    """Check what does not depend on a call.

    Raises:
        ShapeError: A node is not right; names it.
    """
    kinds: dict[str, str] = {}
    for at, node in enumerate(nodes):
        why = _why_not(node, at)
        if not why and node.kind in (*INPUTS, "reduce"):
            is_new = node.name not in kinds
            same = node.kind != "reduce" and kinds.get(node.name) == node.kind
            why = "" if is_new or same else f"{node.name!r} is already the name of a {kinds[node.name]}; take another"
            kinds[node.name] = node.kind
        if why:
            raise ShapeError(f"epilogue, node {shown(nodes, at)}: {why}")
    if not nodes:
        raise ShapeError("epilogue: it has no node; EpilogueVisitorTree() is the product itself")


def _why_not(node: EpilogueNode, at: int) -> str:
    wanted = 1 if node.kind in (*UNARY, "quantize", "reduce") else 2 if node.kind in BINARY else 0
    if node.kind not in (*UNARY, *BINARY, *INPUTS, "accumulator", "number", "quantize", "reduce"):
        return "no such node"
    if len(node.arguments) != wanted or not all(0 <= one < at for one in node.arguments):
        return f"it must read {wanted} nodes before it"
    if node.kind in (*INPUTS, "reduce") and not node.name.isidentifier():
        return f"the name {node.name!r} is no Python identifier"
    if node.kind in INPUTS and node.name in RESERVED:
        return f"{node.name!r} is a parameter of the call; take another name"
    if node.kind == "number" and math.isnan(node.value):
        return "the number is NaN"
    if node.kind == "quantize" and node.name not in QUANTIZED:
        return f"a value is rounded to one of {', '.join(QUANTIZED)}; out_dtype sets other dtypes of the result"
    how, _, per = node.how.partition(" ")
    if node.kind == "reduce" and (how not in REDUCTIONS or per not in ("column", "row")):
        return f"it reduces by one of {', '.join(REDUCTIONS)}, for each 'column' or 'row'"
    return ""


def _per(per: Any) -> str:
    if per not in get_args(Per):
        raise ShapeError(f"epilogue: per is {per!r}; use one of {', '.join(get_args(Per))}")
    return str(per)


RESERVED = frozenset(
    {
        *("self", "a", "b", "c", "out", "offsets", "epilogue", "alpha", "beta", "out_dtype", "accum", "engine"),
        *("scale_a", "scale_b", "tf32"),
        *("layout", "stride", "padding", "dilation", "kind", "extent"),
    }
)
"""Names that the methods of ``dev.cutlass`` have for other things."""
