"""Lowering: a product of two tensors as a stack of matrix products.

The modes fall into four groups: those of both operands and the result number the products of the stack, those of one
operand and the result are rows and columns, and those of both operands alone are summed. If the modes of a group are
adjacent in memory without gaps, they form one axis of a matrix, and a matrix product reads the operand in place;
otherwise the operand is first copied into that order: "TTGT" in Springer and Bientinesi, "Design of a high-performance
GEMM-like tensor-tensor multiplication", ACM Trans. Math. Softw. 44(3), 2018.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from callboard.core.layout import Layout, layout_of
from callboard.kernel.blas.strides import Matrix, matrix_of
from callboard.kernel.tensor.modes import Label, Tensor
from callboard.kernel.tensor.network import by_step

__all__ = ["Lowering", "Stack", "lowerings"]


class Stack(NamedTuple):
    """Matrices at one distance, as an operand holds them.

    Attributes:
        matrix: Each of them.
        step: Distance between neighbouring matrices in elements, >= 0.
    """

    matrix: Matrix
    step: int


class Lowering(NamedTuple):
    """One way to compute ``out[i] = a[i] @ b[i]``.

    Attributes:
        outer: Modes of the result for whose indices all the rest is done one after the other.
        batch, rows, summed, columns: The groups of modes, each in the order that the matrices have.
        extents: ``(count, m, k, n)`` of a stack.
        a, b, out: The operand as a stack; None: it must be copied to (the result: computed in) row-major ones.
        cost: Elements that are copied, and what further launches cost beside that.
    """

    outer: tuple[Label, ...]
    batch: tuple[Label, ...]
    rows: tuple[Label, ...]
    summed: tuple[Label, ...]
    columns: tuple[Label, ...]
    extents: tuple[int, int, int, int]
    a: Stack | None
    b: Stack | None
    out: Stack | None
    cost: int

    def order(self, which: str) -> tuple[Label, ...]:
        """The modes of ``"a"``, ``"b"`` or ``"out"`` in the order of its matrices, without the outer ones."""
        if which == "out":
            return (*self.batch, *self.rows, *self.columns)
        return (*self.batch, *self.rows, *self.summed) if which == "a" else (*self.batch, *self.summed, *self.columns)

    def shape(self, which: str) -> tuple[int, int, int]:
        """Shape of one stack of an operand."""
        count, m, k, n = self.extents
        return {"a": (count, m, k), "b": (count, k, n), "out": (count, m, n)}[which]


MOST_LAUNCHES = 64
MOST_OUTER = 2


def lowerings(a: Tensor, b: Tensor, out: Tensor, extents: Mapping[Label, int], launch: int = 0) -> list[Lowering]:
    """All ways, the cheapest first.

    Args:
        a, b: Each mode is in the other one, too, or in ``out``.
        out: Result; its modes are in ``a`` or ``b``.
        extents: Extents of all modes, none of them 0.
        launch: The elements that are copied in the time of one more launch; 0: there is to be one launch.
    """
    ways = _ways((), a, b, out, extents, launch)
    for count in range(1, MOST_OUTER + 1):
        if launch and ways[0].cost > launch:
            for outer in itertools.combinations(out.labels, count):
                if math.prod(extents[x] for x in outer) <= MOST_LAUNCHES:
                    ways += _ways(outer, a, b, out, extents, launch)
            ways.sort(key=lambda way: way.cost)
    return ways


def _ways(
    outer: tuple[Label, ...], a: Tensor, b: Tensor, out: Tensor, extents: Mapping[Label, int], launch: int
) -> list[Lowering]:
    inner_a, inner_b, inner = (x.without(outer) for x in (a, b, out))
    groups = (
        _orders([x for x in inner_a.labels if x in b.labels and x in out.labels], (inner, inner_a, inner_b)),
        _orders([x for x in inner_a.labels if x not in b.labels], (inner, inner_a)),
        _orders([x for x in inner_a.labels if x in b.labels and x not in out.labels], (inner_a, inner_b)),
        _orders([x for x in inner_b.labels if x not in a.labels], (inner, inner_b)),
    )
    launches = math.prod(extents[x] for x in outer) - 1
    ways = []
    for choice in itertools.product(*groups):
        batch, rows, summed, columns = choice
        stacks = (
            _stack(inner_a, extents, batch, rows, summed),
            _stack(inner_b, extents, batch, summed, columns),
            _stack(inner, extents, batch, rows, columns),
        )
        copied = (
            weight * tensor.layout.size
            for stack, tensor, weight in zip(stacks, (a, b, out), (1, 1, 2), strict=True)  # a result: there and back
            if stack is None
        )
        count, m, k, n = (math.prod(extents[x] for x in group) for group in choice)
        ways.append(Lowering(outer, *choice, (count, m, k, n), *stacks, sum(copied) + launch * launches))
    return sorted(ways, key=lambda way: way.cost)


def _orders(group: Sequence[Label], holders: Sequence[Tensor]) -> list[tuple[Label, ...]]:
    """The group in the order of each holder's memory, each order once."""
    return list(dict.fromkeys(tuple(x for x in by_step(holder) if x in group) for holder in holders))


def _stack(tensor: Tensor, extents: Mapping[Label, int], *groups: tuple[Label, ...]) -> Stack | None:
    axes = [_merged(tensor.along(group, extents)) for group in groups]
    if any(axis is None for axis in axes):
        return None
    (count, step), (rows, row_step), (cols, col_step) = (axis for axis in axes if axis is not None)
    form = matrix_of(layout_of(tensor.layout.dtype, (rows, cols), (row_step, col_step)))
    return None if form is None or (step < 0 and count > 1) else Stack(form, step if count > 1 else 0)


def _merged(group: Layout) -> tuple[int, int] | None:
    """Extent and step of these axes as one, None if they are not evenly spaced."""
    extent, step = 1, 0
    for n, s in zip(reversed(group.shape), reversed(group.strides), strict=True):
        if n == 1:
            continue
        if extent > 1 and s != extent * step:
            return None
        step = step if extent > 1 else s
        extent *= n
    return extent, step
