"""The argument structures of ``data/attention*.cu``, filled from messages."""

import ctypes
from ctypes import c_double, c_int, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

from callboard.core.layout import Layout
from callboard.core.op import info_of
from callboard.kernel.attention import PagedForward
from callboard.kernel.attention.problem import SeqLayout, Strides, tensor_of
from callboard.kernel.attention.scores import Masked, Problem, Scores

__all__ = [
    "MOST_PARTS",
    "POINTERS",
    "AttentionArgs",
    "CheckArgs",
    "DecodeArgs",
    "MergeArgs",
    "PageArgs",
    "Steps",
    "arguments",
    "lse_steps",
    "names_of",
    "page_steps",
    "steps",
]

MOST_PARTS = 32
"""``MOST_PARTS`` of ``data/attention_pages.cu``."""


class Steps(ctypes.Structure):
    """``Steps`` of the kernels."""

    _fields_ = (("batch", c_int64), ("head", c_int64), ("row", c_int64))


POINTERS = {
    "q": "q", "k": "k", "v": "v", "k_pages": "k", "v_pages": "v", "dout": "dout", "bias": "bias", "dq": "dq",
    "dk": "dk", "dv": "dv", "dbias": "dbias", "sink": "sink", "alibi_slopes": "slopes", "cu_seqlens_q": "cu_q",
    "cu_seqlens_k": "cu_k", "seqlens_q": "len_q", "seqlens_k": "len_k", "block_tables": "tables",
    "dropout_seed": "seed", "dropout_offset": "offset",
}  # fmt: skip
"""Fields of messages, and where they go; ``out`` and ``lse`` are read or written."""


class AttentionArgs(ctypes.Structure):
    """``AttentionArgs`` of the kernels."""

    _fields_ = (
        *((n, c_void_p) for n in ("q", "k", "v", "out_in", "dout", "lse_in", "bias")),
        *((n, c_void_p) for n in ("out", "lse", "dq", "dk", "dv", "dbias", "dsink", "delta", "sink", "slopes")),
        *((n, c_void_p) for n in ("cu_q", "cu_k", "len_q", "len_k", "tables")),
        *((f"{n}_at", Steps) for n in ("q", "k", "v", "out", "dout", "lse", "dq", "dk", "dv", "bias")),
        ("slopes_batch", c_int64),
        *((n, c_int) for n in ("batch", "heads", "kv_heads", "dim", "dim_v", "seq_q", "seq_k", "rows_q", "rows_k")),
        *((n, c_int) for n in ("left", "right", "bottom_right")),
        *((n, c_int) for n in ("bias_single", "bias_batch", "bias_heads", "bias_rows")),
        *((n, c_int) for n in ("block_size", "max_blocks", "pages")),
        ("threshold", c_uint32),
        ("offset", c_uint32),
        ("seed", c_uint64),
        *((n, c_double) for n in ("scale", "softcap", "keep")),
    )


class CheckArgs(ctypes.Structure):
    """``CheckArgs`` of ``data/attention_pages.cu``."""

    _fields_ = (
        ("call", AttentionArgs),
        *((n, c_void_p) for n in ("verdict", "len_q", "len_k", "tables")),
        *((n, c_void_p) for n in ("off_q", "off_k", "off_v", "off_o", "off_lse")),
    )


class DecodeArgs(ctypes.Structure):
    """``DecodeArgs`` of ``data/attention_decode.cu``."""

    _fields_ = (
        ("call", AttentionArgs),
        ("verdict", c_void_p),
        ("outs", c_void_p),
        ("parts", c_int),
        ("keys", c_int),
    )


class PageArgs(ctypes.Structure):
    """``PageArgs`` of ``data/attention_pages.cu``."""

    _fields_ = (
        *((n, c_void_p) for n in ("k", "v", "k_pages", "v_pages", "slots", "sources", "targets", "verdict")),
        ("count", c_int64),
        *((f"{n}_at", Steps) for n in ("k", "v", "k_pages", "v_pages")),
        *((n, c_int) for n in ("heads", "dim", "dim_v", "block_size", "pages")),
    )


class MergeArgs(ctypes.Structure):
    """``MergeArgs`` of ``data/attention_pages.cu``."""

    _fields_ = (
        ("outs", c_void_p * MOST_PARTS),
        ("lses", c_void_p * MOST_PARTS),
        ("outs_at", Steps * MOST_PARTS),
        ("lses_at", Steps * MOST_PARTS),
        ("out", c_void_p),
        ("lse", c_void_p),
        ("out_at", Steps),
        ("lse_at", Steps),
        *((n, c_int) for n in ("parts", "batch", "heads", "rows", "dim")),
    )


def steps(op: Any, name: str, layout: Layout, order: SeqLayout) -> Steps:
    """The steps of an operand."""
    return Steps(*tensor_of(op, name, layout, order).strides)


def lse_steps(layout: Layout) -> Steps:
    """Return the steps of log-sum-exps."""
    strides = Strides(0, layout.strides[1], layout.strides[0]) if layout.ndim == 2 else Strides(*layout.strides)
    return Steps(*strides)


def arguments(op: Masked[Any], problem: Problem) -> AttentionArgs:
    """All that does not change from call to call."""
    params = problem.params
    order: SeqLayout = op.layout if isinstance(op, Scores) else "bshd"
    made = op.infer()
    args = AttentionArgs(
        batch=problem.batch,
        heads=problem.heads,
        kv_heads=problem.kv_heads,
        dim=problem.dim,
        dim_v=problem.dim_v,
        seq_q=problem.seq_q,
        seq_k=problem.seq_k,
        left=params.left,
        right=params.right,
        bottom_right=params.bottom_right,
        threshold=int(params.dropout * 2**32),
        scale=params.scale,
        softcap=params.softcap,
        keep=1 - params.dropout,
    )
    for name in ("q", "k", "v", "out", "dout", "dq", "dk", "dv"):
        if name in made or hasattr(op, name):
            layout = _layout(op, made, name)
            setattr(args, f"{name}_at", steps(op, name, layout, order))
    args.lse_at = lse_steps(_layout(op, made, "lse"))
    args.rows_q = tensor_of(op, "q", op.q.layout, order).rows  # type: ignore[attr-defined] # every message has it
    if isinstance(op, PagedForward):
        pages, block, *_ = op.k_pages.shape
        args.pages, args.block_size, args.max_blocks = pages, block, op.block_tables.shape[1]
        args.rows_k = problem.seq_k
        args.k_at, args.v_at = (page_steps(x.layout) for x in (op.k_pages, op.v_pages))
    else:
        args.rows_k = tensor_of(op, "k", op.k.layout, order).rows  # type: ignore[attr-defined] # likewise
        if isinstance(op, Scores) and op.bias is not None:
            bias = op.bias.layout
            args.bias_single = bias.dtype is not problem.dtype
            args.bias_batch, args.bias_heads, args.bias_rows = bias.shape[:3]
            args.bias_at = Steps(*bias.strides[:3])
    if op.alibi_slopes is not None and op.alibi_slopes.ndim == 2:
        args.slopes_batch = problem.heads
    return args


def page_steps(layout: Layout) -> Steps:
    """Return the steps of pages: from page to page, from head to head, from position to position."""
    return Steps(layout.strides[0], layout.strides[2], layout.strides[1])


def names_of(op: Any) -> tuple[str, ...]:
    """The fields of a launch, in order."""
    return tuple(field.name for field in info_of(type(op)).dynamic)


def _layout(op: Any, made: Any, name: str) -> Layout:
    given = getattr(op, name)
    found: Layout = made[name] if given is None else given.layout
    return found
