"""Attention of one sequence and its gradients: some queries at a time, with all keys."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from callboard.backends.torch.rng.words import blocks
from callboard.backends.torch.vendor import Tensor, torch
from callboard.kernel.attention.scores import AttentionParams

__all__ = ["Extras", "attend", "gradients", "work"]

ELEMENTS = 1 << 23
"""Scores that are held at once, about."""


class Extras(NamedTuple):
    """What is added to the scores of a sequence, and which numbers its dropout draws.

    Attributes:
        bias: ``[heads or 1, queries or 1, keys]``.
        slopes: ``[heads]``.
        sequence, seed, offset: Name the numbers of the dropout.
    """

    bias: Tensor | None = None
    slopes: Tensor | None = None
    sequence: int = 0
    seed: int = 0
    offset: int = 0


def work(x: Tensor) -> Tensor:
    """In the dtype of scores and sums: f64 for f64, else f32."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def _chunks(heads: int, queries: int, keys: int) -> Iterator[slice]:
    step = max(1, ELEMENTS // max(1, heads * keys))
    for first in range(0, queries, step):
        yield slice(first, min(first + step, queries))


def _scores(q: Tensor, k: Tensor, rows: slice, queries: int, p: AttentionParams, extras: Extras) -> Any:
    """Scores ``[heads, rows, keys]``, -inf where a query does not see a key, and the derivative of the softcap."""
    heads, count, dim = q.shape
    kv_heads, keys = k.shape[:2]
    s = (q.reshape(kv_heads, heads // kv_heads * count, dim) @ k.mT).reshape(heads, count, keys) * p.scale
    bent: Any = None
    if p.softcap:
        bent = torch.tanh(s / p.softcap)
        s = bent * p.softcap
    at = torch.arange(rows.start, rows.stop, device=q.device)[:, None] + (keys - queries if p.bottom_right else 0)
    away = torch.arange(keys, device=q.device) - at
    if extras.bias is not None:
        s = s + extras.bias[:, rows if extras.bias.shape[1] > 1 else slice(None)].to(s.dtype)
    if extras.slopes is not None:
        s = s - extras.slopes.to(s.dtype)[:, None, None] * away.abs().to(s.dtype)
    unseen = ((away < -p.left) if p.left >= 0 else away < -(2**62)) | (
        (away > p.right) if p.right >= 0 else away > 2**62
    )
    return s.masked_fill(unseen, -math.inf), None if bent is None else 1 - bent * bent


def _kept(rows: slice, like: Tensor, p: AttentionParams, extras: Extras) -> Tensor | float:
    """1 / (1 - dropout) where a probability stays, else 0; word ``key % 4`` of a block of Philox decides."""
    if not p.dropout:
        return 1.0
    (heads, _, keys), where = like.shape, like.device
    quads = torch.arange(-(-keys // 4), device=where)
    shape = (heads, rows.stop - rows.start, quads.shape[0])
    lanes = torch.arange(extras.sequence * heads, (extras.sequence + 1) * heads, device=where)[:, None, None]
    queries = torch.arange(rows.start, rows.stop, device=where)[:, None]
    counters = (*(x.expand(shape) for x in (quads, queries, lanes)), torch.full(shape, extras.offset, device=where))
    drawn = blocks(counters, extras.seed).reshape(*shape[:2], -1)[..., :keys]
    return (drawn >= int(p.dropout * 2**32)).to(like.dtype) / (1 - p.dropout)


def attend(
    q: Tensor, k: Tensor, v: Tensor, p: AttentionParams, extras: Extras, sink: Tensor | None
) -> tuple[Tensor, Tensor]:
    """``out [heads, queries, dim]`` and ``lse [heads, queries]`` of operands with their heads first."""
    q, k, v = work(q), work(k), work(v)
    heads, queries, _ = q.shape
    kv_heads, keys, dim = v.shape
    out, lse = q.new_zeros(heads, queries, dim), q.new_full((heads, queries), -math.inf)
    for rows in _chunks(heads, queries, keys):
        s, _ = _scores(q[:, rows], k, rows, queries, p, extras)
        more = () if sink is None else (sink.to(s.dtype)[:, None, None].expand(heads, s.shape[1], 1),)
        logs = torch.logsumexp(torch.cat([s, *more], -1), -1) if keys or more else lse[:, rows]
        weights = torch.exp(s - torch.where(torch.isneginf(logs), 0, logs)[..., None])
        weights = weights * _kept(rows, weights, p, extras)
        grouped = (kv_heads, heads // kv_heads * s.shape[1])
        out[:, rows] = (weights.reshape(*grouped, keys) @ v).reshape(heads, s.shape[1], dim)
        lse[:, rows] = logs
    return out, lse


def gradients(
    dout: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, p: AttentionParams, extras: Extras
) -> tuple[tuple[Tensor, Tensor, Tensor], Any]:
    """The gradients of q, k, v, and of the scores where there is a bias (Dao, arXiv:2307.08691)."""
    dout, q, k, v = work(dout), work(q), work(k), work(v)
    heads, queries, dim = q.shape
    kv_heads, keys, dim_v = v.shape
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dbias = None if extras.bias is None else q.new_zeros(extras.bias.shape)
    delta = (dout * work(out)).sum(-1, keepdim=True)
    logs = torch.where(torch.isneginf(lse), 0, lse)[..., None]
    for rows in _chunks(heads, queries, keys):
        s, slope = _scores(q[:, rows], k, rows, queries, p, extras)
        weights = torch.exp(s - logs[:, rows])
        stays = _kept(rows, weights, p, extras)
        grouped = (kv_heads, heads // kv_heads * s.shape[1])
        grads = dout[:, rows].reshape(*grouped, dim_v)
        dp = (grads @ v.mT).reshape(weights.shape) * stays
        dv += (weights * stays).reshape(*grouped, keys).mT @ grads
        ds = weights * (dp - delta[:, rows])
        if dbias is not None:
            part = ds if dbias.shape[0] > 1 else ds.sum(0, keepdim=True)
            if dbias.shape[1] > 1:
                dbias[:, rows] += part
            else:
                dbias += part.sum(1, keepdim=True)
        ds = (ds if slope is None else ds * slope).reshape(*grouped, keys) * p.scale
        dq[:, rows] = (ds @ k).reshape(heads, s.shape[1], dim)
        dk += ds.mT @ q[:, rows].reshape(*grouped, dim)
    return (dq, dk, dv), dbias
