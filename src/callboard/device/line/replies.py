"""Replies of ops that are answered otherwise than with one ref: values, several refs, compounds."""

import weakref
from collections.abc import Callable
from typing import Any

import msgspec

from callboard.core.layout import Layout, OpenLayout
from callboard.core.op import Op
from callboard.core.operand import Compound, operands_of
from callboard.core.ref import Allocation, GpuRef, RefPort, Released
from callboard.core.reply import Reply
from callboard.device.line.entries import Measured, Several
from callboard.device.line.forms import Built, Form

__all__ = ["reply_to"]


def reply_to(
    port: RefPort, released: Released, form: Form, op: Op[Any, Any], op_id: int, made: list[int], extra: Any
) -> tuple[Any, Callable[[], Any], Any]:
    """The reply to an op; what gives whom its verdict settles, and what is to be kept until then.

    Args:
        port, released: Of the refs that are made.
        form: Of the op's head.
        op: The message.
        op_id: Its id.
        made: Ids of the buffers that it makes.
        extra: To be told of the verdict.
    """

    def owed(allocation: Allocation, layout: Layout, offset: int = 0) -> GpuRef:
        return GpuRef(port, allocation, layout, port.generation, offset, op_id)

    fresh = [owed(Allocation(buffer, released), layout) for buffer, layout in zip(made, form.made, strict=True)]
    if form.value:
        reply: Any = Reply(port, op_id)
        return reply, weakref.ref(reply), ([ref.allocation for ref in fresh], extra)
    values: list[Any] = []
    for name, how in zip(op.returns, form.returned, strict=True):
        if isinstance(how, Built):
            parts = {part: fresh[at] for part, at in how.parts.items()}
            values.append(msgspec.structs.replace(how.template, **parts))
        elif how >= 0:
            values.append(fresh[how])
        else:
            given = getattr(op, name)
            if isinstance(given, Compound):
                again = {n: owed(g.allocation, g.layout, g.offset) for n, g in operands_of(given).items()}
                values.append(msgspec.structs.replace(given, **again))
            else:
                several = given if isinstance(given, tuple) else (given,)
                values += (owed(g.allocation, g.layout, g.offset) for g in several)
    refs = [r for v in values for r in (operands_of(v).values() if isinstance(v, Compound) else (v,))]
    if not refs:
        reply = Reply(port, op_id)
        return reply, weakref.ref(reply), extra
    weak = [weakref.ref(r) for r in refs]
    alone = len(values) == 1 and op.results is None and not isinstance(getattr(op, op.returns[0]), tuple)
    answer = values[0] if alone else tuple(values) if op.results is None else op.results(*values)
    if form.open:
        sized = [weakref.ref(ref) for ref in fresh if isinstance(ref.layout, OpenLayout)]
        return answer, lambda: Measured(sized, [r for w in weak if (r := w()) is not None]), extra
    if len(refs) == 1:
        return answer, weak[0], extra
    return answer, lambda: Several([r for w in weak if (r := w()) is not None]), extra
