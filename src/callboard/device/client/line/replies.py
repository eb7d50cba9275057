"""Replies of ops that are answered otherwise than with one ref: values, several refs, struct operands."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import msgspec

from callboard.core.layout import Layout, OpenLayout
from callboard.core.op import Op, Repeated
from callboard.core.operand import StructOperand, operands_of
from callboard.core.ref import Allocation, GpuRef, RefPort, Released
from callboard.core.reply import Reply
from callboard.core.settings import convert
from callboard.device.client.line.entries import Several, Sized
from callboard.device.client.line.plans import ClientPlan, CompositeOutput

__all__ = ["reply_to"]


class ValueReply(Reply[Any]):
    """A reply that is a number."""

    __slots__ = ()

    def _answer(self, value: Any) -> None:
        if type(value) is list:
            real, imaginary = value
            value = complex(real, imaginary)
        elif type(value) not in (bool, int, float):
            raise TypeError(f"{value!r:.80} is not a number")
        super()._resolve(value)

    def _resolve(self, value: Any = None) -> None:
        raise TypeError("a value was expected")


class AnswerReply(Reply[Any]):
    """A reply with the value that a launch has determined."""

    __slots__ = ("_type",)

    def __init__(self, port: RefPort, op: int, type: Any) -> None:
        super().__init__(port, op)
        self._type = type

    def _answer(self, value: Any) -> None:
        super()._resolve(convert(value, self._type))

    def _resolve(self, value: Any = None) -> None:
        raise TypeError("an answer was expected")


def reply_to(
    port: RefPort,
    released: Released,
    plan: ClientPlan,
    op: Op[Any, Any] | Repeated,
    op_id: int,
    made: list[int],
    extra: Any,
) -> tuple[Any, Callable[[], Any], Any]:
    """Return ``(reply, resolver of its completion, objects kept alive until then)`` for an op.

    Args:
        port, released: Port and release queue of the new refs.
        plan: Client plan of the op's signature.
        op: The message.
        op_id: Id of the op.
        made: Ids of the buffers that it makes.
        extra: Receiver that is notified of the completion; None if there is none.
    """
    if plan.arrays:
        return _arrays(port, released, plan, op, op_id, made, extra)
    if isinstance(op, Repeated):
        op = op.made()

    def pending(allocation: Allocation, layout: Layout, offset: int = 0) -> GpuRef:
        return GpuRef(port, allocation, layout, port.generation, offset, op_id)

    fresh = [pending(Allocation(buffer, released), layout) for buffer, layout in zip(made, plan.outputs, strict=True)]
    if plan.value:
        reply: Any = ValueReply(port, op_id)
        return reply, weakref.ref(reply), ([ref.allocation for ref in fresh], extra)
    if plan.answers is not None:
        reply = AnswerReply(port, op_id, plan.answers)
        return reply, weakref.ref(reply), extra
    values: list[Any] = []
    for name, how in zip(op.returns, plan.returned, strict=True):
        if isinstance(how, CompositeOutput):
            parts = {part: fresh[at] for part, at in how.parts.items()}
            values += parts.values() if how.template is None else [msgspec.structs.replace(how.template, **parts)]
        elif how >= 0:
            values.append(fresh[how])
        else:
            given = getattr(op, name)
            if isinstance(given, StructOperand):
                again = {n: pending(g.allocation, g.layout, g.offset) for n, g in operands_of(given).items()}
                values.append(msgspec.structs.replace(given, **again))
            else:
                several = given if isinstance(given, tuple) else () if given is None else (given,)
                values += (pending(g.allocation, g.layout, g.offset) for g in several)
    refs = [r for v in values for r in (operands_of(v).values() if isinstance(v, StructOperand) else (v,))]
    if not refs:
        reply = Reply(port, op_id)
        return reply, weakref.ref(reply), extra
    weak = [weakref.ref(r) for r in refs]
    alone = len(values) == 1 and op.results is None
    if alone:  # of a tuple of extents that depend on data
        how = plan.returned[0]
        alone = not isinstance(how, CompositeOutput) or how.template is not None
    answer = values[0] if alone else tuple(values) if op.results is None else op.results(*values)
    if plan.open:
        sized = []
        for ref in fresh:
            if isinstance(ref.layout, OpenLayout):
                sized.append(weakref.ref(ref))
                if port.services.blocking:
                    wait = functools.partial(_waited, sized[-1])
                    ref.layout = OpenLayout(ref.layout.dtype, ref.layout.extents, wait)
        return answer, lambda: Sized(sized, [r for w in weak if (r := w()) is not None]), extra
    if len(refs) == 1:
        return answer, weak[0], extra
    return answer, lambda: Several([r for w in weak if (r := w()) is not None]), extra


def _arrays(
    port: RefPort,
    released: Released,
    plan: ClientPlan,
    op: Op[Any, Any] | Repeated,
    op_id: int,
    made: list[int],
    extra: Any,
) -> tuple[Any, Callable[[], Any], Any]:
    """Like :func:`reply_to`, for a tuple of arrays: allocated ones, and new refs to operands."""
    generation = port.generation
    refs: list[GpuRef[Any]] = []
    for at, how in enumerate(plan.returned):
        if isinstance(how, CompositeOutput):
            places = how.parts.values()
            refs += [GpuRef(port, Allocation(made[i], released), plan.outputs[i], generation, 0, op_id) for i in places]
        else:
            if isinstance(op, Repeated):
                op = op.made()
            given = getattr(op, op.returns[at])
            refs += [GpuRef(port, ref.allocation, ref.layout, generation, ref.offset, op_id) for ref in given]
    if len(refs) == 1:
        return tuple(refs), weakref.ref(refs[0]), extra
    if not refs:
        reply: Reply[Any] = Reply(port, op_id)
        return reply, weakref.ref(reply), extra
    weak = [weakref.ref(ref) for ref in refs]
    return tuple(refs), lambda: Several([ref for one in weak if (ref := one()) is not None]), extra


def _waited(weak: "weakref.ref[GpuRef[Any]]") -> Layout | None:
    """Return the layout of a ref after waiting for its op, None if the ref was dropped; raises the op's error."""
    ref = weak()
    return None if ref is None else ref.result().layout
