"""The gradients of attention."""

from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.attention.actor import FlashAttnActor
from callboard.kernel.attention.forward import lse_layout
from callboard.kernel.attention.problem import FLOATS, SeqLayout, lse_dtype, tensor_of, vector
from callboard.kernel.attention.scores import Problem, Scores
from callboard.kernel.checks import refuse

__all__ = ["AttentionBiasGradients", "AttentionGradients", "Backward", "BackwardBias", "BackwardSink", "Gradient"]

R_co = TypeVar("R_co", covariant=True)


class AttentionGradients(NamedTuple, Generic[Mode]):
    """Gradients, each of the shape and dtype of its operand."""

    dq: GpuRef[Mode]
    dk: GpuRef[Mode]
    dv: GpuRef[Mode]


class AttentionBiasGradients(NamedTuple, Generic[Mode]):
    """Gradients, each of the shape and dtype of its operand."""

    dq: GpuRef[Mode]
    dk: GpuRef[Mode]
    dv: GpuRef[Mode]
    dbias: GpuRef[Mode]


class Gradient(Scores[R_co]):
    """Base of both messages; not sent itself. The fields are documented in ``Backward``."""

    dout: In
    q: In
    k: In
    v: In
    out: In
    lse: In
    dq: Out | None = None
    dk: Out | None = None
    dv: Out | None = None
    deterministic: bool = False

    def problem(self) -> Problem:
        """Extents and settings, checked; raises as :meth:`infer`."""
        problem = self.problem_of(self.q, self.k, self.v)
        want = layout_of(problem.dtype, (*self.q.shape[:-1], problem.dim_v))
        for name, x in (("out", self.out), ("dout", self.dout)):
            tensor_of(self, name, x.layout, self.layout)
            if x.dtype is not want.dtype or x.shape != want.shape:
                raise refuse(self, f"{name} is {x.layout!r}, expected {want!r}, as attention.forward gives it")
        lse = lse_layout(self, problem, self.q.shape)
        if self.lse.dtype is not lse.dtype or self.lse.shape != lse.shape:
            raise refuse(self, f"lse is {self.lse.layout!r}, expected {lse!r}, as attention.forward gives it")
        for name in ("dq", "dk", "dv"):
            given: Operand | None = getattr(self, name)
            if given is not None:
                tensor_of(self, name, given.layout, self.layout)
        return problem

    def infer(self) -> Outputs:
        self.problem()
        return {f"d{name}": layout_of(x.dtype, x.shape) for name, x in (("q", self.q), ("k", self.k), ("v", self.v))}


class Backward(Gradient[AttentionGradients], tag="attention.backward"):
    """The gradients of ``attention.forward`` in ``q``, ``k`` and ``v`` (``FlashAttnMsg.Backward``).

    Args:
        dout: Gradient of ``out``; its shape and dtype.
        q, k, v: See :class:`~callboard.kernel.attention.Forward`.
        out, lse: Results of the forward call. Gradients with respect to ``lse`` are not supported.
        dq, dk, dv: Shape and dtype of ``q``, ``k`` and ``v``; new row-major arrays when None. Heads of queries that
            share one of keys are summed.
        deterministic: Sums are taken in a fixed order, so that equal calls give equal bits; slower where cuDNN serves
            it. The CPU and our own kernels always do.

    All other fields are those of ``attention.forward`` and must have its values, the names of the dropout's numbers
    too; ``sink`` is in ``lse`` already and is not read (its own gradient: :class:`BackwardSink`). Scores are computed
    again from ``q``, ``k`` and ``lse`` (Dao, arXiv:2307.08691).
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dq", "dk", "dv")
    results: ClassVar[type[Any] | None] = AttentionGradients


class BackwardBias(Gradient[AttentionBiasGradients], tag="attention.backward_bias"):
    """The same, and the gradient of the bias.

    Args:
        bias: See :class:`~callboard.kernel.attention.Forward`.
        dbias: Shape and dtype of ``bias``, without gaps; a new array when None. Summed over the axes along which the
            bias is repeated.

    All other fields are those of :class:`~callboard.kernel.attention.Backward`.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dq", "dk", "dv", "dbias")
    results: ClassVar[type[Any] | None] = AttentionBiasGradients

    bias: In  # pyright: ignore[reportGeneralTypeIssues] - of messages all fields are keywords
    dbias: Out | None = None

    def infer(self) -> Outputs:
        made = dict(super().infer())
        layout = layout_of(self.bias.dtype, self.bias.shape)
        if self.dbias is not None and self.dbias.layout != layout:
            raise refuse(self, f"dbias is {self.dbias.layout!r}, expected {layout!r} without gaps")
        return made | {"dbias": layout}


class BackwardSink(Op[FlashAttnActor, GpuRef], tag="attention.backward_sink"):
    """The gradient of ``attention.forward`` in ``sink``.

    Args:
        dout: Gradient of ``out``; its shape and dtype.
        out, lse: Results of ``attention.forward`` with the sink.
        sink: The sink passed to the forward call.
        dsink: ``[heads]``, dtype of ``lse``; a new array when None.
        layout: Layout of the forward call.

    ``-sum(exp(sink - lse) * sum(dout * out))`` over all queries of a head.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dsink",)

    dout: In
    out: In
    lse: In
    sink: In
    dsink: Out | None = None
    layout: SeqLayout = "bshd"

    def infer(self) -> Outputs:
        one = tensor_of(self, "out", self.out.layout, self.layout)
        tensor_of(self, "dout", self.dout.layout, self.layout)
        dtype = self.out.dtype
        if dtype not in FLOATS:
            raise refuse(
                self, f"out is {self.out.layout!r}; its dtype must be one of {', '.join(d.name for d in FLOATS)}"
            )
        if self.dout.dtype is not dtype or self.dout.shape != self.out.shape:
            raise refuse(self, f"dout is {self.dout.layout!r} and out is {self.out.layout!r}; both must be alike")
        shape = self.out.shape[:2] if self.out.ndim == 3 else (one.batch, one.heads, one.rows)
        lse = layout_of(lse_dtype(dtype), shape)
        if self.lse.dtype is not lse.dtype or self.lse.shape != lse.shape:
            raise refuse(self, f"lse is {self.lse.layout!r}, expected {lse!r}, as attention.forward gives it")
        vector(self, "sink", self.sink, lse.dtype, one.heads, "a score for each head that no value belongs to")
        made = layout_of(lse.dtype, (one.heads,))
        if self.dsink is not None and not self.dsink.layout.contiguous:
            raise refuse(self, f"dsink is {self.dsink.layout!r}, expected {made!r} without gaps")
        return {"dsink": made}
