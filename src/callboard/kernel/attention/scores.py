"""Score parameters shared by all attention messages: scale, masks, bias, sinks, lengths, dropout."""

import math
from typing import ClassVar, Literal, NamedTuple, TypeVar

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout
from callboard.core.op import Op
from callboard.core.operand import In, Operand, Whole
from callboard.kernel.attention.actor import FlashAttnActor
from callboard.kernel.attention.problem import FLOATS, SeqLayout, Tensor, lse_dtype, tensor_of, vector
from callboard.kernel.checks import refuse

__all__ = ["Alignment", "AttentionParams", "Masked", "Problem", "Scores"]

R_co = TypeVar("R_co", covariant=True)
Alignment = Literal["bottom_right", "top_left"]


class AttentionParams(NamedTuple):
    """The parameters of a score other than the operands.

    Attributes:
        scale: Factor of the products of queries and keys.
        left, right: A query at position ``i`` attends to keys from ``i - left`` to ``i + right``; -1: no bound on that
            side.
        bottom_right: Positions of queries are aligned such that the last query has the position of the last key.
        softcap: Scores become ``softcap * tanh(score / softcap)``; 0 leaves them.
        dropout: The share of the probabilities that becomes 0.
    """

    scale: float
    left: int
    right: int
    bottom_right: bool
    softcap: float
    dropout: float


class Problem(NamedTuple):
    """A call of attention by meaning.

    Attributes:
        dtype: The dtype of queries, keys and values.
        batch: Sequences.
        heads, kv_heads: Number of query heads, and number of heads of keys and values; each of the latter serves
            ``heads // kv_heads`` query heads.
        dim, dim_v: Head dims of queries and keys, and of values.
        seq_q, seq_k: The longest sequence that the call may have.
        ragged: Sequences are packed; ``cu_seqlens_q`` has their offsets.
        params: The other parameters of a score.
    """

    dtype: DType
    batch: int
    heads: int
    kv_heads: int
    dim: int
    dim_v: int
    seq_q: int
    seq_k: int
    ragged: bool
    params: AttentionParams

    @property
    def group(self) -> int:
        """Heads of queries that share one head of keys."""
        return self.heads // self.kv_heads


class Masked(Op[FlashAttnActor, R_co]):
    """Base of all messages, including paged ones; not sent itself."""

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS

    sink: In | None = None
    alibi_slopes: In | None = None
    cu_seqlens_q: In | None = None
    max_seqlen_q: int | None = None
    softmax_scale: float | None = None
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0

    def params(self, dim: int) -> AttentionParams:
        """The settings, checked.

        Raises:
            ShapeError: One is out of its range.
        """
        left, right = self.window_size
        if min(left, right) < -1:
            raise refuse(self, f"window_size is {self.window_size}; sides are >= 0, or -1 for no limit")
        if self.causal and right > 0:
            raise refuse(
                self,
                f"window_size is {self.window_size} and causal hides all later keys; pass ({left}, 0) or ({left}, -1)",
            )
        if not (self.softcap >= 0 and math.isfinite(self.softcap)):
            raise refuse(self, f"softcap is {self.softcap}; it must be positive, or 0 for none")
        scale = 1 / math.sqrt(dim) if self.softmax_scale is None else self.softmax_scale
        if not math.isfinite(scale):
            raise refuse(self, f"softmax_scale is {scale}; it must be finite")
        return AttentionParams(scale, left, 0 if self.causal else right, True, self.softcap, 0.0)

    def check_heads(self, dtype: DType, batch: int, heads: int) -> None:
        """Operands that have a number for each head.

        Raises:
            ShapeError: One does not fit.
        """
        kept = lse_dtype(dtype)
        if self.sink is not None:
            vector(self, "sink", self.sink, kept, heads, "a score for each head that no value belongs to")
        if self.alibi_slopes is not None:
            slopes = self.alibi_slopes.layout
            fits = slopes.shape in ((heads,), (batch, heads))
            if slopes.dtype is not kept or not fits or not slopes.contiguous:
                raise refuse(
                    self,
                    f"alibi_slopes is {slopes!r}, expected {kept}[{heads}] or {kept}[{batch}, {heads}] without gaps",
                )

    def longest(self, which: str, said: int | None, rows: int, *, ragged: bool) -> int:
        """Return the longest sequence of queries (``"q"``) or keys, given the number of rows.

        Raises:
            ShapeError: ``max_seqlen`` is given but sequences are not packed, or it is negative.
        """
        if said is None:
            return rows
        if not ragged:
            raise refuse(self, f"max_seqlen_{which} is {said}; only packed sequences (cu_seqlens_{which}) have it")
        if said < 0:
            raise refuse(self, f"max_seqlen_{which} is {said}; it must not be negative")
        return min(said, rows)


