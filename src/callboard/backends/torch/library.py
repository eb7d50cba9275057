"""``TorchLibrary``: a library whose plans are functions of tensors.

A plan is made by :meth:`TorchLibrary.planned` from the message, with placeholders for operands, and a function of the
values of its fields: tensors for arrays that it reads, Python numbers, None, and tuples of
them, in the order of declaration, without the arrays that are only written. It returns what is written: a tensor for
the message's one field ``Out`` or ``InOut``, or a tuple with one for each of them. It writes nothing itself, so that
outputs may overlap operands, run backwards or have another dtype.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.torch.vendor import LACKS
from callboard.backends.torch.views import View
from callboard.core.backend import Status
from callboard.core.backend.workers import WorkerStream
from callboard.core.layout import Layout, OpenLayout, layout_of
from callboard.core.library import AnyOp, Extents, Library
from callboard.core.op import info_of
from callboard.core.operand import Operand, Role, StructOperand, parts_of

if TYPE_CHECKING:
    from callboard.backends.torch.device import TorchDevice

__all__ = ["Compute", "Plan", "TorchLibrary"]

Compute = Callable[..., Any]
"""From the values of a message's fields to what it writes."""


class Plan:
    """A message's function, and how its fields become tensors.

    Args:
        device: The device.
        op: The message, with placeholders.
        compute: Its function.
    """

    def __init__(self, device: "TorchDevice", op: AnyOp, compute: Compute) -> None:
        self._device = device
        self._compute = compute
        fields = info_of(type(op)).dynamic
        inferred: Mapping[str, Any] = op.infer()
        self._written = [at for at, field in enumerate(fields) if field.role in (Role.OUT, Role.INOUT)]
        self._read = [at for at, field in enumerate(fields) if field.role is not Role.OUT]
        self._scalars = {at for at, field in enumerate(fields) if field.role is Role.SCALAR}
        self._open = [at for at, field in enumerate(fields) if isinstance(inferred.get(field.name), OpenLayout)]
        self._views: list[Any] = []
        for field in fields:
            value = getattr(op, field.name)
            if value is None and field.role is Role.OUT:
                value = inferred.get(field.name)
            self._views.append(self._viewed(value))

    def _viewed(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._viewed, value))
        if isinstance(value, StructOperand):
            return tuple(self._viewed(getattr(value, name)) for name, _ in parts_of(type(value)).operands)
        if isinstance(value, Operand):
            value = value.layout
        if isinstance(value, OpenLayout):
            return value
        return View(self._device, value) if isinstance(value, Layout) else None

    def bound(self, dynamic: tuple[Any, ...]) -> list[Any]:
        """The tensors over the arrays at the addresses of a launch; on the admitting thread."""
        return [_at(view, given) for view, given in zip(self._views, dynamic, strict=True)]

    def _computed(self, bound: list[Any]) -> tuple[Any, ...]:
        given = [_read(self._views[at], bound[at]) for at in self._read]
        numbers = [at in self._scalars for at in self._read]
        values = [_number(x) if scalar else x for x, scalar in zip(given, numbers, strict=True)]
        found = self._compute(*values)
        return found if isinstance(found, tuple) else (found,)  # a list is the value of one field

    def __call__(self, bound: list[Any]) -> None:
        """Compute and write; on the stream's worker."""
        for at, value in zip(self._written, self._computed(bound), strict=True):
            if value is not None and bound[at] is not None:
                _write(self._device, self._views[at], bound[at], value)

    def extents(self, bound: list[Any]) -> Iterator[tuple[int, ...]]:
        """The shapes of outputs whose extents depend on data."""
        for at, value in zip(self._written, self._computed(bound), strict=True):
            if at in self._open:
                yield tuple(value.shape)


def _at(view: Any, given: Any) -> Any:
    if isinstance(view, View):
        return None if given is None else view.at(given)
    if isinstance(view, tuple):
        return None if given is None else tuple(map(_at, view, given))
    return given  # a number; or the address of an array whose extents come with its values


def _read(view: Any, there: Any) -> Any:
    if isinstance(view, View):
        return None if there is None else view.read(there)
    if isinstance(view, tuple):
        return () if there is None else tuple(map(_read, view, there))
    return there


def _number(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_number, value))
    return value.item() if hasattr(value, "item") else value


def _write(device: "TorchDevice", view: Any, there: Any, value: Any) -> None:
    if isinstance(view, tuple):
        for one, at, part in zip(view, there, value, strict=True):
            _write(device, one, at, part)
    elif isinstance(view, OpenLayout):
        closed = View(device, layout_of(view.dtype, tuple(value.shape)))
        closed.write(closed.at(there), value)
    else:
        view.write(there, value)


class TorchLibrary(Library):
    """Plans are made from the message alone, inline, and run on the stream's worker.

    Attributes:
        kind: The kind of device: ``"cpu"``, ``"mps"`` …
    """

    inline = True
    kind: ClassVar[str] = "cpu"

    device: "TorchDevice"

    @property
    def where(self) -> Any:
        """PyTorch's name of the device."""
        return self.device.torch_device

    def planned(self, op: AnyOp, compute: Compute) -> Plan:
        """The plan of an op by its function."""
        return Plan(self.device, op, compute)

    def launch(self, stream: WorkerStream, plan: Plan, *dynamic: Any) -> Status:
        return stream.run(self.name, plan, plan.bound(dynamic))

    def query_size(self, plan: Plan, *dynamic: Any) -> Extents:
        return list(plan.extents(plan.bound(dynamic)))

    @classmethod
    def why_not(cls, op: AnyOp) -> str | None:
        lacking = LACKS[cls.kind]
        for leaf in info_of(type(op)).leaves(op) if lacking else ():
            if isinstance(leaf.value, Operand) and leaf.value.dtype in lacking:
                return f"{leaf.name} is {leaf.value.layout!r}, and PyTorch has no {leaf.value.dtype} on {cls.kind}"
        for name, layout in op.infer().items() if lacking else ():
            if isinstance(layout, Layout) and layout.dtype in lacking:
                return f"{name} would be {layout!r}, and PyTorch has no {layout.dtype} on {cls.kind}"
        return super().why_not(op)
