"""Keys and values in pages: attention over them, and writes to them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.attention.blocks import Extras
from callboard.backends.cpu.attention.calls import Draw, given, lse_heads_first
from callboard.backends.cpu.attention.forward import attend
from callboard.backends.cpu.attention.sequences import Array, heads_first, optional
from callboard.backends.cpu.views import viewer
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.core.op import info_of
from callboard.kernel.attention import PageAppend, PageCopy, PagedForward

__all__ = ["append", "copy", "paged_forward"]


@plans(PagedForward)
def paged_forward(op: PagedForward) -> Callable[..., None]:
    """The work of a message: ``work(*operands)``, with addresses in order of declaration."""
    problem, made = op.problem(), op.infer()
    names = tuple(field.name for field in info_of(PagedForward).dynamic)
    view_q = heads_first(op.q.layout, "bshd")
    view_out = heads_first(given(op.out, made["out"]), "bshd")
    view_lse = lse_heads_first(given(op.lse, made["lse"]))
    view_k, view_v = viewer(op.k_pages.layout), viewer(op.v_pages.layout)
    view_tables, view_lengths = viewer(op.block_tables.layout), viewer(op.seqlens_k.layout)
    view_sink, view_slopes, view_cu = optional(op.sink), optional(op.alibi_slopes), optional(op.cu_seqlens_q)
    rows = op.q.shape[0 if op.q.ndim == 3 else 1]

    def work(*operands: Any) -> None:
        at = dict(zip(names, operands, strict=True))
        queries, outs, lses = view_q(at["q"]), view_out(at["out"]), view_lse(at["lse"])
        k_pages, v_pages = view_k(at["k_pages"]), view_v(at["v_pages"])
        sink, slopes = view_sink(at["sink"]), view_slopes(at["alibi_slopes"])
        spans = _spans(view_cu(at["cu_seqlens_q"]), problem.batch, rows, problem.seq_q)
        tables, lengths = view_tables(at["block_tables"]), view_lengths(at["seqlens_k"])
        _check_tables(tables, lengths, k_pages.shape[0], k_pages.shape[1])
        outs[...], lses[...] = 0, -np.inf
        for number, (item, span) in enumerate(spans):
            count = int(lengths[number])
            pages = tables[number, : -(-count // k_pages.shape[1])]
            k, v = (p[pages].reshape(-1, *p.shape[2:])[:count].swapaxes(0, 1) for p in (k_pages, v_pages))
            extras = Extras(None, slopes if slopes is None or slopes.ndim == 1 else slopes[number])
            where = item, slice(None), span
            outs[where], lses[where] = attend(queries[where], k, v, problem.params, extras, sink, Draw(number, 0, 0))

    return work


def _spans(cu: Array | None, batch: int, rows: int, longest: int) -> list[tuple[int, slice]]:
    """The position of each sequence's queries: index on the batch axis, and rows."""
    if cu is None:
        return [(item, slice(0, rows)) for item in range(batch)]
    steps = np.diff(cu.astype(np.int64))
    if cu[0] != 0 or (steps < 0).any() or cu[-1] > rows or (steps > longest).any():
        raise ShapeError(
            f"attention.paged_forward: cu_seqlens_q is {np.array2string(cu, threshold=8)}; it must ascend from 0 to at "
            f"most {rows}, by at most {longest}"
        )
    return [(0, slice(int(cu[i]), int(cu[i + 1]))) for i in range(batch)]


def _check_tables(tables: Array, lengths: Array, pages: int, block: int) -> None:
    room = tables.shape[1] * block
    if lengths.size and (lengths.min() < 0 or lengths.max() > room):
        raise ShapeError(
            f"attention.paged_forward: seqlens_k is {np.array2string(lengths, threshold=8)}; lengths lie between 0 and "
            f"{room}, {tables.shape[1]} pages of {block}"
        )
    used = np.arange(tables.shape[1]) < -(-lengths[:, None] // block)
    wrong = used & ((tables < 0) | (tables >= pages))
    if wrong.any():
        sequence, place = (int(i) for i in np.argwhere(wrong)[0])
        raise ShapeError(
            f"attention.paged_forward: block_tables[{sequence}, {place}] is {tables[sequence, place]}; there are "
            f"{pages} pages"
        )


@plans(PageAppend)
def append(op: PageAppend) -> Callable[..., None]:
    """The work of a message: ``work(k, v, k_pages, v_pages, slots)``, with addresses."""
    views = [viewer(x.layout) for x in (op.k, op.v, op.k_pages, op.v_pages, op.slots)]

    def work(*operands: Any) -> None:
        k, v, k_pages, v_pages, slots = (view(at) for view, at in zip(views, operands, strict=True))
        block = k_pages.shape[1]
        room = k_pages.shape[0] * block
        chosen = (slots >= 0) & (slots < room)
        pages, places = np.divmod(slots[chosen], block)
        k_pages[pages, places], v_pages[pages, places] = k[chosen], v[chosen]
        if (slots >= room).any():
            raise ShapeError(f"attention.page_append: slots has {slots.max()}; there are {room}")

    return work


@plans(PageCopy)
def copy(op: PageCopy) -> Callable[..., None]:
    """The work of a message: ``work(k_pages, v_pages, sources, targets)``, with addresses."""
    views = [viewer(x.layout) for x in (op.k_pages, op.v_pages, op.sources, op.targets)]

    def work(*operands: Any) -> None:
        k_pages, v_pages, sources, targets = (view(at) for view, at in zip(views, operands, strict=True))
        count = k_pages.shape[0]
        right = (np.minimum(sources, targets) >= 0) & (np.maximum(sources, targets) < count)
        for pages in (k_pages, v_pages):
            pages[targets[right]] = pages[sources[right]]
        if not right.all():
            at = int(np.argmin(right))
            raise ShapeError(
                f"attention.page_copy: page {sources[at]} is to be copied to {targets[at]}; there are {count} pages"
            )

    return work
