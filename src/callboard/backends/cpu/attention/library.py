"""``CpuAttention``: which work serves which message."""

from collections.abc import Callable
from typing import Any, ClassVar

from callboard.backends.cpu.attention.backward import backward, backward_sink
from callboard.backends.cpu.attention.forward import forward
from callboard.backends.cpu.attention.fp8 import backward_fp8, forward_fp8
from callboard.backends.cpu.attention.merging import merge
from callboard.backends.cpu.attention.paged import append, copy, paged_forward
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import Status
from callboard.core.library import Entry, Library
from callboard.core.op import Op
from callboard.kernel.attention import (
    Backward,
    BackwardBias,
    BackwardFp8,
    BackwardSink,
    Forward,
    ForwardFp8,
    Merge,
    PageAppend,
    PageCopy,
    PagedForward,
)

__all__ = ["CpuAttention"]

Work = Callable[..., None]


class AttentionPlan:
    """A plan that runs its work on the stream."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, stream: CpuStream, *operands: Any) -> Status:
        return stream.run("numpy", self._work, *operands)


def entry(make: Callable[[Any], Work]) -> Entry:
    def plan(library: "CpuAttention", op: Op[Any, Any]) -> AttentionPlan:
        return AttentionPlan(make(op))

    return Entry(plan, inline=True)


class CpuAttention(Library):
    """Serves :mod:`callboard.kernel.attention` with NumPy."""

    name = "attention"
    max_plans = 1024
    table: ClassVar = {
        Forward: entry(forward),
        Backward: entry(backward),
        BackwardBias: entry(backward),
        BackwardSink: entry(backward_sink),
        ForwardFp8: entry(forward_fp8),
        BackwardFp8: entry(backward_fp8),
        Merge: entry(merge),
        PagedForward: entry(paged_forward),
        PageAppend: entry(append),
        PageCopy: entry(copy),
    }
