"""Modes: the names of axes, by which tensors are matched.

A mode is a character or an integer; an operand's modes are a string (``"ik"``) or a sequence of integers, one for each
axis. A mode that an operand has twice means its diagonal, which is a view: both steps at once.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Operand
from callboard.kernel.checks import AnyOp, refuse

__all__ = ["Label", "ModeTable", "Modes", "Tensor"]

Label = str | int
Modes = str | tuple[int, ...]


class Tensor(NamedTuple):
    """An operand by its modes, each once.

    Attributes:
        labels: One for each axis of the layout.
        layout: Layout of the operand, or of its diagonal.
    """

    labels: tuple[Label, ...]
    layout: Layout

    def steps(self, labels: Sequence[Label]) -> tuple[int, ...]:
        """The step of each of these modes, in elements; 0 of one that it does not have."""
        mine = dict(zip(self.labels, self.layout.strides, strict=True))
        return tuple(mine.get(label, 0) for label in labels)

    def without(self, labels: Sequence[Label]) -> "Tensor":
        """The tensor with these modes fixed at one index each."""
        kept = [i for i, label in enumerate(self.labels) if label not in labels]
        layout = self.layout
        shape, steps = tuple(layout.shape[i] for i in kept), tuple(layout.strides[i] for i in kept)
        return Tensor(tuple(self.labels[i] for i in kept), layout_of(layout.dtype, shape, steps))

    def along(self, labels: Sequence[Label], extents: Mapping[Label, int]) -> Layout:
        """The layout with one axis for each of these modes, in this order; one that it has not is repeated."""
        return layout_of(self.layout.dtype, tuple(extents[x] for x in labels), self.steps(labels))


class ModeTable:
    """The extents of all modes of an op, gathered operand by operand.

    Attributes:
        extents: Extents by mode.
    """

    def __init__(self, op: AnyOp) -> None:
        self.extents: dict[Label, int] = {}
        self._op = op
        self._seen: dict[Label, str] = {}

    def add(self, name: str, modes: Modes, operand: Operand) -> Tensor:
        """An operand that is read. Its extents must be those of the modes that are known already."""
        layout = operand.layout
        labels = self._split(name, modes, layout)
        for label, extent in zip(labels, layout.shape, strict=True):
            known = self.extents.setdefault(label, extent)
            if known != extent:
                raise refuse(
                    self._op,
                    f"mode {label!r} has extent {extent} in {name} ({layout!r}) and {known} in {self._seen[label]}",
                )
            self._seen.setdefault(label, f"{name} ({layout!r})")
        return diagonal(labels, layout)

    def result(self, modes: Modes, dtype_of: Layout) -> Tensor:
        """The result, row-major, of the dtype of an operand. Its modes must be known, each once."""
        labels: tuple[Label, ...] = tuple(modes)
        for label in labels:
            if label not in self.extents:
                known = ", ".join(map(repr, self.extents)) or "none"
                raise refuse(self._op, f"modes_out {modes!r} names {label!r}; the operands have {known}")
            if labels.count(label) > 1:
                raise refuse(self._op, f"modes_out {modes!r} names {label!r} twice; a result has each mode once")
        return Tensor(labels, layout_of(dtype_of.dtype, tuple(self.extents[x] for x in labels)))

    def _split(self, name: str, modes: Modes, layout: Layout) -> tuple[Label, ...]:
        labels: tuple[Label, ...] = tuple(modes)
        if len(labels) != layout.ndim:
            raise refuse(
                self._op,
                f"modes_{name} is {modes!r} and {name} is {layout!r}: {len(labels)} modes and {layout.ndim} axes; "
                f"name each axis",
            )
        return labels


def diagonal(labels: tuple[Label, ...], layout: Layout) -> Tensor:
    """The operand with each mode once."""
    if len(set(labels)) == len(labels):
        return Tensor(labels, layout)
    steps: dict[Label, int] = {}
    extents: dict[Label, int] = {}
    for label, extent, step in zip(labels, layout.shape, layout.strides, strict=True):
        steps[label] = steps.get(label, 0) + step
        extents[label] = extent
    return Tensor(tuple(steps), layout_of(layout.dtype, tuple(extents.values()), tuple(steps.values())))
