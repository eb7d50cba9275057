"""``SparseLtFace``: what stands behind ``dev.sparse_lt``.

One method per message, named after it, with the message's fields as parameters; the message's docstring says what
they mean. Everything raises at the call ``TypeError`` (not a ref, not a number), ``ShapeError``, ``UnsupportedOp``,
``DeviceMismatch``, ``GpuRefStale`` and ``MailboxFull``, and sends nothing then.
"""

from typing import Literal

from callboard.core.dtype import DTypeLike
from callboard.core.mode import Mode
from callboard.core.operand import Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.face import Face
from callboard.kernel.sparse_lt.products import Activation, Linear, Matmul
from callboard.kernel.sparse_lt.pruning import Check, Compress, Decompress, Prune
from callboard.kernel.sparse_lt.structured import StructuredRef

__all__ = ["SparseLtFace"]


class SparseLtFace(Face[Mode]):
    """Structured matrices on a device."""

    __slots__ = ()

    def prune(
        self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None, algorithm: Literal["strip", "tile"] = "strip"
    ) -> GpuRef[Mode]:
        """``x`` with 0 in the place of so many elements that the rest is 2:4, by magnitude."""
        answer: GpuRef[Mode] = self._submit(Prune(x=x, out=out, algorithm=algorithm))
        return answer

    def check(self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """Whether ``x`` is 2:4 along its rows: a 0-d i32, 0 where it is, 1 where it is not."""
        answer: GpuRef[Mode] = self._submit(Check(x=x, out=out))
        return answer

    def compress(self, x: GpuRef[Mode], *, out: StructuredRef | None = None) -> StructuredRef:
        """The compressed form of a matrix that is 2:4 along its rows; ``ShapeError`` when awaited, if it is not."""
        answer: StructuredRef = self._submit(Compress(x=x, out=out))
        return answer

    def decompress(self, a: StructuredRef, *, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """The matrix with its zeros."""
        answer: GpuRef[Mode] = self._submit(Decompress(a=a, out=out))
        return answer

    def matmul(
        self,
        a: StructuredRef,
        b: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        bias: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        activation: Activation | None = None,
        out_dtype: DTypeLike | None = None,
        autotune: bool = False,
    ) -> GpuRef[Mode]:
        """``activation(alpha * a @ b + beta * c + bias)`` with a structured ``a``."""
        answer: GpuRef[Mode] = self._submit(
            Matmul(
                a=a,
                b=b,
                out=out,
                c=c,
                bias=bias,
                alpha=alpha,
                beta=beta,
                activation=activation,
                out_dtype=out_dtype,
                autotune=autotune,
            )
        )
        return answer

    def linear(
        self,
        x: GpuRef[Mode],
        w: StructuredRef,
        *,
        out: GpuRef[Mode] | None = None,
        c: GpuRef[Mode] | None = None,
        bias: GpuRef[Mode] | None = None,
        alpha: Scalar = 1.0,
        beta: Scalar = 0.0,
        activation: Activation | None = None,
        out_dtype: DTypeLike | None = None,
        autotune: bool = False,
    ) -> GpuRef[Mode]:
        """``activation(alpha * x @ w.T + beta * c + bias)`` with a structured ``w``: a layer."""
        answer: GpuRef[Mode] = self._submit(
            Linear(
                x=x,
                w=w,
                out=out,
                c=c,
                bias=bias,
                alpha=alpha,
                beta=beta,
                activation=activation,
                out_dtype=out_dtype,
                autotune=autotune,
            )
        )
        return answer
