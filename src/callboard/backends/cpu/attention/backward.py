"""The gradients of attention, block by block (Dao, "FlashAttention-2", arXiv:2307.08691, algorithm 2)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.attention.blocks import blocks, kept, scores, work_dtype
from callboard.backends.cpu.attention.calls import Call, Draw, given, lse_heads_first
from callboard.backends.cpu.attention.sequences import Array, heads_first
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel.attention import Backward, BackwardBias, BackwardSink
from callboard.kernel.attention.scores import Problem

__all__ = ["backward", "backward_sink"]


@plans(Backward, BackwardBias)
def backward(op: "Backward | BackwardBias") -> Callable[..., None]:
    """The work of a message: ``work(*operands)``, with addresses in order of declaration."""
    problem, made = op.problem(), op.infer()
    call = Call(op, problem)
    views = {name: heads_first(getattr(op, name).layout, op.layout) for name in ("q", "k", "v", "out", "dout")}
    views |= {n: heads_first(given(getattr(op, n), made[n]), op.layout) for n in ("dq", "dk", "dv")}
    view_lse = lse_heads_first(op.lse.layout)
    view_dbias = viewer(given(op.dbias, made["dbias"])) if isinstance(op, BackwardBias) else None

    def work(*operands: Any) -> None:
        addresses = call.named(operands)
        arrays = {name: view(addresses[name]) for name, view in views.items()}
        lse = view_lse(addresses["lse"])
        sums = {n: np.zeros(arrays[n].shape, work_dtype(arrays[n].dtype)) for n in ("dq", "dk", "dv")}
        dbias = None if view_dbias is None else view_dbias(addresses["dbias"])
        dbias_sum = None if dbias is None else np.zeros(dbias.shape, np.float64)
        bound = call.bound(addresses)
        for s in bound.sequences:
            at, by = (s.item, slice(None), s.q), (s.item, slice(None), s.k)
            part = Part(problem, bound.extras(s), bound.draw(s), arrays, at, by, lse[at])
            part.add(sums, None if dbias_sum is None else dbias_sum[min(s.item, len(dbias_sum) - 1)])
        for name, total in sums.items():
            arrays[name][...] = total
        if dbias is not None and dbias_sum is not None:
            dbias[...] = dbias_sum

    return work


class Part:
    """One sequence.

    Args:
        problem: Settings and heads.
        extras: The terms added to its scores.
        draw: The numbers of its dropout.
        arrays: All operands, ``[batch, heads, rows, dim]``.
        at, by: Positions of its queries and of its keys in the arrays.
        lse: Log-sum-exps of the sequence.
    """

    def __init__(
        self, problem: Problem, extras: Any, draw: Draw, arrays: dict[str, Array], at: Any, by: Any, lse: Array
    ) -> None:
        work = work_dtype(arrays["q"].dtype)
        self._problem, self._extras, self._draw, self._at, self._by = problem, extras, draw, at, by
        self._q, self._dout = arrays["q"][at].astype(work), arrays["dout"][at].astype(work)
        self._k, self._v = arrays["k"][by].astype(work), arrays["v"][by].astype(work)
        self._lse = lse
        self._delta = (self._dout * arrays["out"][at].astype(work)).sum(-1)

    def add(self, sums: dict[str, Array], dbias: Array | None) -> None:
        """Add its gradients to those of the call."""
        params = self._problem.params
        heads, queries, dim = self._q.shape
        kv_heads, keys, dim_v = self._v.shape
        group, work = heads // kv_heads, self._q.dtype
        keep = work.type(1 - params.dropout)
        dq, dk, dv = sums["dq"][self._at], sums["dk"][self._by], sums["dv"][self._by]
        for rows, parts in blocks(queries, keys, heads, params):
            q = self._q[:, rows].reshape(kv_heads, group, -1, dim)
            dout = self._dout[:, rows].reshape(kv_heads, -1, dim_v)
            lse = self._lse[:, rows].reshape(kv_heads, group, -1, 1)
            lse = np.where(np.isneginf(lse), 0, lse)  # of queries that see no key: all their scores are -inf
            delta = self._delta[:, rows].reshape(kv_heads, group, -1, 1)
            for block in parts:
                k, v = self._k[:, block.k], self._v[:, block.k]
                s = scores(q, k, block, (queries, keys), params, self._extras)
                p = np.exp(s - lse)
                dp = (dout @ v.swapaxes(-1, -2)).reshape(p.shape)
                stayed = p
                if params.dropout:
                    stays = kept(
                        block, self._draw.sequence, heads, self._draw.seed, self._draw.offset, params.dropout
                    ).reshape(p.shape)
                    stayed, dp = p * stays / keep, dp * stays / keep
                dv[:, block.k] += stayed.reshape(kv_heads, -1, p.shape[-1]).swapaxes(-1, -2) @ dout
                ds = p * (dp - delta)
                if dbias is not None:
                    _add_bias(dbias, ds.reshape(heads, *ds.shape[2:]), block)
                if params.softcap:  # before the cap: 1 - tanh(x)**2, from the products themselves
                    raw = (q.reshape(kv_heads, -1, dim) @ k.swapaxes(-1, -2)).reshape(p.shape)
                    ds = ds * (1 - np.tanh(raw * work.type(params.scale / params.softcap)) ** 2)
                ds = (ds * work.type(params.scale)).reshape(kv_heads, -1, p.shape[-1])
                dq[:, rows] += (ds @ k).reshape(heads, -1, dim)
                dk[:, block.k] += ds.swapaxes(-1, -2) @ q.reshape(kv_heads, -1, dim)


def _add_bias(dbias: Array, ds: Array, block: Any) -> None:
    """Add the gradient of a block of scores ``[heads, queries, keys]`` if the bias has it."""
    if dbias.shape[0] == 1:
        ds = ds.sum(0, keepdims=True)
    if dbias.shape[1] == 1:
        dbias[:, :, block.k] += ds.sum(1, keepdims=True)
    else:
        dbias[:, block.q, block.k] += ds


@plans(BackwardSink)
def backward_sink(op: BackwardSink) -> Callable[..., None]:
    """The work of a message: ``work(dout, out, lse, sink, dsink)``, with addresses."""
    made = op.infer()["dsink"]
    view_dout, view_out = (heads_first(x.layout, op.layout) for x in (op.dout, op.out))
    view_lse, view_sink = lse_heads_first(op.lse.layout), viewer(op.sink.layout)
    view_dsink = viewer(made)

    def work(dout: int, out: int, lse: int, sink: int, dsink: int) -> None:
        logs = view_lse(lse)
        seen = ~np.isneginf(logs)
        weights = np.exp(view_sink(sink).astype(np.float64)[:, None] - np.where(seen, logs, 0))
        delta = (view_dout(dout).astype(np.float64) * view_out(out).astype(np.float64)).sum(-1)
        view_dsink(dsink)[...] = -np.where(seen, weights * delta, 0).sum((0, 2))

    return work
