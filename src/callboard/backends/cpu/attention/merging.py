"""Partial results, merged by their log-sum-exps."""

from collections.abc import Callable

import numpy as np

from callboard.backends.cpu.attention.blocks import work_dtype
from callboard.backends.cpu.attention.calls import given, lse_heads_first
from callboard.backends.cpu.attention.sequences import heads_first
from callboard.core.library import plans
from callboard.kernel.attention import Merge

__all__ = ["merge"]


@plans(Merge)
def merge(op: Merge) -> Callable[..., None]:
    """The work of a message: ``work(outs, lses, out, lse)``, with addresses."""
    made = op.infer()
    view_outs = [heads_first(x.layout, op.layout) for x in op.outs]
    view_lses = [lse_heads_first(x.layout) for x in op.lses]
    view_out = heads_first(given(op.out, made["out"]), op.layout)
    view_lse = lse_heads_first(given(op.lse, made["lse"]))
    work_type = work_dtype(made["out"].dtype.np)

    def work(outs: tuple[int, ...], lses: tuple[int, ...], out: int, lse: int) -> None:
        logs = np.stack([view(at) for view, at in zip(view_lses, lses, strict=True)])
        top = logs.max(0)
        base = np.where(np.isneginf(top), 0, top)
        weights = np.exp(logs - base)
        total = weights.sum(0)
        sums = np.zeros(view_out(out).shape, work_type)
        for weight, view, at in zip(weights, view_outs, outs, strict=True):
            sums += np.where(weight[..., None] == 0, 0, weight[..., None] * view(at).astype(work_type))
        view_out(out)[...] = sums / np.where(total == 0, 1, total)[..., None]
        view_lse(lse)[...] = base + np.log(total)

    return work
