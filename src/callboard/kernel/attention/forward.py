"""Attention: the weighted sums of values, and the logarithms of the sums of the weights."""

from typing import Any, ClassVar, Generic, NamedTuple

from callboard.core.layout import Layout, layout_of
from callboard.core.mode import Mode
from callboard.core.op import Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.attention.problem import lse_dtype, tensor_of
from callboard.kernel.attention.scores import Problem, Scores

__all__ = ["AttentionResult", "Forward", "lse_layout"]


class AttentionResult(NamedTuple, Generic[Mode]):
    """The result of attention.

    Attributes:
        out: Shape and dtype of the queries, but with the head dim of the values.
        lse: Natural logarithm of the sum of the exponentials of each query's scores, f32 (f64 for f64).
    """

    out: GpuRef[Mode]
    lse: GpuRef[Mode]


class Forward(Scores[AttentionResult], tag="attention.forward"):
    """``softmax(scale * q @ k.T) @ v`` for each head, never storing the scores (``FlashAttnMsg.Forward``).

    Args:
        q: ``[batch, seq_q, heads, head_dim]`` (``layout="bhsd"``: ``[batch, heads, seq_q, head_dim]``), or ``[tokens,
            heads, head_dim]``: one sequence, or with ``cu_seqlens_q`` several packed one after the other. f16, bf16,
            f32 or f64; the last axis without gaps, any other strides.
        k: ``[batch, seq_k, kv_heads, head_dim]``, in the order of ``layout``. ``kv_heads`` divides ``heads``: each head
            of keys serves ``heads // kv_heads`` adjacent query heads (grouped-query attention; 1: multi-query).
        v: Shape and dtype of ``k``; its head dim may be another.
        out: Shape and dtype of ``q``, but with the head dim of ``v``; a new row-major array when None.
        lse: ``[batch, heads, seq_q]``, or ``[tokens, heads]`` for operands with three axes; f32, f64 for f64. It is
            -inf for a query without visible keys, whose ``out`` is 0. With ``sink`` it includes the sink.
        bias: Added to the scores: ``[batch, heads, seq_q, seq_k]``, any of the first three extents may be 1; dtype of
            ``q`` or of ``lse``. An additive mask is a bias of 0 and -inf.
        sink: ``[heads]``, dtype of ``lse``: one more score for each query of a head, to which no value belongs.
        alibi_slopes: ``[heads]`` or ``[batch, heads]``, dtype of ``lse``: scores lose ``slope * distance`` of query and
            key (Press, Smith, Lewis, arXiv:2108.12409).
        cu_seqlens_q, cu_seqlens_k: ``i32[sequences + 1]``: where each packed sequence begins, ascending from 0.
        seqlens_q, seqlens_k: ``i32[batch]``: lengths of padded sequences. Keys after them are not seen; ``out`` of
            queries after them is 0 and ``lse`` -inf.
        dropout_seed, dropout_offset: 64-bit integers that name the numbers of the dropout, with the place of the score:
            equal ones give the same mask on every device, before and after a context was lost, and in the gradient.
        max_seqlen_q, max_seqlen_k: The longest packed sequence, which saves work; longer ones are refused.
        softmax_scale: ``1 / sqrt(head_dim)`` when None.
        causal: True if a query attends only to keys up to its own position.
        alignment: Alignment of queries to keys: ``"bottom_right"`` counts positions from the last key (as in
            FlashAttention, and for a sequence whose first keys are cached), ``"top_left"`` from the first
            (``is_causal`` of PyTorch). The two are the same for equal lengths.
        window_size: ``(left, right)``: a query attends to that many keys before and after its position; -1: all.
        softcap: Scores become ``softcap * tanh(score / softcap)``, before bias and masks; 0: as they are.
        dropout_p: Share of the probabilities that becomes 0; the others are divided by ``1 - dropout_p``.
        layout: Order of the axes of operands with four.

    Scores, sums and ``lse`` are kept in f32 (f64 for f64). Lengths that do not fit (``cu_seqlens`` that descends or
    leaves the tokens, a length beyond the padded one) fail the call with ``ShapeError`` when they are met.
    The algorithm is FlashAttention-2 (Dao, arXiv:2307.08691).
    """

    returns: ClassVar[tuple[str, ...]] = ("out", "lse")
    results: ClassVar[type[Any] | None] = AttentionResult

    q: In
    k: In
    v: In
    out: Out | None = None
    lse: Out | None = None

    def problem(self) -> Problem:
        """Extents and settings, checked; raises as :meth:`infer`."""
        return self.problem_of(self.q, self.k, self.v)

    def infer(self) -> Outputs:
        problem = self.problem()
        if self.out is not None:
            tensor_of(self, "out", self.out.layout, self.layout)
        shape = (*self.q.shape[:-1], problem.dim_v)
        return {"out": layout_of(problem.dtype, shape), "lse": lse_layout(self, problem, self.q.shape)}


def lse_layout(op: Scores[Any], problem: Problem, shape: tuple[int, ...]) -> Layout:
    """The layout of the log-sum-exps beside queries of this shape."""
    if len(shape) == 3:
        return layout_of(lse_dtype(problem.dtype), shape[:2])
    return layout_of(lse_dtype(problem.dtype), (shape[0], problem.heads, shape[2 if op.layout == "bhsd" else 1]))
