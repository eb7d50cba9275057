"""Attention of one sequence, block by block (Dao, "FlashAttention-2", arXiv:2307.08691)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.attention.blocks import Extras, blocks, kept, scores, work_dtype
from callboard.backends.cpu.attention.calls import Call, Draw, given, lse_heads_first
from callboard.backends.cpu.attention.sequences import Array, heads_first
from callboard.core.library import plans
from callboard.kernel.attention import Forward
from callboard.kernel.attention.scores import AttentionParams

__all__ = ["attend", "forward"]


@plans(Forward)
def forward(op: Forward) -> Callable[..., None]:
    """The work of a message: ``work(*operands)``, with addresses in order of declaration."""
    problem, made = op.problem(), op.infer()
    call = Call(op, problem)
    views = [heads_first(x.layout, op.layout) for x in (op.q, op.k, op.v)]
    view_out = heads_first(given(op.out, made["out"]), op.layout)
    view_lse = lse_heads_first(given(op.lse, made["lse"]))

    def work(*operands: Any) -> None:
        named = call.named(operands)
        queries, keys, values = (view(named[n]) for n, view in zip("qkv", views, strict=True))
        outs, lses = view_out(named["out"]), view_lse(named["lse"])
        bound = call.bound(named)
        outs[...], lses[...] = 0, -np.inf  # of queries that no sequence has
        for s in bound.sequences:
            at, by = (s.item, slice(None), s.q), (s.item, slice(None), s.k)
            parts = queries[at], keys[by], values[by]
            outs[at], lses[at] = attend(*parts, problem.params, bound.extras(s), bound.sink, bound.draw(s))

    return work


def attend(
    q: Array, k: Array, v: Array, params: AttentionParams, extras: Extras, sink: Array | None, draw: Draw
) -> tuple[Array, Array]:
    """Attention of one sequence.

    Args:
        q: ``[heads, queries, dim]``.
        k: ``[kv_heads, keys, dim]``.
        v: ``[kv_heads, keys, dim_v]``.
        params: The parameters of a score.
        extras: The terms added to the scores.
        sink: ``[heads]``.
        draw: Random numbers of the dropout.

    Returns:
        ``[heads, queries, dim_v]`` and the log-sum-exps ``[heads, queries]``, in f32 or f64.
    """
    work = work_dtype(q.dtype)
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
