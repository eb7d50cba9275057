"""Plans of attention over keys and values in pages, and of writes to pages."""

import math
from typing import Any

from callboard.backends.torch.attention.sequence import Extras, attend, work
from callboard.backends.torch.attention.whole import flat, heads_first, shown, spread, starts_of
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.core.op import info_of
from callboard.core.operand import Role
from callboard.kernel.attention import PageAppend, PageCopy, PagedForward

__all__ = ["append", "copy", "forward"]


def _check_tables(tables: Tensor, lengths: Tensor, pages: int, block: int) -> None:
    room = tables.shape[1] * block
    if bool(((lengths < 0) | (lengths > room)).any()):
        raise ShapeError(
            f"attention.paged_forward: seqlens_k is {shown(lengths)}; lengths lie between 0 and {room}, "
            f"{tables.shape[1]} pages of {block}"
        )
    used = torch.arange(tables.shape[1], device=tables.device) * block < lengths[:, None]
    wrong = (used & ((tables < 0) | (tables >= pages))).nonzero()
    if wrong.numel():
        sequence, place = wrong[0].tolist()
        raise ShapeError(
            f"attention.paged_forward: block_tables[{sequence}, {place}] is {int(tables[sequence, place])}; there are "
            f"{pages} pages"
        )


@plans(PagedForward)
def forward(library: TorchLibrary, op: PagedForward) -> Plan:
    """Return the sums of values, and log-sum-exps."""
    problem, ndim = op.problem(), op.q.ndim
    names = [field.name for field in info_of(PagedForward).dynamic if field.role is not Role.OUT]
    rows = op.q.shape[0 if ndim == 3 else 1]

    def compute(*given: Any) -> tuple[Tensor, Tensor]:
        at = dict(zip(names, given, strict=True))
        q, cu, slopes = heads_first(at["q"], "bshd"), at["cu_seqlens_q"], at["alibi_slopes"]
        spans = [slice(0, rows)] * problem.batch
        if cu is not None:
            spans = starts_of("attention.paged_forward", "cu_seqlens_q", cu, rows, problem.seq_q)
        block = at["k_pages"].shape[1]
        _check_tables(at["block_tables"], at["seqlens_k"], at["k_pages"].shape[0], block)
        out = work(q).new_zeros(*q.shape[:-1], problem.dim_v)
        lse = work(q).new_full(q.shape[:-1], -math.inf)
        for number, (span, count) in enumerate(zip(spans, at["seqlens_k"].tolist(), strict=True)):
            pages = at["block_tables"][number, : -(-count // block)].to(torch.int64)
            k, v = (p[pages].flatten(0, 1)[:count].transpose(0, 1) for p in (at["k_pages"], at["v_pages"]))
            extras = Extras(None, slopes if slopes is None or slopes.ndim == 1 else slopes[number])
            where = (0 if cu is not None else number, slice(None), span)
            out[where], lse[where] = attend(q[where], k, v, problem.params, extras, at["sink"])
        return spread(out, ndim, "bshd"), flat(lse, ndim)

    return library.planned(op, compute)


@plans(PageAppend)
def append(library: TorchLibrary, op: PageAppend) -> Plan:
    """Return the pages with the new tokens."""
    room = op.k_pages.shape[0] * op.k_pages.shape[1]

    def compute(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        chosen = (slots >= 0) & (slots < room)
        at = slots[chosen]
        block = k_pages.shape[1]
        for pages, tokens in ((k_pages, k), (v_pages, v)):
            pages[at // block, at % block] = tokens[chosen]
        if bool((slots >= room).any()):
            raise ShapeError(f"attention.page_append: slots has {int(slots.max())}; there are {room}")
        return k_pages, v_pages

    return library.planned(op, compute)


@plans(PageCopy)
def copy(library: TorchLibrary, op: PageCopy) -> Plan:
    """Return the pages with the copies."""
    count = op.k_pages.shape[0]

    def compute(k_pages: Tensor, v_pages: Tensor, sources: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        right = (sources >= 0) & (targets >= 0) & (sources < count) & (targets < count)
        come, go = sources[right].to(torch.int64), targets[right].to(torch.int64)
        for pages in (k_pages, v_pages):
            pages[go] = pages[come]
        if not bool(right.all()):
            at = int((~right).nonzero()[0])
            raise ShapeError(
                f"attention.page_copy: page {int(sources[at])} is to be copied to {int(targets[at])}; there are "
                f"{count} pages"
            )
        return k_pages, v_pages

    return library.planned(op, compute)
