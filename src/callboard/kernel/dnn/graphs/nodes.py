"""The nodes of operation graphs: kinds, inputs, and the shapes of their values."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.dnn.activations import ACTIVATIONS
from callboard.kernel.dnn.checks import DataLayout, Extents, Padding
from callboard.kernel.dnn.conv import Conv, Geometry, geometry_of
from callboard.kernel.elementwise.program import Program, compiled

__all__ = [
    "KINDS",
    "Function",
    "GraphNode",
    "Kind",
    "Shape",
    "expression_of",
    "geometry_of_node",
    "shape_of_node",
    "text_of_node",
]

Shape = tuple[int, ...]


class GraphNode(msgspec.Struct, frozen=True, array_like=True):
    """A step of a graph.

    Attributes:
        kind: Key of :data:`KINDS`.
        inputs: Numbers of the values that it takes: operands first, then nodes, each in order.
        number: A constant; the parameter of an activation; epsilon of a norm.
        axes: Axes of a reduction, counted from the front.
        stride, padding, dilation, groups: Parameters of a convolution.
    """

    kind: str
    inputs: tuple[int, ...]
    number: float = 0.0
    axes: tuple[int, ...] = ()
    stride: Extents = 1
    padding: Padding = 0
    dilation: Extents = 1
    groups: int = 1


class Function(NamedTuple):
    """A function of elements.

    Attributes:
        text: Expression of ``x`` and ``y`` (:mod:`callboard.kernel.elementwise`); empty for a function of
            :data:`callboard.kernel.dnn.activations.ACTIVATIONS`.
        node: The method of cuDNN's frontend.
        parameter: The keyword of its number; empty if it has none.
    """

    text: str
    node: str
    parameter: str = ""


class Kind(NamedTuple):
    """Properties of a kind of node.

    Attributes:
        family: ``"unary"``, ``"binary"``, ``"reduction"``, ``"norm"``, ``"constant"``, ``"matmul"`` or ``"conv"``.
        inputs: The number of values it takes.
        function: The function of a unary or binary node; for a reduction, ``node`` is the name of cuDNN's mode.
    """

    family: str
    inputs: int
    function: Function = Function("", "")


_UNARY = {
    "relu": Function("", "relu"),
    "leaky_relu": Function("", "leaky_relu", "negative_slope"),
    "elu": Function("", "elu"),
    "gelu": Function("", "gelu"),
    "gelu_tanh": Function("", "gelu_approx_tanh"),
    "sigmoid": Function("", "sigmoid"),
    "tanh": Function("", "tanh"),
    "swish": Function("", "swish", "swish_beta"),
    "softplus": Function("", "softplus"),
    "identity": Function("x", "identity"),
    "abs": Function("abs(x)", "abs"),
    "neg": Function("-x", "neg"),
    "exp": Function("exp(x)", "exp"),
    "log": Function("log(x)", "log"),
    "sqrt": Function("sqrt(x)", "sqrt"),
    "rsqrt": Function("rsqrt(x)", "rsqrt"),
    "reciprocal": Function("1 / x", "reciprocal"),
    "sin": Function("sin(x)", "sin"),
    "cos": Function("cos(x)", "cos"),
    "erf": Function("erf(x)", "erf"),
}
_BINARY = {
    "add": Function("x + y", "add"),
    "sub": Function("x - y", "sub"),
    "mul": Function("x * y", "mul"),
    "div": Function("x / y", "div"),
    "minimum": Function("minimum(x, y)", "min"),
    "maximum": Function("maximum(x, y)", "max"),
}
_REDUCTIONS = {
    "sum": "ADD", "mean": "ADD", "max": "MAX", "min": "MIN", "prod": "MUL", "amax": "AMAX", "norm1": "ADD",
    "norm2": "NORM2",
}  # fmt: skip

KINDS: Mapping[str, Kind] = {
    **{name: Kind("unary", 1, function) for name, function in _UNARY.items()},
    **{name: Kind("binary", 2, function) for name, function in _BINARY.items()},
    **{name: Kind("reduction", 1, Function("", mode)) for name, mode in _REDUCTIONS.items()},
    "constant": Kind("constant", 0),
    "matmul": Kind("matmul", 2),
    "conv": Kind("conv", 2),
    "layer_norm": Kind("norm", 3, Function("", "layernorm")),
    "rms_norm": Kind("norm", 2, Function("", "rmsnorm")),
}
"""Every kind of node."""


def text_of_node(node: GraphNode, index: int, operands: int) -> str:
    """The name of a node in errors: its index among the nodes, given the number of operands."""
    taken = (f"operand {i}" if i < operands else f"node {i - operands}" for i in node.inputs)
    return f"node {index} ({node.kind} of {', '.join(taken) or 'nothing'})"


def geometry_of_node(node: GraphNode, x: Shape, w: Shape, layout: DataLayout) -> Geometry:
    """The convolution that a node is.

    Raises:
        ShapeError: Image, filter and settings do not fit.
    """
    image, filters = (Placeholder(layout_of(DTYPES["f32"], shape)) for shape in (x, w))
    try:
        return geometry_of(
            Conv(
                x=image, w=filters, stride=node.stride, padding=node.padding, dilation=node.dilation,
                groups=node.groups, layout=layout,
            )
        )  # fmt: skip
    except ShapeError as e:
        raise ShapeError(str(e).removeprefix("dnn.conv: ")) from None


def shape_of_node(node: GraphNode, given: Sequence[Shape], layout: DataLayout) -> Shape:
    """The shape of the value that a node gives.

    Raises:
        ShapeError: The operands do not fit the node.
    """
    return _SHAPES[KINDS[node.kind].family](node, given, layout)


def _broadcast(one: Shape, other: Shape) -> Shape:
    ndim = max(len(one), len(other))
    found = []
    for a, b in zip(*((1,) * (ndim - len(shape)) + shape for shape in (one, other)), strict=True):
        if a != b and 1 not in (a, b):
            raise ShapeError(f"shapes {one} and {other} cannot be broadcast together")
        found.append(b if a == 1 else a)
    return tuple(found)


def _reduced(node: GraphNode, given: Sequence[Shape], layout: DataLayout) -> Shape:
    (x,), axes = given, node.axes
    if not axes or len(set(axes)) != len(axes) or any(not 0 <= a < len(x) for a in axes):
        raise ShapeError(f"axes are {axes}; the value has shape {x}: name some of its axes, each once")
    if 0 in x and node.kind in ("max", "min", "amax", "mean"):
        raise ShapeError(f"{node.kind} of a value of shape {x}, which has no elements")
    return tuple(1 if i in axes else n for i, n in enumerate(x))


def _matmul(node: GraphNode, given: Sequence[Shape], layout: DataLayout) -> Shape:
    a, b = given
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise ShapeError(f"shapes {a} and {b}; a product is of (..., m, k) and (..., k, n)")
    return (*_broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def _conv(node: GraphNode, given: Sequence[Shape], layout: DataLayout) -> Shape:
    result = geometry_of_node(node, given[0], given[1], layout).result
    batch, channels, spatial = result
    return (batch, channels, *spatial) if layout == "NCHW" else (batch, *spatial, channels)


def _norm(node: GraphNode, given: Sequence[Shape], layout: DataLayout) -> Shape:
    x, *parameters = given
    if not x or any(shape != x[-1:] for shape in parameters):
        raise ShapeError(
            f"a value of shape {x} with parameters of shapes {', '.join(map(str, parameters))}; these must have "
            f"that of its last axis, {x[-1:]}"
        )
    if not node.number > 0:
        raise ShapeError(f"epsilon is {node.number}; it must be > 0")
    return x


_SHAPES: dict[str, Callable[[GraphNode, Sequence[Shape], DataLayout], Shape]] = {
    "unary": lambda node, given, layout: given[0],
    "binary": lambda node, given, layout: _broadcast(given[0], given[1]),
    "constant": lambda node, given, layout: (),
    "reduction": _reduced,
    "matmul": _matmul,
    "conv": _conv,
    "norm": _norm,
}


def expression_of(node: GraphNode, wide: DType) -> Program:
    """Return the program of an element-wise node, for arrays in the dtype in which the graph computes."""
    function, arrays = KINDS[node.kind].function, (wide,) * len(node.inputs)
    if function.text:
        return compiled(f"out = {function.text}", arrays)
    formula = ACTIVATIONS[node.kind]
    number = node.number if function.parameter else formula.parameter
    return compiled((f"a = {number!r}; " if formula.parameter is not None else "") + formula.forward, arrays)
