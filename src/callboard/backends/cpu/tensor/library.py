"""``CpuTensor``: which plan serves which message."""

from collections.abc import Callable
from typing import Any, ClassVar

from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.tensor import contraction, elementwise
from callboard.core.library import Library, launches, prepares
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
Check = Callable[[], None]

PLANS: dict[type[Op[Any, Any]], Callable[[Any], Plan]] = {
    Contract: contraction.contract,
    Einsum: contraction.einsum,
    ElementwiseBinary: elementwise.binary,
    ElementwiseTrinary: elementwise.trinary,
    Permutation: elementwise.permutation,
    Reduction: elementwise.reduction,
}
"""From the message, with placeholders for operands, to the work: a function of what its launch is given."""


class CpuTensor(Library):
    """Serves :mod:`callboard.kernel.tensor` with NumPy; opt_einsum orders the products of a network.

    Deterministic: equal calls give equal bits, as far as the BLAS behind NumPy does with its number of threads.
    """

    name = "tensor"
    max_plans: ClassVar[int | None] = 256

    @prepares(*PLANS, inline=True)
    def plan(self, op: Op[Any, Any]) -> Plan:
        return PLANS[type(op)](op)

    @launches(Contract)
    def contract(
        self, stream: CpuStream, plan: Plan, a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> Check:
        return stream.run(self.name, plan, a, b, out, c, alpha, beta)

    @launches(Einsum)
    def einsum(self, stream: CpuStream, plan: Plan, operands: Any, out: int) -> Check:
        return stream.run(self.name, plan, operands, out)

    @launches(Reduction)
    def reduction(self, stream: CpuStream, plan: Plan, a: int, out: int, c: int | None, alpha: Any, beta: Any) -> Check:
        return stream.run(self.name, plan, a, out, c, alpha, beta)

    @launches(Permutation)
    def permutation(self, stream: CpuStream, plan: Plan, a: int, out: int, alpha: Any) -> Check:
        return stream.run(self.name, plan, a, out, alpha)

    @launches(ElementwiseBinary)
    def binary(self, stream: CpuStream, plan: Plan, a: int, c: int, out: int, alpha: Any, gamma: Any) -> Check:
        return stream.run(self.name, plan, a, c, out, alpha, gamma)

    @launches(ElementwiseTrinary)
    def trinary(
        self, stream: CpuStream, plan: Plan, a: int, b: int, c: int, out: int, alpha: Any, beta: Any, gamma: Any
    ) -> Check:
        return stream.run(self.name, plan, a, b, c, out, alpha, beta, gamma)
