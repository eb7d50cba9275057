"""Attention over keys and values in pages, and writes to the pages."""

from typing import Any, ClassVar, Generic, NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.attention.actor import FlashAttnActor
from callboard.kernel.attention.forward import AttentionResult
from callboard.kernel.attention.problem import FLOATS, lse_dtype, tensor_of, vector
from callboard.kernel.attention.scores import Masked, Problem
from callboard.kernel.checks import refuse

__all__ = ["KvPages", "PageAppend", "PageCopy", "PagedForward"]


class KvPages(NamedTuple, Generic[Mode]):
    """Pages of keys and of values, as they are after the call."""

    k_pages: GpuRef[Mode]
    v_pages: GpuRef[Mode]


class PagedForward(Masked[AttentionResult], tag="attention.paged_forward"):
    """Attention of new queries over cached keys and values in pages: decoding and chunked prefill (``PagedAttention``).

    Args:
        q: The last queries of each sequence: ``[batch, seq_q, heads, head_dim]`` (decoding: ``seq_q`` is 1), or
            ``[tokens, heads, head_dim]`` of one sequence, or with ``cu_seqlens_q`` of several with different numbers of
            queries. f16, bf16, f32 or f64.
        k_pages: ``[num_blocks, block_size, kv_heads, head_dim]``, dtype of ``q``; the last axis without gaps.
        v_pages: Pages of the values, likewise; the head dim may differ.
        block_tables: ``i32[batch, max_blocks]``: the pages of each sequence in order; entries after the last page are
            not read.
        seqlens_k: ``i32[batch]``: keys of each sequence, those of the new queries included.
        out: Shape and dtype of ``q``, but with the head dim of ``v_pages``; a new row-major array when None.
        lse: ``[batch, heads, seq_q]``, of three axes ``[tokens, heads]``; f32, f64 for f64.
        causal: True if a query attends only to keys up to its own position; the last query has the position of the last
            key.
        sink, alibi_slopes, cu_seqlens_q, max_seqlen_q, softmax_scale, window_size, softcap: See
            :class:`~callboard.kernel.attention.Forward`.

    Lengths or pages that do not exist fail the call with ``ShapeError`` when they are met (Kwon et al.,
    "PagedAttention", arXiv:2309.06180).
    """

    returns: ClassVar[tuple[str, ...]] = ("out", "lse")
    results: ClassVar[type[Any] | None] = AttentionResult

    q: In
    k_pages: In
    v_pages: In
    block_tables: In
    seqlens_k: In
    out: Out | None = None
    lse: Out | None = None

    def problem(self) -> Problem:
        """Extents and settings, checked; raises as :meth:`infer`."""
        queries = tensor_of(self, "q", self.q.layout, "bshd")
        keys, values = checked_pages(self, self.q.dtype, self.k_pages, self.v_pages)
        if queries.dim != keys[3]:
            raise refuse(
                self, f"q is {self.q.layout!r} and k_pages is {self.k_pages.layout!r}; head dims must be equal"
            )
        if queries.heads % keys[2]:
            raise refuse(
                self,
                f"q is {self.q.layout!r} with {queries.heads} heads and k_pages has {keys[2]}; each head of k_pages "
                f"serves a whole number of heads of q",
            )
        ragged = self.cu_seqlens_q is not None
        batch = queries.batch
        if self.cu_seqlens_q is not None:
            if self.q.ndim != 3 or self.cu_seqlens_q.ndim != 1 or self.cu_seqlens_q.size < 2:
                raise refuse(
                    self,
                    f"cu_seqlens_q is {self.cu_seqlens_q.layout!r} and q is {self.q.layout!r}; packed queries are "
                    f"[tokens, heads, head_dim] with i32[sequences + 1]",
                )
            batch = self.cu_seqlens_q.size - 1
            vector(self, "cu_seqlens_q", self.cu_seqlens_q, DTYPES["i32"], batch + 1, "where each sequence begins")
        tables = self.block_tables.layout
        if tables.dtype.name != "i32" or tables.ndim != 2 or tables.shape[0] != batch or not tables.contiguous:
            raise refuse(self, f"block_tables is {tables!r}, expected i32[{batch}, max_blocks] without gaps")
        vector(self, "seqlens_k", self.seqlens_k, DTYPES["i32"], batch, "the keys of each sequence")
        self.check_heads(self.q.dtype, batch, queries.heads)
        seq_q = self.longest("q", self.max_seqlen_q, queries.rows, ragged=ragged)
        return Problem(
            self.q.dtype,
            batch,
            queries.heads,
            keys[2],
            keys[3],
            values[3],
            seq_q,
            tables.shape[1] * keys[1],
            ragged,
            self.params(queries.dim),
        )

    def infer(self) -> Outputs:
        problem = self.problem()
        if self.out is not None:
            tensor_of(self, "out", self.out.layout, "bshd")
        shape = self.q.shape
        rows = shape[:2] if len(shape) == 3 else (shape[0], shape[2], shape[1])
        return {
            "out": layout_of(problem.dtype, (*shape[:-1], problem.dim_v)),
            "lse": layout_of(lse_dtype(problem.dtype), rows),
        }


