"""``CpuBlasLt``: which plan serves which message."""

from typing import Any

from callboard.backends.cpu.blas_lt.epilogues import Plan, backward, forward_plan
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import Status
from callboard.core.library import Library, launches, prepares
from callboard.kernel.blas_lt import Matmul, MatmulAux, MatmulBgrad

__all__ = ["CpuBlasLt"]


class CpuBlasLt(Library):
    """Serves :mod:`callboard.kernel.blas_lt` with NumPy. Settings that choose an algorithm have no effect here."""

    name = "blas_lt"
    max_plans = 1024

    @prepares(Matmul, MatmulAux, inline=True)
    def plan_forward(self, op: Matmul | MatmulAux) -> Plan:
        return forward_plan(op)

    @prepares(MatmulBgrad, inline=True)
    def plan_backward(self, op: MatmulBgrad) -> Plan:
        return backward(op)

    @launches(Matmul, MatmulAux, MatmulBgrad)
    def multiply(self, stream: CpuStream, plan: Plan, *operands: Any) -> Status:
        return stream.run("numpy", plan, *operands)
