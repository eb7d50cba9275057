"""Element-wise work: up to three tensors, an operator on each, joined by operators."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.axes import is_wide, merged_axes
from callboard.backends.cuda.copies import copier
from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.backends.cuda.plans import nothing
from callboard.backends.cuda.tensor import by_cutensor
from callboard.backends.cuda.tensor.arguments import (
    BUSY,
    IRREGULAR,
    PACK,
    PACKS,
    SAME_A,
    SAME_C,
    ElementArgs,
    factor_setter,
    groups_of,
    packs_of,
    set_axes,
)
from callboard.backends.cuda.tensor.choice import LARGE, lies_across
from callboard.backends.cuda.tensor.cutensor import Refused
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.op import Op
from callboard.kernel.tensor import ElementwiseBinary, ElementwiseTrinary, Permutation
from callboard.kernel.tensor.elementwise import modes_of
from callboard.kernel.tensor.modes import Label, Tensor
from callboard.kernel.tensor.network import by_step, packed
from callboard.kernel.tensor.operators import BINARY, UNARY

if TYPE_CHECKING:
    from callboard.backends.cuda.tensor.engine import Engine, Scratch

__all__ = ["Move", "Run", "Term", "binary", "combined", "mover", "permutation", "result_of", "trinary"]

LARGEST = 1 << 30
"""Bytes of an operand up to which scratch memory is used to transpose it along the result."""

Run = Callable[..., None]
Move = Callable[[int, int], None]
"""``move(src, out)``: enqueue it; addresses of element 0."""


class Term(NamedTuple):
    """``factor * operator(tensor)``.

    Attributes:
        tensor: The operand by its modes; repeated along its missing ones.
        operator: A key of :data:`callboard.kernel.tensor.operators.UNARY`.
        factor: The op's field: a number, or a 0-d operand.
    """

    tensor: Tensor
    operator: str = "identity"
    factor: Any = 1.0


def combined(
    engine: "Engine",
    scratch: "Scratch",
    result: Tensor,
    terms: Sequence[Term],
    joins: Sequence[str],
    extents: Mapping[Label, int],
) -> Run:
    """``run(out, addresses, factors)`` for one to three terms, joined from the left.

    The kernels may be compiled here.
    """
    if result.layout.size == 0:
        return nothing
    ours = _by_kernels(engine, scratch, result, terms, joins, extents)
    if not engine.choice.elementwise(terms, joins, result):
        return ours
    try:
        theirs = by_cutensor.joined(engine, scratch, result, terms, joins, extents)
    except Refused:
        return ours

    def run(out: int, addresses: Sequence[int], factors: Sequence[Any]) -> None:
        (theirs if all(factors) else ours)(out, addresses, factors)

    return run


def _by_kernels(
    engine: "Engine",
    scratch: "Scratch",
    result: Tensor,
    terms: Sequence[Term],
    joins: Sequence[str],
    extents: Mapping[Label, int],
) -> Run:
    """Transpose operands that are not contiguous along the result by tiles first, then run the kernel."""
    moves: list[tuple[int, Move, int]] = []
    beside = list(terms)
    for i, term in enumerate(terms):
        if lies_across(term.tensor, result) and LARGE <= term.tensor.layout.nbytes <= LARGEST:
            steps = zip(term.tensor.labels, term.tensor.layout.strides, strict=True)
            own = term.tensor.without([label for label, step in steps if step == 0])
            target = packed([x for x in by_step(result) if x in own.labels], own, extents)
            moves.append((i, mover(engine, scratch, own, target, extents), scratch.take(target.layout.nbytes)))
            beside[i] = term._replace(tensor=target)
    for _, _, place in moves:
        scratch.give(place)  # later work on the stream may reuse it
    run = _by_kernel(engine, result, beside, joins, extents)
    if not moves:
        return run

    def brought(out: int, addresses: Sequence[int], factors: Sequence[Any]) -> None:
        there = list(addresses)
        for i, move, place in moves:
            move(there[i], scratch.base + place)
            there[i] = scratch.base + place
        run(out, there, factors)

    return brought


def _by_kernel(
    engine: "Engine", result: Tensor, terms: Sequence[Term], joins: Sequence[str], extents: Mapping[Label, int]
) -> Run:
    layout = result.layout
    names = "a" if len(terms) == 1 else "ac" if len(terms) == 2 else "abc"
    sizes = [extents[x] for x in result.labels]
    axes, (out, *steps) = merged_axes(sizes, layout.strides, *(t.tensor.steps(result.labels) for t in terms))
    args = ElementArgs(count=layout.size, has_b="b" in names, has_c="c" in names)
    args.axes = set_axes(args, "extent", axes, out_step=out)
    args.packs, args.row = packs_of(axes, layout.dtype.itemsize)
    args.wide = is_wide(axes, out, *steps)
    plain = names == "ac" and all(term.operator == "identity" for term in terms)
    if plain:
        args.regular = _regular(PACK // layout.dtype.itemsize, joins[0], axes, out, *steps)
    for name, term, step in zip(names, terms, steps, strict=True):
        set_axes(args, "extent", axes, **{f"{name}_step": step})
        setattr(args, f"op_{name}", UNARY.index(term.operator))
    for name, join in zip(("op_abc",) if len(terms) == 2 else ("op_ab", "op_abc"), joins, strict=False):
        setattr(args, name, BINARY.index(join))
    cells = {"a": args.alpha, "b": args.beta, "c": args.gamma}
    setters = [factor_setter(cells[name], term.factor) for name, term in zip(names, terms, strict=True)]
    function = engine.kernel("elementwise", layout.dtype)
    grid = min(linear_grid(args.packs), BUSY)
    if args.regular in (SAME_A, SAME_C):
        args.groups = groups_of(axes, layout.dtype.itemsize)
        grid = linear_grid(args.groups)
    launch = kernel_launcher(engine.driver, function, grid, (THREADS, 1), args)
    cublas = engine.cublas

    def run(out: int, addresses: Sequence[int], factors: Sequence[Any]) -> None:
        args.out = out
        for name, address, put, factor in zip(names, addresses, setters, factors, strict=True):
            setattr(args, name, address)
            put(factor)
        launch(cublas.stream.native)

    return run


def _regular(
    pack: int, join: str, extents: Sequence[int], out: Sequence[int], a: Sequence[int], c: Sequence[int]
) -> int:
    """True if all rows are whole, aligned packs of neighbours; or for one element of one operand."""
    apart = [extents[-1], *(n for steps in (out, a, c) if steps[-1] for n in steps[:-1])]
    if out[-1] != 1 or any(n % pack for n in apart):
        return IRREGULAR
    known = {(1, 1): PACKS}
    if len(extents) > 1 and join in ("add", "mul"):  # the others are too rare to compile them
        known |= {(0, 1): SAME_A, (1, 0): SAME_C}
    return known.get((a[-1], c[-1]), IRREGULAR)


def mover(
    engine: "Engine",
    scratch: "Scratch",
    src: Tensor,
    out: Tensor,
    extents: Mapping[Label, int],
    conj: bool = False,
) -> Move:
    """Return the function that copies a tensor to another of the same modes, conjugated on request."""
    if not (conj and src.layout.dtype.is_complex):
        copy = copier(engine.driver, engine.kernels, src.along(out.labels, extents), out.layout)
        cublas = engine.cublas
        return lambda src, out: copy(cublas.stream.native, src, out)
    run = combined(engine, scratch, out, [Term(src, "conj")], (), extents)
    return lambda src, out: run(out, (src,), (1.0,))


def result_of(op: Op[Any, Any], inferred: Tensor) -> Tensor:
    """Return the result in its layout: the given one, or that of a new array."""
    given = op.out  # type: ignore[attr-defined]
    layout: Layout = inferred.layout if given is None else given.layout
    return Tensor(inferred.labels, layout)


@plans(Permutation)
def permutation(engine: "Engine", op: Permutation, scratch: "Scratch") -> Run:
    """``run(a, out, alpha)``; by tiles or the copy engine if nothing is computed."""
    named, inferred, extents = modes_of(op)
    result = result_of(op, inferred)
    term = Term(named["a"], op.op_a, op.alpha)
    run = combined(engine, scratch, result, [term], (), extents)
    plain = op.op_a == "identity" or (op.op_a == "conj" and not op.a.dtype.is_complex)
    if not plain or not isinstance(op.alpha, float) or scratch.engine == "cutensor":
        return lambda a, out, alpha: run(out, (a,), (alpha,))
    move = mover(engine, scratch, named["a"], result, extents)

    def permute(a: int, out: int, alpha: float) -> None:
        if alpha == 1.0:
            move(a, out)
        else:
            run(out, (a,), (alpha,))

    return permute


@plans(ElementwiseBinary)
def binary(engine: "Engine", op: ElementwiseBinary, scratch: "Scratch") -> Run:
    """``run(a, c, out, alpha, gamma)``."""
    named, inferred, extents = modes_of(op)
    terms = [Term(named["a"], op.op_a, op.alpha), Term(named["c"], op.op_c, op.gamma)]
    run = combined(engine, scratch, result_of(op, inferred), terms, (op.op_ac,), extents)
    return lambda a, c, out, alpha, gamma: run(out, (a, c), (alpha, gamma))


@plans(ElementwiseTrinary)
def trinary(engine: "Engine", op: ElementwiseTrinary, scratch: "Scratch") -> Run:
    """``run(a, b, c, out, alpha, beta, gamma)``."""
    named, inferred, extents = modes_of(op)
    terms = [
        Term(named["a"], op.op_a, op.alpha),
        Term(named["b"], op.op_b, op.beta),
        Term(named["c"], op.op_c, op.gamma),
    ]
    run = combined(engine, scratch, result_of(op, inferred), terms, (op.op_ab, op.op_abc), extents)
    return lambda a, b, c, out, alpha, beta, gamma: run(out, (a, b, c), (alpha, beta, gamma))
