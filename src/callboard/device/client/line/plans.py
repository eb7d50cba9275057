"""Client plans: data derived once per signature: outputs to allocate and how to build the reply."""

from typing import Any, NamedTuple

import numpy as np

from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, OpenLayout
from callboard.core.op import Op, info_of, outputs_of
from callboard.core.operand import Operand, Role, StructOperand
from callboard.core.ref import GpuRef, Released
from callboard.device.client.line.releases import SMALL, Releases

__all__ = ["ClientPlan", "CompositeOutput", "check_overlaps"]


class ClientPlan:
    """The application's plan of one signature.

    Attributes:
        tag: Tag of the op, for errors.
        outputs: Layouts of the outputs to make.
        made: Names of these outputs.
        written: Positions of the operands that the caller passed to be written.
        apart: Placements of operands of one call that were last found not to overlap.
        value: The reply is a value.
        answers: Type that the launch's answer is converted to; None for ops whose reply is not such an answer.
        one_made: The reply is the only made output.
        one_given: The reply is the operand at this position; -1 when it is something else.
        returned: For each returned field: the position of its array among the allocated outputs, -1 when the caller
            passed it, or how to build a struct operand.
        arrays: The reply is a tuple of arrays.
        open: The extents of made outputs depend on data.
        fenced: It is ordered among all ops.
        foreign: The memory of its outputs is not the device's alone.
        small: True if its outputs may be freed later, together with others.
    """

    __slots__ = (
        *("answers", "apart", "arrays", "fenced", "foreign", "made", "one_given", "one_made", "open", "outputs"),
        "returned",
        *("small", "tag", "value", "written"),
    )

    def __init__(self, op: Op[Any, Any]) -> None:
        info = info_of(type(op))
        made = outputs_of(op)
        self.tag = op.label
        self.outputs: tuple[Layout, ...] = tuple(made.values())
        self.made = tuple(made)
        written: list[int] = []
        places: dict[str, int] = {}
        operands = [leaf for leaf in info.leaves(op) if isinstance(leaf.value, Operand)]
        for count, (_, item, name, role, _) in enumerate(operands):
            if role in (Role.OUT, Role.INOUT):
                written.append(count)
            if item < 0:
                places[name] = count
        self.written = tuple(written)
        self.apart: list[int] = []
        order = list(made)
        self.open = any(isinstance(layout, OpenLayout) for layout in self.outputs)
        self.fenced = op.fence is not None
        self.foreign = op.memory is not None
        self.value = op.value and len(op.returns) == 1 and op.returns[0] in made
        self.answers: Any = op.answers
        self.returned = tuple(_returned(op, name, order) for name in op.returns)
        tuples = [isinstance(how, CompositeOutput) and how.template is None for how in self.returned]
        given = [isinstance(getattr(op, name), tuple) for name in op.returns]
        plain = op.results is None and not self.value and not self.open and op.answers is None and any(tuples + given)
        self.arrays = plain and all(a or b for a, b in zip(tuples, given, strict=True))
        single = len(self.returned) == 1 and op.results is None and not self.value and not self.open
        self.one_made = single and self.returned[0] == 0 and len(self.outputs) == 1
        closed = not self.open and not self.foreign and (self.one_made or self.arrays)
        self.small = closed and sum(layout.nbytes for layout in self.outputs) <= SMALL
        self.one_given = places.get(op.returns[0], -1) if single and self.returned[0] == -1 and not self.outputs else -1

    def sink(self, released: Releases) -> Released:
        """Takes the ids of outputs whose last ref was dropped."""
        return released.small if self.small else released


class CompositeOutput(NamedTuple):
    """The composition of a struct operand, or of a tuple of arrays, from allocated outputs.

    Attributes:
        template: The struct operand, with placeholders; None for a tuple.
        parts: Position among the made outputs, by name.
    """

    template: StructOperand | None
    parts: dict[str, int]


def _returned(op: Op[Any, Any], name: str, order: list[str]) -> "int | CompositeOutput":
    if name in order:
        return order.index(name)
    parts = {made.partition(".")[2]: at for at, made in enumerate(order) if made.startswith(f"{name}.")}
    if not parts:
        return -1
    template = op.infer()[name]
    return CompositeOutput(template if isinstance(template, StructOperand) else None, parts)


def check_overlaps(op: Op[Any, Any]) -> None:
    """Refuse an output that shares elements with another operand, unless the op declares it safe.

    Raises:
        ShapeError: Naming both.
    """
    info = info_of(type(op))
    flat = [leaf for leaf in info.leaves(op) if isinstance(leaf.value, GpuRef)]
    for i, (_, _, name, role, ref) in enumerate(flat):
        if role not in (Role.OUT, Role.INOUT):
            continue
        for j, leaf in enumerate(flat):
            other: GpuRef = leaf.value
            if i == j or (j < i and leaf.role in (Role.OUT, Role.INOUT)) or other.allocation is not ref.allocation:
                continue
            if (name, leaf.name) in op.overlaps and _same(ref, other):
                continue
            if _share(ref, other):
                raise ShapeError(
                    f"{info.tag}: {info.called(flat[i])} {ref.layout!r} shares memory with {info.called(leaf)} "
                    f"{other.layout!r}; write to another array"
                )


def _same(a: GpuRef, b: GpuRef) -> bool:
    return a.offset == b.offset and a.layout == b.layout


def _share(a: GpuRef, b: GpuRef) -> bool:
    if not (a.size and b.size):
        return False
    (a_low, a_high), (b_low, b_high) = a.layout.span, b.layout.span
    if a.offset + a_high <= b.offset + b_low or b.offset + b_high <= a.offset + a_low:
        return False
    try:  # NumPy solves the strided case exactly, within a bounded effort; the memory is never touched
        shared: bool = np.shares_memory(_shadow(a), _shadow(b), max_work=100_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
    return shared


def _shadow(ref: GpuRef) -> "np.ndarray[Any, Any]":
    base = np.empty(1, np.uint8)
    interface = {
        "version": 3,
        "shape": ref.shape,
        "typestr": f"|V{ref.dtype.itemsize}",
        "strides": tuple(s * ref.dtype.itemsize for s in ref.strides),
        "data": ((1 << 40) + ref.offset, True),
    }
    return np.asarray(_Interface(interface, base))


class _Interface:
    def __init__(self, interface: dict[str, Any], base: object) -> None:
        self.__array_interface__ = interface
        self.base = base
