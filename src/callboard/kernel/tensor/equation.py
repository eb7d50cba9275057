"""Equations of ``einsum``: ``"ij,jk->ik"``, read by NumPy's rules."""

from collections.abc import Sequence
from typing import NamedTuple

from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Operand
from callboard.kernel.checks import AnyOp, refuse
from callboard.kernel.tensor.modes import Label, Tensor, diagonal

__all__ = ["Equation", "read_equation"]


class Equation(NamedTuple):
    """An equation resolved for its operands.

    Attributes:
        inputs: The operands; an axis of extent 1 that is stretched to a mode's larger extent is left out.
        output: Modes of the result, in order. The axes that ``...`` stands for have the modes 0, 1 … from the last axis
            on.
        extents: Extents by mode.
    """

    inputs: tuple[Tensor, ...]
    output: tuple[Label, ...]
    extents: dict[Label, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.extents[label] for label in self.output)


def read_equation(op: AnyOp, equation: str, operands: Sequence[Operand]) -> Equation:
    """Read ``equation`` for these operands, of one dtype.

    Raises:
        ShapeError: It is not an equation, or the operands do not fit it; names operand, mode and extents.
    """
    terms, arrow, result = "".join(equation.split()).partition("->")
    parts = terms.split(",")
    if not operands or len(parts) != len(operands):
        raise refuse(op, f"equation {equation!r} has {len(parts)} operands; {len(operands)} were passed")
    named = [_labels(op, equation, part, f"operands[{i}]", operands[i].layout) for i, part in enumerate(parts)]
    extents = _extents(op, named, operands)
    inputs = tuple(_stretched(labels, x.layout, extents) for labels, x in zip(named, operands, strict=True))
    rest = sorted({label for labels in named for label in labels if isinstance(label, int)}, reverse=True)
    if arrow:
        output = _output(op, equation, result, rest, extents)
    else:
        every = [label for labels in named for label in labels]
        output = (*rest, *sorted({x for x in every if isinstance(x, str) and every.count(x) == 1}))
    return Equation(inputs, output, extents)


def _labels(op: AnyOp, equation: str, term: str, name: str, layout: Layout) -> tuple[Label, ...]:
    before, dots, after = term.partition("...")
    letters = before + after
    if not all(x.isalpha() for x in letters):
        raise refuse(op, f"equation {equation!r}: {term!r} holds more than letters and one '...'")
    covered = layout.ndim - len(letters)
    if covered < 0 or (covered and not dots):
        raise refuse(op, f"equation {equation!r}: {term!r} names {len(letters)} axes and {name} is {layout!r}")
    return (*before, *range(covered - 1, -1, -1), *after)


def _extents(op: AnyOp, named: Sequence[tuple[Label, ...]], operands: Sequence[Operand]) -> dict[Label, int]:
    extents: dict[Label, int] = {}
    seen: dict[Label, str] = {}
    for i, (labels, operand) in enumerate(zip(named, operands, strict=True)):
        name = f"operands[{i}] ({operand.layout!r})"
        mine: dict[Label, int] = {}
        for label, extent in zip(labels, operand.shape, strict=True):
            what = f"mode {label!r}" if isinstance(label, str) else "an axis of '...'"
            if mine.setdefault(label, extent) != extent:
                raise refuse(op, f"{what} has extents {mine[label]} and {extent} in {name}")
            known = extents.get(label, 1)
            if extent != known and 1 not in (extent, known):
                raise refuse(op, f"{what} has extent {extent} in {name} and {known} in {seen[label]}")
            if label not in seen or extent != 1:
                extents[label], seen[label] = extent, name
    return extents


def _stretched(labels: tuple[Label, ...], layout: Layout, extents: dict[Label, int]) -> Tensor:
    kept = [i for i, label in enumerate(labels) if layout.shape[i] == extents[label]]
    if len(kept) < len(labels):
        layout = layout_of(layout.dtype, tuple(layout.shape[i] for i in kept), tuple(layout.strides[i] for i in kept))
    return diagonal(tuple(labels[i] for i in kept), layout)


def _output(op: AnyOp, equation: str, result: str, rest: Sequence[int], extents: dict[Label, int]) -> tuple[Label, ...]:
    before, dots, after = result.partition("...")
    if not all(x.isalpha() for x in before + after):
        raise refuse(op, f"equation {equation!r}: {result!r} holds more than letters and one '...'")
    for label in before + after:
        if label not in extents:
            raise refuse(op, f"equation {equation!r}: the result names {label!r}, which no operand has")
        if (before + after).count(label) > 1:
            raise refuse(op, f"equation {equation!r}: the result names {label!r} twice")
    if rest and not dots:
        raise refuse(op, f"equation {equation!r}: '...' stands for {len(rest)} axes, which the result must have, too")
    return (*before, *(rest if dots else ()), *after)
