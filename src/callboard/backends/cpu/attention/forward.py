"""Attention of one sequence, block by block (Dao, "FlashAttention-2", arXiv:2307.08691)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cpu.attention.blocks import Extras, blocks, kept, scores, work_dtype
from callboard.backends.cpu.attention.sequences import Array, Lengths, Sequence, heads_first, optional
from callboard.core.operand import Operand
from callboard.kernel.attention import Forward
from callboard.kernel.attention.forward import lse_layout
from callboard.kernel.attention.scores import Problem, Scores
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout

__all__ = ["Draw", "Given", "attend", "forward", "given", "lse_heads_first"]


class Draw(NamedTuple):
    """Which numbers the dropout takes."""

    sequence: int
    seed: int
    offset: int


class Given:
    """What a call was given beside queries, keys and values, by sequence.

    Args:
        op: The message, with placeholders.
        problem: Of it.
    """

    def __init__(self, op: Scores[Any], problem: Problem) -> None:
        self._problem = problem
        self._bias, self._sink, self._slopes = optional(op.bias), optional(op.sink), optional(op.alibi_slopes)

    def extras(self, sequence: Sequence, bias: int | None, slopes: int | None) -> Extras:
        """What is added to the scores of a sequence."""
        added, steep = self._bias(bias), self._slopes(slopes)
        return Extras(
            None if added is None else added[min(sequence.item, added.shape[0] - 1)],
            None if steep is None else steep if steep.ndim == 1 else steep[sequence.index],
        )

    def sink(self, sink: int | None) -> Array | None:
        """The sinks, ``[heads]``."""
        return self._sink(sink)


def given(out: Operand | None, made: Layout) -> Layout:
    """The layout of an output: of what was given, else of what is made."""
    return made if out is None else out.layout


def lse_heads_first(layout: Layout) -> Callable[[int], Array]:
    """A function that gives log-sum-exps as ``[batch, heads, rows]``."""
    view = viewer(layout)
    return (lambda address: view(address).T[None]) if layout.ndim == 2 else view


def forward(op: Forward) -> Callable[..., None]:
    """The work of a message: ``work(bias, sink, …, q, k, v, out, lse)``, with addresses."""
    problem, made = op.problem(), op.infer()
    views = [heads_first(x.layout, op.layout) for x in (op.q, op.k, op.v)]
    view_out = heads_first(given(op.out, made["out"]), op.layout)
    view_lse = lse_heads_first(given(op.lse, made["lse"]))
    rows = [1 if op.layout == "bshd" or x.ndim == 3 else 2 for x in (op.q, op.k)]
    rows = [x.shape[0 if x.ndim == 3 else at] for x, at in zip((op.q, op.k), rows, strict=True)]
    lengths, extra = Lengths(op, problem, *rows), Given(op, problem)

    def work(
        bias: int | None,
        sink: int | None,
        slopes: int | None,
        cu_q: int | None,
        cu_k: int | None,
        seqlens_q: int | None,
        seqlens_k: int | None,
        seed: int,
        offset: int,
        q: int,
        k: int,
        v: int,
        out: int,
        lse: int,
    ) -> None:
        queries, keys, values = (view(address) for view, address in zip(views, (q, k, v), strict=True))
        outs, lses, sinks = view_out(out), view_lse(lse), extra.sink(sink)
        found = list(lengths.sequences(cu_q, cu_k, seqlens_q, seqlens_k))
        outs[...], lses[...] = 0, -np.inf  # of queries that no sequence has
        for s in found:
            at, by = (s.item, slice(None), s.q), (s.item, slice(None), s.k)
            outs[at], lses[at] = attend(
                queries[at],
                keys[by],
                values[by],
                problem,
                extra.extras(s, bias, slopes),
                sinks,
                Draw(s.index, seed, offset),
            )

    return work


def attend(
    q: Array, k: Array, v: Array, problem: Problem, extras: Extras, sink: Array | None, draw: Draw
) -> tuple[Array, Array]:
    """Attention of one sequence.

    Args:
        q: ``[heads, queries, dim]``.
        k: ``[kv_heads, keys, dim]``.
        v: ``[kv_heads, keys, dim_v]``.
        problem: Settings and heads.
        extras: What is added to the scores.
        sink: ``[heads]``.
        draw: Which numbers the dropout takes.

    Returns:
        ``[heads, queries, dim_v]`` and the log-sum-exps ``[heads, queries]``, in f32 or f64.
    """
    params, work = problem.params, work_dtype(q.dtype)
    heads, queries, _ = q.shape
    kv_heads, count, dim_v = v.shape
    group = heads // kv_heads
    wide_k, wide_v = k.astype(work), v.astype(work)
    outs = np.zeros((kv_heads, group, queries, dim_v), work)
    lses = np.full((kv_heads, group, queries), -np.inf, work)
    for rows, parts in blocks(queries, count, heads, params):
        one = q[:, rows].astype(work).reshape(kv_heads, group, -1, q.shape[-1])
        top = np.full(one.shape[:3], -np.inf, work)
        if sink is not None:
            top = np.broadcast_to(sink.astype(work).reshape(kv_heads, group, 1), top.shape).copy()
        total = np.where(np.isneginf(top), 0, 1).astype(work)
        sums = np.zeros((*one.shape[:3], dim_v), work)
        for block in parts:
            part = scores(one, wide_k[:, block.k], block, (queries, count), params, extras)
            above = np.maximum(top, part.max(-1))
            base = np.where(np.isneginf(above), 0, above)
            weights = np.exp(part - base[..., None])
            shrink = np.exp(top - base)
            total = total * shrink + weights.sum(-1)
            if params.dropout:
                stays = kept(block, draw.sequence, heads, draw.seed, draw.offset, params.dropout)
                weights = weights * stays.reshape(weights.shape)
            sums *= shrink[..., None]
            sums += (weights.reshape(kv_heads, -1, weights.shape[-1]) @ wide_v[:, block.k]).reshape(sums.shape)
            top = above
        keep = work.type(1 - params.dropout)
        outs[:, :, rows] = sums / np.where(total == 0, 1, total * keep)[..., None]
        lses[:, :, rows] = top + np.log(total)
    return outs.reshape(heads, queries, dim_v), lses.reshape(heads, queries)
