"""``CpuBlasLt``: which plan serves which message."""

from typing import Any

from callboard.backends.cpu.blas_lt.epilogues import Plan, backward, forward_plan
from callboard.backends.cpu.stream import CpuStream
from callboard.core.library import Library, launches, prepares
from callboard.kernel.blas_lt import Matmul, MatmulAux, MatmulBgrad

__all__ = ["CpuBlasLt"]

Check = Any


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

    @launches(Matmul, MatmulAux)
    def forward(
        self,
        stream: CpuStream,
        plan: Plan,
        a: int,
        b: int,
        out: int,
        c: int | None,
        scale_a: int | None,
        scale_b: int | None,
        scale_out: int | None,
        amax: int | None,
        alpha: Any,
        beta: Any,
        bias: int | None,
        aux: int | None,
    ) -> Check:
        return stream.run("numpy", plan, a, b, out, c, scale_a, scale_b, scale_out, amax, alpha, beta, bias, aux)

    @launches(MatmulBgrad)
    def backward(
        self,
        stream: CpuStream,
        plan: Plan,
        a: int,
        b: int,
        out: int,
        c: int | None,
        scale_a: int | None,
        scale_b: int | None,
        scale_out: int | None,
        amax: int | None,
        alpha: Any,
        beta: Any,
        aux: int | None,
        bias_grad: int | None,
    ) -> Check:
        return stream.run("numpy", plan, a, b, out, c, scale_a, scale_b, scale_out, amax, alpha, beta, aux, bias_grad)
