"""Reductions of one tensor, and sums of products of two where cuBLAS has none (integers, empty sums)."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.backends.cuda.tensor.arguments import ReduceArgs, factor_setter, is_wide, merged_axes, set_axes
from callboard.backends.cuda.tensor.elementwise import Run, Term, nothing, result_of
from callboard.core.dtype import DTYPES, DType
from callboard.kernel.tensor import Reduction
from callboard.kernel.tensor.elementwise import modes_of
from callboard.kernel.tensor.modes import Label, Tensor
from callboard.kernel.tensor.operators import BINARY, UNARY

if TYPE_CHECKING:
    from callboard.backends.cuda.tensor.engine import Engine, Scratch

__all__ = ["reduced", "reduction"]

BUSY = 1 << 18
"""Threads that fill any GPU; a reduction with fewer elements in its result is done in parts."""
PER_THREAD = 8
"""Terms below which a further part costs more than it gains."""
MAX_SPLITS = 1024


def reduction(engine: "Engine", op: Reduction, scratch: "Scratch") -> Run:
    """``run(a, out, c, alpha, beta)``."""
    named, inferred, extents = modes_of(op)
    c = Term(named["c"], op.op_c, op.beta) if "c" in named else None
    result = result_of(op, inferred)
    run = reduced(engine, scratch, result, [Term(named["a"], op.op_a)], extents, op.op_reduce, op.alpha, c)
    return lambda a, out, c, alpha, beta: run(out, (a,), c, alpha, beta)


def reduced(
    engine: "Engine",
    scratch: "Scratch",
    result: Tensor,
    terms: Sequence[Term],
    extents: Mapping[Label, int],
    operator: str,
    alpha: Any,
    c: Term | None,
) -> Run:
    """``run(out, addresses, c, alpha, beta)``.

    ``out = alpha * reduce(terms[0] * terms[1]) + c`` over the modes that ``result`` has not. The kernels may be
    compiled here.

    Args:
        engine: Where it is enqueued.
        scratch: For the parts of long reductions.
        result: What is written.
        terms: One or two, without factors.
        extents: Of the modes of all of them.
        operator: ``"add"`` …; of two terms ``"add"``.
        alpha: The op's field.
        c: What is added, with the op's field for ``beta``.
    """
    layout = result.layout
    if layout.size == 0:
        return nothing
    labels = list(dict.fromkeys(x for term in terms for x in term.tensor.labels if x not in result.labels))
    count = math.prod(extents[x] for x in labels)
    args = ReduceArgs(outputs=layout.size, terms=count, has_b=len(terms) == 2, has_c=c is not None)
    named = dict(zip("ab", terms, strict=False))
    everything = {**named, **({} if c is None else {"c": c})}
    sizes = [extents[x] for x in result.labels]
    axes, (out, *steps) = merged_axes(
        sizes, layout.strides, *(t.tensor.steps(result.labels) for t in everything.values())
    )
    args.axes = set_axes(
        args, "extent", axes, out_step=out, **{f"{x}_step": s for x, s in zip(everything, steps, strict=True)}
    )
    inner: list[int] = []
    inside: list[list[int]] = [[] for _ in named]
    if count:
        inner, inside = merged_axes([extents[x] for x in labels], *(t.tensor.steps(labels) for t in terms))
    args.inner_axes = set_axes(args, "inner", inner, **{f"{x}_inner": s for x, s in zip(named, inside, strict=True)})
    args.wide = is_wide(axes, out, *steps) or is_wide(inner, *inside)
    for name, term in everything.items():
        setattr(args, f"op_{name}", UNARY.index(term.operator))
    args.op_reduce = BINARY.index(operator)
    along = bool(inside[0]) and abs(inside[0][-1]) == 1 and count >= THREADS // 4
    args.splits = _splits(layout.size, count, along)
    dtype = layout.dtype
    place = scratch.take(args.splits * layout.size * wide(dtype).itemsize) if args.splits > 1 else None
    if place is not None:
        scratch.give(place)  # what comes later on the stream may have it
    kernel, work = ("blocks", args.splits * layout.size) if along else ("threads", 0)
    grid = min(work, 1 << 16) if along else linear_grid(args.splits * layout.size)
    block = (THREADS, 1)
    reduce = kernel_launcher(engine.driver, engine.kernel(kernel, dtype), grid, block, args)
    finish = kernel_launcher(engine.driver, engine.kernel("parts", dtype), min(layout.size, 1 << 16), block, args)
    put_alpha, put_beta = factor_setter(args.alpha, alpha), factor_setter(args.beta, None if c is None else c.factor)
    cublas = engine.cublas

    def run(out: int, addresses: Sequence[int], c: int | None, alpha: Any, beta: Any) -> None:
        args.out, args.c = out, c
        for name, address in zip("ab", addresses, strict=False):
            setattr(args, name, address)
        put_alpha(alpha)
        put_beta(beta)
        stream = cublas.stream.native
        if place is not None:
            args.parts = scratch.base + place
        reduce(stream)
        if place is not None:
            finish(stream)

    return run


def wide(dtype: DType) -> DType:
    """In which dtype the kernels compute."""
    return DTYPES["f32"] if dtype.name in ("f16", "bf16") else dtype


def _splits(outputs: int, terms: int, along: bool) -> int:
    """Into how many parts the terms of each element are divided."""
    each = PER_THREAD * (THREADS if along else 1)
    lacking = BUSY // (outputs * (THREADS if along else 1))
    return max(1, min(lacking, terms // each, MAX_SPLITS))