class PageAppend(Op[FlashAttnActor, KvPages], tag="attention.page_append"):
    """Write keys and values of new tokens to their places in pages.

    Args:
        k: ``[tokens, kv_heads, head_dim]``, dtype of the pages, any strides.
        v: The values, likewise, with their head dim.
        k_pages: ``[num_blocks, block_size, kv_heads, head_dim]``; f16, bf16, f32 or f64.
        v_pages: Pages of the values, likewise.
        slots: ``i64[tokens]``: where each goes, ``block * block_size + position``; a negative one is not written. No
            two are equal. One beyond the pages fails the call with ``ShapeError``, and is not written; the next op
            that uses the pages fails with it.
    """

    keeps = True
    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("k_pages", "v_pages")
    results: ClassVar[type[Any] | None] = KvPages

    k: In
    v: In
    k_pages: InOut
    v_pages: InOut
    slots: In

    def infer(self) -> Outputs:
        keys, values = checked_pages(self, self.k.dtype, self.k_pages, self.v_pages)
        for name, x, pages in (("k", self.k, keys), ("v", self.v, values)):
            if x.ndim != 3 or x.dtype is not self.k.dtype or x.shape[1:] != pages[2:]:
                raise refuse(
                    self,
                    f"{name} is {x.layout!r}, expected {self.k.dtype}[tokens, {pages[2]}, {pages[3]}] as the pages",
                )
        vector(self, "slots", self.slots, DTYPES["i64"], self.k.shape[0], "the place of each token")
        if self.v.shape[0] != self.k.shape[0]:
            raise refuse(self, f"v is {self.v.layout!r} and k is {self.k.layout!r}; both must have the same tokens")
        return {}


class PageCopy(Op[FlashAttnActor, KvPages], tag="attention.page_copy"):
    """Copy whole pages, before a write to a shared page.

    Args:
        k_pages, v_pages: See :class:`PageAppend`.
        sources, targets: ``i32[n]``: page ``targets[i]`` becomes a copy of ``sources[i]``. No target is a source, or
            a target twice. A page that does not exist fails the call with ``ShapeError``, and is not copied; the next
            op that uses the pages fails with it.
    """

    keeps = True
    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("k_pages", "v_pages")
    results: ClassVar[type[Any] | None] = KvPages

    k_pages: InOut
    v_pages: InOut
    sources: In
    targets: In

    def infer(self) -> Outputs:
        checked_pages(self, self.k_pages.dtype, self.k_pages, self.v_pages)
        count = self.sources.size
        vector(self, "sources", self.sources, DTYPES["i32"], count, "pages")
        vector(self, "targets", self.targets, DTYPES["i32"], count, "as many pages")
        return {}


def checked_pages(op: Op[Any, Any], dtype: DType, k: Operand, v: Operand) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of pages of keys and of values.

    Raises:
        ShapeError: They are not pages, or do not fit each other.
    """
    if dtype not in FLOATS:
        raise refuse(op, f"dtype is {dtype}; it must be one of {', '.join(d.name for d in FLOATS)}")
    for name, x in (("k_pages", k), ("v_pages", v)):
        layout: Layout = x.layout
        if layout.ndim != 4 or 0 in layout.shape[1:] or (layout.shape[-1] > 1 and layout.strides[-1] != 1):
            raise refuse(
                op,
                f"{name} is {layout!r}; pages are [num_blocks, block_size, kv_heads, head_dim], the last without gaps",
            )
        if layout.dtype is not dtype:
            raise refuse(op, f"{name} is {layout!r}; expected {dtype}, as the other operands have")
    if k.shape[:3] != v.shape[:3]:
        raise refuse(op, f"v_pages is {v.layout!r} and k_pages is {k.layout!r}; they differ in more than the head dim")
    return k.shape, v.shape
