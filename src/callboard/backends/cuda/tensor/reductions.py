"""Reductions of one tensor, and sums of products of two where cuBLAS has none (integers, empty sums)."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.axes import is_wide, merged_axes
from callboard.backends.cuda.launching import THREADS, kernel_launcher
from callboard.backends.cuda.plans import nothing
from callboard.backends.cuda.tensor import by_cutensor
from callboard.backends.cuda.tensor.arguments import (
    BUSY,
    PACK,
    ReduceArgs,
    factor_setter,
    packs_of,
    set_axes,
)
from callboard.backends.cuda.tensor.cutensor import Refused
from callboard.backends.cuda.tensor.elementwise import Run, Term, result_of
from callboard.core.dtype import DTYPES, DType
from callboard.core.library import plans
from callboard.kernel.tensor import Reduction
from callboard.kernel.tensor.elementwise import modes_of
from callboard.kernel.tensor.modes import Label, Tensor
from callboard.kernel.tensor.operators import BINARY, UNARY

if TYPE_CHECKING:
    from callboard.backends.cuda.tensor.engine import Engine, Scratch

__all__ = ["reduced", "reduction"]

PER_LANE = 8
"""Packs of terms for each lane below which dividing them further costs more than it gains."""
MAX_SPLITS = 1024
MAX_BLOCKS = 2 * BUSY
WARP, LINE = 32, 8
"""Threads that load together; those whose packs make a line of the cache."""
AT_ONCE = 4
"""Packs that a lane of the kernels loads together; also the fewest lanes of a result that has terms enough for them."""


@plans(Reduction)
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
        engine: The engine it is enqueued on.
        scratch: Scratch memory for the parts of long reductions.
        result: The output.
        terms: One or two, without factors.
        extents: Extents of the modes of all tensors.
        operator: ``"add"`` …; of two terms ``"add"``.
        alpha: The op's field.
        c: The addend, with the op's field for ``beta``.
    """
    if result.layout.size == 0:
        return nothing
    ours = _by_kernels(engine, scratch, result, terms, extents, operator, alpha, c)
    if len(terms) > 1 or not engine.choice.reduction(terms[0].tensor, result):
        return ours
    factors = alpha, 0.0 if c is None else c.factor
    try:
        theirs = by_cutensor.reduced(engine, scratch, result, terms[0], extents, operator, factors, c)
    except Refused:
        return ours

    def run(out: int, addresses: Sequence[int], c: int | None, alpha: Any, beta: Any) -> None:
        (theirs if alpha else ours)(out, addresses, c, alpha, beta)

    return run


def _by_kernels(
    engine: "Engine",
    scratch: "Scratch",
    result: Tensor,
    terms: Sequence[Term],
    extents: Mapping[Label, int],
    operator: str,
    alpha: Any,
    c: Term | None,
) -> Run:
    layout = result.layout
    labels = list(dict.fromkeys(x for term in terms for x in term.tensor.labels if x not in result.labels))
    count = math.prod(extents[x] for x in labels)
    args = ReduceArgs(outputs=layout.size, terms=count, has_b=len(terms) == 2, has_c=c is not None)
    named = dict(zip("ab", terms, strict=False))
    everything = {**named, **({} if c is None else {"c": c})}
    sizes = [extents[x] for x in result.labels]
    arrays = {x: t.tensor.steps(result.labels) for x, t in everything.items()}
    # With one operand: in the order of its memory, which is read more than the result's is written.
    arrays = arrays | {"out": layout.strides} if len(terms) == 1 else {"out": layout.strides} | arrays
    axes, merged = merged_axes(sizes, *arrays.values())
    steps = dict(zip(arrays, merged, strict=True))
    args.axes = set_axes(args, "extent", axes, **{f"{x}_step": s for x, s in steps.items()})
    inner, inside = [0], [[0]] * len(named)
    if count:
        inner, inside = merged_axes([extents[x] for x in labels], *(t.tensor.steps(labels) for t in terms))
    args.inner_axes = set_axes(args, "inner", inner, **{f"{x}_inner": s for x, s in zip(named, inside, strict=True)})
    args.wide = is_wide(axes, *merged) or is_wide(inner, *inside)
    for name, term in everything.items():
        setattr(args, f"op_{name}", UNARY.index(term.operator))
    args.op_reduce = BINARY.index(operator)
    dtype = layout.dtype
    along = sum(abs(x[-1]) == 1 for x in inside) > sum(abs(steps[x][-1]) == 1 for x in named)
    args.packs, args.row = packs_of(inner if along else axes, dtype.itemsize)
    mine = steps["a"], inside[0]
    (*rest, beside), whole = mine[along], (inner if along else axes)[-1]
    size = PACK // min(dtype.itemsize, PACK)
    args.regular = not args.has_b and beside == 1 and not any(x % size for x in (whole, *rest, *mine[not along]))
    _divide(args, along)
    place = scratch.take(args.splits * layout.size * wide(dtype).itemsize) if args.splits > 1 else None
    if place is not None:
        scratch.give(place)  # later work on the stream may reuse it
    launcher = partial(kernel_launcher, engine.driver, block=(THREADS, 1), args=args)
    kernel = engine.kernel("along" if along else "across", dtype)
    reduce = launcher(kernel, grid=min(args.blocks * args.splits, MAX_BLOCKS))
    ends = min(-(-layout.size * args.end_lanes // THREADS), MAX_BLOCKS)
    finish = launcher(engine.kernel("parts", dtype), grid=ends)
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


def _divide(args: ReduceArgs, along: bool) -> None:
    """Divide a reduction: lanes that share the terms of a result, results per block, splits of the terms."""
    if along:
        terms = args.packs
        few = min(_power(terms // AT_ONCE), AT_ONCE)
        args.lanes = min(THREADS, _power(terms), max(_power(BUSY * THREADS // args.outputs), few))
        args.blocks = -(-args.outputs * args.lanes // THREADS)
    else:
        terms = args.terms
        outs = min(THREADS, max(_power(args.packs // BUSY), min(_power(args.packs), WARP)))
        args.lanes = max(1, min(THREADS // outs, _power(terms)))
        args.blocks = -(-args.packs * args.lanes // THREADS)
    args.splits = max(1, min(BUSY // args.blocks, terms // (args.lanes * PER_LANE), MAX_SPLITS))
    args.share = -(-terms // args.splits)
    outs = min(_power(args.outputs), LINE)
    args.end_lanes = min(THREADS // outs, _power(args.splits))


def _power(n: int) -> int:
    """The largest power of two that is not above ``n``, at least 1."""
    return 1 << max(n.bit_length() - 1, 0)