class Scores(Masked[R_co]):
    """Base of the messages over whole arrays; not sent itself. The fields are documented in ``Forward``."""

    bias: In | None = None
    cu_seqlens_k: In | None = None
    seqlens_q: In | None = None
    seqlens_k: In | None = None
    dropout_seed: Whole = 0
    dropout_offset: Whole = 0
    max_seqlen_k: int | None = None
    alignment: Alignment = "bottom_right"
    dropout_p: float = 0.0
    layout: SeqLayout = "bshd"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("dropout_seed", 2**64), ("dropout_offset", 2**32)):
            if not 0 <= getattr(self, name) < most:
                raise refuse(self, f"{name} is {getattr(self, name)}; it must lie between 0 and {most - 1}")

    def params(self, dim: int) -> AttentionParams:
        if not 0 <= self.dropout_p < 1:
            raise refuse(self, f"dropout_p is {self.dropout_p}; it must lie in [0, 1)")
        params = super().params(dim)
        return params._replace(bottom_right=self.alignment == "bottom_right", dropout=self.dropout_p)

    def problem_of(self, q: Operand, k: Operand, v: Operand) -> Problem:
        """Extents and settings of a call with these operands, all of which have been checked.

        Raises:
            ShapeError: They do not fit; names operand and value.
        """
        dtype = q.dtype
        for name, x in (("k", k), ("v", v)):
            if x.dtype is not dtype:
                raise refuse(
                    self, f"{name} is {x.layout!r} and q is {q.layout!r}; all must have one dtype (dev.array.cast)"
                )
        if dtype not in (self.dtypes or ()):
            names = ", ".join(d.name for d in self.dtypes or ())
            raise refuse(self, f"q is {q.layout!r}; its dtype must be one of {names}")
        queries, keys, values = (tensor_of(self, n, x.layout, self.layout) for n, x in (("q", q), ("k", k), ("v", v)))
        if (keys.batch, keys.rows, keys.heads) != (values.batch, values.rows, values.heads) or k.ndim != v.ndim:
            raise refuse(self, f"v is {v.layout!r} and k is {k.layout!r}; they differ in more than the head dim")
        if queries.dim != keys.dim:
            raise refuse(self, f"q is {q.layout!r} and k is {k.layout!r}; their head dims must be equal")
        if queries.heads % keys.heads:
            raise refuse(
                self,
                f"q is {q.layout!r} with {queries.heads} heads and k has {keys.heads}; each head of k serves a whole "
                f"number of heads of q",
            )
        if queries.batch != keys.batch or q.ndim != k.ndim:
            raise refuse(self, f"q is {q.layout!r} and k is {k.layout!r}; both must have the same sequences")
        ragged = self.cu_seqlens_q is not None or self.cu_seqlens_k is not None
        batch = self._batch(queries, q.ndim, ragged)
        seq_q = self.longest("q", self.max_seqlen_q, queries.rows, ragged=ragged)
        seq_k = self.longest("k", self.max_seqlen_k, keys.rows, ragged=ragged)
        problem = Problem(
            dtype, batch, queries.heads, keys.heads, keys.dim, values.dim, seq_q, seq_k, ragged, self.params(keys.dim)
        )
        self.check_extras(problem)
        return problem

    def _batch(self, queries: Tensor, ndim: int, ragged: bool) -> int:
        if not ragged:
            return queries.batch
        if self.cu_seqlens_q is None or self.cu_seqlens_k is None:
            missing = "cu_seqlens_q" if self.cu_seqlens_q is None else "cu_seqlens_k"
            raise refuse(self, f"{missing} is None; packed sequences have both cu_seqlens_q and cu_seqlens_k")
        if ndim != 3:
            raise refuse(self, "cu_seqlens_q is given; packed sequences are [tokens, heads, head_dim]")
        if self.cu_seqlens_q.ndim != 1 or self.cu_seqlens_q.size < 2:
            raise refuse(self, f"cu_seqlens_q is {self.cu_seqlens_q.layout!r}; it must be i32[sequences + 1]")
        batch = self.cu_seqlens_q.size - 1
        for name, x in (("cu_seqlens_q", self.cu_seqlens_q), ("cu_seqlens_k", self.cu_seqlens_k)):
            vector(self, name, x, DTYPES["i32"], batch + 1, "where each sequence begins, and where the last one ends")
        return batch

    def check_extras(self, problem: Problem) -> None:
        """Operands other than queries, keys and values.

        Raises:
            ShapeError: One does not fit.
        """
        for name, x in (("seqlens_q", self.seqlens_q), ("seqlens_k", self.seqlens_k)):
            if x is not None:
                if problem.ragged:
                    raise refuse(self, f"{name} is given; the lengths of packed sequences are those of cu_seqlens")
                vector(self, name, x, DTYPES["i32"], problem.batch, "the length of each sequence")
        self.check_heads(problem.dtype, problem.batch, problem.heads)
        if self.bias is not None:
            self._check_bias(problem, self.bias.layout)

    def _check_bias(self, problem: Problem, bias: Layout) -> None:
        if problem.ragged:
            raise refuse(self, "bias is given; packed sequences have none: pad them (seqlens_q, seqlens_k)")
        full = (problem.batch, problem.heads, problem.seq_q, problem.seq_k)
        fits = bias.ndim == 4 and all(have in (1, want) for have, want in zip(bias.shape[:3], full[:3], strict=True))
        fits = fits and bias.shape[3] == full[3]
        if bias.dtype not in (problem.dtype, lse_dtype(problem.dtype)) or not fits:
            raise refuse(
                self,
                f"bias is {bias!r}, expected {problem.dtype}{list(full)}; of its first three extents each may be 1",
            )
        if bias.shape[3] > 1 and bias.strides[3] != 1 and bias.size:
            raise refuse(self, f"bias is {bias!r}; its last axis must have no gaps: copy it first (dev.copy)")
