"""``CpuTensor``: which plan serves which message."""

from collections.abc import Callable
from typing import Any, ClassVar

from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.tensor import contraction, elementwise
from callboard.core.backend import Status
from callboard.core.library import Entry, Library
from callboard.core.op import Op
from callboard.kernel.tensor import (
    Contract,
    Einsum,
    ElementwiseBinary,
    ElementwiseTrinary,
    Permutation,
    Reduction,
)

__all__ = ["CpuTensor"]

Plan = Callable[..., None]

PLANS: dict[type[Op[Any, Any]], Callable[[Any], Plan]] = {
    Contract: contraction.contract,
    Einsum: contraction.einsum,
    ElementwiseBinary: elementwise.binary,
    ElementwiseTrinary: elementwise.trinary,
    Permutation: elementwise.permutation,
    Reduction: elementwise.reduction,
}
"""Maps a message, with placeholders for operands, to its work: a function of the launch arguments."""


class CpuTensor(Library):
    """Serves :mod:`callboard.kernel.tensor` with NumPy; opt_einsum orders the products of a network.

    Deterministic: equal calls give equal bits, as far as the BLAS behind NumPy does with its number of threads.
    """

    name = "tensor"
    max_plans: ClassVar[int | None] = 256
    table: ClassVar = {op: Entry(lambda _, op: PLANS[type(op)](op), inline=True) for op in PLANS}

    def launch(self, stream: CpuStream, plan: Plan, *dynamic: Any) -> Status:
        """Run the plan after the work so far."""
        return stream.run(self.name, plan, *dynamic)
