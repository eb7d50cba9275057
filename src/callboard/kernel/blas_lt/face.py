"""``BlasLtFace``: what stands behind ``dev.blas_lt``.

One method per message, named after it, with the message's fields as parameters; the message's docstring says what
they mean. Everything raises at the call ``TypeError`` (not a ref, not a number), ``ShapeError``, ``UnsupportedOp``,
``DeviceMismatch``, ``GpuRefStale`` and ``MailboxFull``, and sends nothing then.
"""

from callboard.core.dtype import DTypeLike
from callboard.core.mode import Mode
from callboard.core.operand import Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.blas_lt.epilogues import AuxEpilogue, BgradEpilogue, Epilogue
from callboard.kernel.blas_lt.matmul import (
    Matmul,
    MatmulAux,
    MatmulBgrad,
    MatmulWithAux,
    MatmulWithBgrad,
)
from callboard.kernel.blas_lt.product import WORKSPACE
from callboard.kernel.face import Face

__all__ = ["BlasLtFace"]


class BlasLtFace(Face[Mode]):
    """Fused matrix products on a device."""

    __slots__ = ()

    def matmul(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        scale_a: GpuRef[Mode] | None = None,
        scale_b: GpuRef[Mode] | None = None,
        scale_out: GpuRef[Mode] | None = None,
        amax: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        epilogue: Epilogue = "none",
        transpose_a: bool = False,
        transpose_b: bool = False,
        out_dtype: DTypeLike | None = None,
        tf32: bool | None = None,
        fast_accum: bool = False,
        deterministic: bool = False,
        autotune: int = 0,
        workspace_size: int = WORKSPACE,
        bias: GpuRef[Mode] | None = None,
        aux: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """``out = activation(alpha * op(a) @ op(b) + beta * c + bias)``; or a product of the backward pass."""
        answer: GpuRef[Mode] = self._submit(
            Matmul(
                a=a,
                b=b,
                out=out,
                c=c,
                scale_a=scale_a,
                scale_b=scale_b,
                scale_out=scale_out,
                amax=amax,
                alpha=alpha,
                beta=beta,
                epilogue=epilogue,
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                out_dtype=out_dtype,
                tf32=tf32,
                fast_accum=fast_accum,
                deterministic=deterministic,
                autotune=autotune,
                workspace_size=workspace_size,
                bias=bias,
                aux=aux,
            )
        )
        return answer

    def matmul_aux(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        scale_a: GpuRef[Mode] | None = None,
        scale_b: GpuRef[Mode] | None = None,
        scale_out: GpuRef[Mode] | None = None,
        amax: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        epilogue: AuxEpilogue = "gelu_aux",
        transpose_a: bool = False,
        transpose_b: bool = False,
        out_dtype: DTypeLike | None = None,
        tf32: bool | None = None,
        fast_accum: bool = False,
        deterministic: bool = False,
        autotune: int = 0,
        workspace_size: int = WORKSPACE,
        bias: GpuRef[Mode] | None = None,
        aux: GpuRef[Mode] | None = None,
    ) -> MatmulWithAux[Mode]:
        """The same with what the backward pass needs: ``out, aux = ...``."""
        answer: MatmulWithAux[Mode] = self._submit(
            MatmulAux(
                a=a,
                b=b,
                out=out,
                c=c,
                scale_a=scale_a,
                scale_b=scale_b,
                scale_out=scale_out,
                amax=amax,
                alpha=alpha,
                beta=beta,
                epilogue=epilogue,
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                out_dtype=out_dtype,
                tf32=tf32,
                fast_accum=fast_accum,
                deterministic=deterministic,
                autotune=autotune,
                workspace_size=workspace_size,
                bias=bias,
                aux=aux,
            )
        )
        return answer

    def matmul_bgrad(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        scale_a: GpuRef[Mode] | None = None,
        scale_b: GpuRef[Mode] | None = None,
        scale_out: GpuRef[Mode] | None = None,
        amax: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        epilogue: BgradEpilogue = "bgrad_b",
        transpose_a: bool = False,
        transpose_b: bool = False,
        out_dtype: DTypeLike | None = None,
        tf32: bool | None = None,
        fast_accum: bool = False,
        deterministic: bool = False,
        autotune: int = 0,
        workspace_size: int = WORKSPACE,
        aux: GpuRef[Mode] | None = None,
        bias_grad: GpuRef[Mode] | None = None,
    ) -> MatmulWithBgrad[Mode]:
        """A product of the backward pass with the gradient of a bias: ``out, bias_grad = ...``."""
        answer: MatmulWithBgrad[Mode] = self._submit(
            MatmulBgrad(
                a=a,
                b=b,
                out=out,
                c=c,
                scale_a=scale_a,
                scale_b=scale_b,
                scale_out=scale_out,
                amax=amax,
                alpha=alpha,
                beta=beta,
                epilogue=epilogue,
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                out_dtype=out_dtype,
                tf32=tf32,
                fast_accum=fast_accum,
                deterministic=deterministic,
                autotune=autotune,
                workspace_size=workspace_size,
                aux=aux,
                bias_grad=bias_grad,
            )
        )
        return answer
