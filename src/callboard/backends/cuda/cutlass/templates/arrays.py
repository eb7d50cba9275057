"""The arrays of an epilogue as leaves of CUTLASS's visitor tree."""

from typing import NamedTuple

from callboard.backends.cuda.cutlass.hopper import ELEMENTS
from callboard.backends.cuda.cutlass.templates.scales import scales_of
from callboard.core.dtype import DType
from callboard.kernel.cutlass import Gemm
from callboard.kernel.cutlass.epilogue import INPUTS

__all__ = ["Addend", "Leaf", "addend_of", "leaves_of"]


class Leaf(NamedTuple):
    """A leaf: its type and its arguments."""

    type: str
    arguments: str


class Addend(NamedTuple):
    """What takes the place of CUTLASS's ``c``, whose loads run ahead of the epilogue.

    Attributes:
        dtype: Its dtype; None if there is nothing.
        input: Position of the epilogue's array that it is; None for ``c`` itself, or for nothing.
    """

    dtype: DType | None
    input: int | None


def addend_of(op: Gemm) -> Addend:
    """``c``, or else the first matrix of the tree."""
    if op.c is not None:
        return Addend(op.c.dtype, None)
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    for at, (name, one) in enumerate(zip(op.names, op.inputs, strict=True)):
        if kinds[name] == "matrix" and one.dtype.name in ELEMENTS:
            return Addend(one.dtype, at)
    return Addend(None, None)


def leaves_of(op: Gemm, addend: Addend) -> list[Leaf]:
    """The leaves in the order of the function's parameters: the sums, the scales, ``c``, the arrays of the tree."""
    leaves = [Leaf("fusion::Sm90AccFetch", "{}")]
    beside = [scale for scale in scales_of(op) if not scale.of_blocks]
    leaves += [_leaf(scale.leaf, "f32", f"p.{scale.name}", "0", "0") for scale in beside]
    source = None if addend.dtype is None else Leaf(f"fusion::Sm90SrcFetch<{ELEMENTS[addend.dtype.name]}>", "{}")
    if op.c is not None and source is not None:
        leaves.append(source)
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    for at, (name, one) in enumerate(zip(op.names, op.inputs, strict=True)):
        if at == addend.input and source is not None:
            leaves.append(source)
        else:
            leaves.append(_leaf(kinds[name], one.dtype.name, f"p.inputs[{at}]", f"p.rows[{at}]", f"p.batches[{at}]"))
    return leaves


def _leaf(kind: str, dtype: str, address: str, row: str, step: str) -> Leaf:
    """The node that loads an array.

    Args:
        kind: As in an epilogue: ``"tensor"``, ``"column"``, ``"row"`` or ``"matrix"``.
        dtype: Name of its dtype.
        address, row, step: Expressions of its address, and of the distances of rows and of matrices.
    """
    element = ELEMENTS.get(dtype, "double")
    pointer = f"(const {element}*){address}"
    if kind == "tensor":
        return Leaf(f"fusion::Sm90ScalarBroadcast<{element}>", f"{{{{{element}(0)}}, {{{pointer}}}, {{}}}}")
    if kind == "column":
        return Leaf(
            f"fusion::Sm90RowBroadcast<0, TileOfBlock, {element}, {element}, Along>",
            f"{{{pointer}, {element}(0), Along{{cute::_0{{}}, cute::_1{{}}, {step}}}}}",
        )
    if kind == "row":
        return Leaf(
            f"fusion::Sm90ColBroadcast<0, TileOfBlock, {element}, {element}, Down>",
            f"{{{pointer}, {element}(0), Down{{cute::_1{{}}, cute::_0{{}}, {step}}}}}",
        )
    return Leaf(
        f"Matrix<{element}>"
        if dtype in ELEMENTS
        else f"fusion::Sm90AuxLoad<0, void, {element}, Across, void, void, 1>",
        f"{{{pointer}, {element}(0), Across{{{row}, cute::_1{{}}, {step}}}}}",
    )
