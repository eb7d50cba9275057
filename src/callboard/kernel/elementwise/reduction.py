"""A reduction with its dtypes: the function of each element, the operator that joins them, and the final function."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.elementwise.language import REDUCTIONS, Expression, read
from callboard.kernel.elementwise.program import Builder, Loose, Program, Step, Value
from callboard.kernel.elementwise.promotion import Weak
from callboard.kernel.elementwise.tree import Apply, Name, Number, Tree

__all__ = ["COUNT", "Reduction", "check_reduction", "compiled_reduction"]

COUNT = "number of terms"
"""The name of the number by which a mean is divided; no text can contain it."""
_TOTAL = "result of the reduction"


class Reduction(NamedTuple):
    """A typed reduction.

    Attributes:
        function: ``"sum"``, ``"prod"``, ``"min"``, ``"max"``, ``"any"``, ``"all"``, ``"argmin"`` or ``"argmax"``.
        each: Program applied to each element: one result, of the dtype in which elements are combined.
        total: The dtype of the combined value, which is the operand of ``finish``.
        finish: Program applied to the combined value; its last number is :data:`COUNT`.
    """

    function: str
    each: Program
    total: DType
    finish: Program

    def check(self, given: Sequence[Number]) -> None:
        """Check the numbers of a call.

        Raises:
            ShapeError: See :meth:`Program.values`.
        """
        self.each.values(given)
        self.finish.values((*given, 1.0))

    @property
    def accumulator(self) -> DType:
        """The dtype in which elements are combined; for f16 and bf16 it is f32."""
        return self.each.steps[self.each.results[0]].dtype

    @property
    def result(self) -> DType:
        """The dtype of the result."""
        return self.finish.steps[self.finish.results[0]].dtype

    @property
    def plain(self) -> bool:
        """True if ``finish`` leaves the total unchanged."""
        return len(self.finish.steps) == 1


@functools.lru_cache(maxsize=4096)
def compiled_reduction(
    text: str, dtypes: tuple[DType, ...], numbers: tuple[tuple[str, Weak], ...] = (), dtype: DType | None = None
) -> Reduction:
    """Give a reduction its dtypes.

    Args:
        text: Assignments, the last of which contains one call of a reduction: ``"sum(x * y)"``.
        dtypes: The dtypes of the array inputs, in order.
        numbers: The inputs that are numbers, and their kinds.
        dtype: The dtype in which a sum or a product is accumulated and returned.

    Raises:
        ShapeError: The text is not a reduction, or these dtypes do not have the functions that it calls.
    """
    expression = read(text)
    *before, (_, last) = expression.statements
    call = check_reduction(expression)
    function = call.function[7:]
    builder = Builder(text)
    known = builder.inputs(expression.inputs, dtypes, numbers)
    for target, tree in before:
        known[target] = builder.value(tree, known)
    each = builder.strong(builder.value(call.arguments[0], known), None)
    own = builder.steps[each].dtype
    accumulator, total = _types(text, function, own, dtype)
    each = builder.cast(each, accumulator)
    end = Builder(text)
    outer: dict[str, Value] = {name: value for name, value in known.items() if isinstance(value, Loose)}
    outer[COUNT], outer[_TOTAL] = Loose("float", Name(COUNT)), end.step(Step("operand", (), total, 0))
    given: Tree = Name(_TOTAL)
    if function == "mean":  # divided before it is rounded: an f16 cannot hold the number of terms
        mean = dtype or (own if own.kind in ("float", "complex") else total)
        given = Apply(f"cast:{mean}", (Apply("divide", (given, Name(COUNT))),))
    finish = _replaced(last, call, given)
    arrays = sorted(_names(finish) - set(outer))
    if arrays:
        raise ShapeError(
            f"reduction {text!r}: {arrays[0]} is outside of {function}(); only numbers may be combined with its result"
        )
    stored = end.strong(end.value(finish, outer), None)
    return Reduction(
        "sum" if function == "mean" else function,
        builder.program([each], numbers),
        total,
        end.program([stored], (*numbers, (COUNT, "float"))),
    )


def check_reduction(expression: Expression) -> Apply:
    """The call of a reduction that an expression holds.

    Raises:
        ShapeError: It holds none, or several.
    """
    calls = _calls(expression.statements[-1][1])
    if len(calls) != 1:
        there = ", ".join(REDUCTIONS)
        raise ShapeError(f"reduction {expression.text!r}: the last statement must hold one of {there}, once")
    return calls[0]


def _types(text: str, function: str, own: DType, dtype: DType | None) -> tuple[DType, DType]:
    """The dtypes in which elements are combined, and of the result, by the standard's rules."""
    if dtype is not None and function not in ("sum", "prod", "mean"):
        raise ShapeError(f"reduction {text!r}: {function} takes no dtype; convert its argument")
    if function in ("any", "all"):
        return DTYPES["bool"], DTYPES["bool"]
    if function in ("min", "max", "argmin", "argmax"):
        if own.is_complex:
            raise ShapeError(f"reduction {text!r}: {function} of {own}: complex numbers have no order; take abs()")
        return own, DTYPES["i64"] if function.startswith("arg") else own
    if dtype is not None:
        if function == "mean" and dtype.itemsize == 2 and dtype.is_float:
            return DTYPES["f32"], DTYPES["f32"]
        return dtype, dtype
    if function == "mean":
        wide = own if own.kind in ("float", "complex") else DTYPES["f64"]
        wide = DTYPES["f32"] if wide.itemsize == 2 else wide
        return wide, wide
    default = {"bool": DTYPES["i64"], "int": DTYPES["i64"], "uint": DTYPES["u64"]}.get(own.kind, own)
    return default, default


def _calls(tree: Tree) -> "list[Apply]":
    if not isinstance(tree, Apply):
        return []
    inner = [call for argument in tree.arguments for call in _calls(argument)]
    return [tree, *inner] if tree.function.startswith("reduce:") else inner


def _replaced(tree: Tree, call: Apply, by: Tree) -> Tree:
    if tree is call:
        return by
    if isinstance(tree, Apply):
        return Apply(tree.function, tuple(_replaced(argument, call, by) for argument in tree.arguments))
    return tree


def _names(tree: Tree) -> set[str]:
    if isinstance(tree, Apply):
        return set().union(*map(_names, tree.arguments))
    return {tree.name} if isinstance(tree, Name) else set()
