"""``TensorFace``: what stands behind ``dev.tensor``.

One method per message, named after it, with the message's fields as parameters; the message's docstring says what
they mean. Everything raises at the call ``TypeError`` (not a ref, not a number, no such operator), ``ShapeError``,
``DeviceMismatch``, ``GpuRefStale`` and ``MailboxFull``, and sends nothing then.
"""

from callboard.core.mode import Mode
from callboard.core.operand import Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.face import Face
from callboard.kernel.tensor.checks import Compute
from callboard.kernel.tensor.contraction import Contract, Einsum
from callboard.kernel.tensor.elementwise import ElementwiseBinary, ElementwiseTrinary, Permutation, Reduction
from callboard.kernel.tensor.modes import Modes
from callboard.kernel.tensor.network import Optimize
from callboard.kernel.tensor.operators import Binary, Conj, Unary

__all__ = ["TensorFace"]


class TensorFace(Face[Mode]):
    """Contractions and element-wise work on a device."""

    __slots__ = ()

    def contract(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        modes_a: Modes,
        modes_b: Modes,
        modes_out: Modes,
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        op_a: Conj = "identity",
        op_b: Conj = "identity",
        op_c: Conj = "identity",
        compute: Compute | None = None,
        autotune: bool = False,
    ) -> GpuRef[Mode]:
        """``out[modes_out] = alpha * sum(op_a(a)[modes_a] * op_b(b)[modes_b]) + beta * op_c(c)[modes_out]``."""
        answer: GpuRef[Mode] = self._submit(
            Contract(
                a=a,
                b=b,
                modes_a=modes_a,
                modes_b=modes_b,
                modes_out=modes_out,
                out=out,
                c=c,
                alpha=alpha,
                beta=beta,
                op_a=op_a,
                op_b=op_b,
                op_c=op_c,
                compute=compute,
                autotune=autotune,
            )
        )
        return answer

    def einsum(
        self,
        equation: str,
        *operands: GpuRef[Mode],
        out: GpuRef[Mode] | None = None,
        optimize: Optimize = "auto",
        compute: Compute | None = None,
        autotune: bool = False,
    ) -> GpuRef[Mode]:
        """The sum of products that ``equation`` names, as ``numpy.einsum``."""
        answer: GpuRef[Mode] = self._submit(
            Einsum(equation=equation, operands=operands, out=out, optimize=optimize, compute=compute, autotune=autotune)
        )
        return answer

    def reduction(
        self,
        a: GpuRef[Mode],
        modes_a: Modes,
        modes_out: Modes,
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        op_reduce: Binary = "add",
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        op_a: Unary = "identity",
        op_c: Unary = "identity",
    ) -> GpuRef[Mode]:
        """``out[modes_out] = alpha * op_reduce(op_a(a)[modes_a]) + beta * op_c(c)[modes_out]``."""
        answer: GpuRef[Mode] = self._submit(
            Reduction(
                a=a,
                modes_a=modes_a,
                modes_out=modes_out,
                out=out,
                c=c,
                op_reduce=op_reduce,
                alpha=alpha,
                beta=beta,
                op_a=op_a,
                op_c=op_c,
            )
        )
        return answer

    def permutation(
        self,
        a: GpuRef[Mode],
        modes_a: Modes,
        modes_out: Modes,
        *,
        out: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        op_a: Unary = "identity",
    ) -> GpuRef[Mode]:
        """``out[modes_out] = alpha * op_a(a)[modes_a]``."""
        answer: GpuRef[Mode] = self._submit(
            Permutation(a=a, modes_a=modes_a, modes_out=modes_out, out=out, alpha=alpha, op_a=op_a)
        )
        return answer

    def elementwise_binary(
        self,
        a: GpuRef[Mode],
        c: GpuRef[Mode],
        modes_a: Modes,
        modes_out: Modes,
        *,
        out: GpuRef[Mode] | None = None,
        op_ac: Binary = "add",
        alpha: Scalar = 1.0,
        gamma: Scalar = 1.0,
        op_a: Unary = "identity",
        op_c: Unary = "identity",
    ) -> GpuRef[Mode]:
        """``out[modes_out] = op_ac(alpha * op_a(a)[modes_a], gamma * op_c(c)[modes_out])``."""
        answer: GpuRef[Mode] = self._submit(
            ElementwiseBinary(
                a=a,
                c=c,
                modes_a=modes_a,
                modes_out=modes_out,
                out=out,
                op_ac=op_ac,
                alpha=alpha,
                gamma=gamma,
                op_a=op_a,
                op_c=op_c,
            )
        )
        return answer

    def elementwise_trinary(
        self,
        a: GpuRef[Mode],
        b: GpuRef[Mode],
        c: GpuRef[Mode],
        modes_a: Modes,
        modes_b: Modes,
        modes_out: Modes,
        *,
        out: GpuRef[Mode] | None = None,
        op_ab: Binary = "add",
        op_abc: Binary = "add",
        alpha: Scalar = 1.0,
        beta: Scalar = 1.0,
        gamma: Scalar = 1.0,
        op_a: Unary = "identity",
        op_b: Unary = "identity",
        op_c: Unary = "identity",
    ) -> GpuRef[Mode]:
        """``out = op_abc(op_ab(alpha * op_a(a), beta * op_b(b)), gamma * op_c(c))``, each by its modes."""
        answer: GpuRef[Mode] = self._submit(
            ElementwiseTrinary(
                a=a,
                b=b,
                c=c,
                modes_a=modes_a,
                modes_b=modes_b,
                modes_out=modes_out,
                out=out,
                op_ab=op_ab,
                op_abc=op_abc,
                alpha=alpha,
                beta=beta,
                gamma=gamma,
                op_a=op_a,
                op_b=op_b,
                op_c=op_c,
            )
        )
        return answer
