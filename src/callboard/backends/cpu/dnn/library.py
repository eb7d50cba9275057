"""``CpuDnn``: which work serves which message of deep learning."""

from collections.abc import Callable
from typing import Any, ClassVar

from callboard.backends.cpu.dnn import (
    activations,
    channel_norms,
    conv,
    dropout,
    embedding,
    graphs,
    layer_norm,
    losses,
    lrn,
    pooling,
    rnn,
    rope,
    softmax,
    top_k,
)
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import Status
from callboard.core.library import Library

__all__ = ["CpuDnn"]

FAMILIES = (
    activations,
    channel_norms,
    conv,
    dropout,
    embedding,
    graphs,
    layer_norm,
    losses,
    lrn,
    pooling,
    rnn,
    rope,
    softmax,
    top_k,
)
"""Modules with a ``TABLE``: the :class:`~callboard.core.library.Entry` of each of their ops.

The plan of an entry is a function of the launch's arguments, in the order in which the message declares them.
"""


class CpuDnn(Library):
    """Serves :mod:`callboard.kernel.dnn` with NumPy."""

    name = "dnn"
    max_plans: ClassVar[int | None] = 1024
    table: ClassVar = {op: entry for family in FAMILIES for op, entry in family.TABLE.items()}

    def launch(self, stream: CpuStream, plan: Callable[..., None], *dynamic: Any) -> Status:
        """Run the plan after the work so far."""
        return stream.run("numpy", plan, *dynamic)
