"""Sums of products of two tensors: by cuTENSOR, by cuBLAS as stacks of matrix products, or by custom kernels."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.blas.batched import strided_run
from callboard.backends.cuda.blas.products import Types, gemm_run, product_of, types_of
from callboard.backends.cuda.blas.scalars import factor_of
from callboard.backends.cuda.plans import nothing
from callboard.backends.cuda.tensor import by_cutensor
from callboard.backends.cuda.tensor.cutensor import ALGORITHMS, ASKED, Refused
from callboard.backends.cuda.tensor.elementwise import Run, Term, combined, mover
from callboard.backends.cuda.tensor.reductions import reduced
from callboard.backends.cuda.tensor.tuning import Make, distinct, fastest_first
from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.operand import Operand
from callboard.kernel.blas.strides import Matrix
from callboard.kernel.tensor.lowering import Lowering, Stack, lowerings
from callboard.kernel.tensor.modes import Label, Tensor

if TYPE_CHECKING:
    from callboard.backends.cuda.tensor.engine import Engine, Scratch

__all__ = ["Product", "product"]

LAUNCH = 1 << 21
"""Elements that an H200 copies, read and write, in about the 5 µs that the host needs for one more launch."""
SMALL = 1 << 26
"""Products of two numbers up to which the kernel is worth a try."""
ROUNDED = {"f16": 74, "bf16": 75, "tf32": 77}
"""``cublasComputeType_t`` of f32 and c64 factors that are rounded first."""


class Product(NamedTuple):
    """``result = alpha * sum(op_a(a) * op_b(b)) + beta * op_c(c)``.

    Attributes:
        a, b: Operands by their modes; each mode is in both or in the result.
        result: Result by its modes, with the layout in memory.
        extents: Extents of all modes.
        conj: True if ``a`` and ``b`` are conjugated.
        c: The addend: conjugated or not; None: nothing.
        alpha, beta: The op's fields.
        compute, autotune: The op's fields.
    """

    a: Tensor
    b: Tensor
    result: Tensor
    extents: Mapping[Label, int]
    conj: tuple[bool, bool] = (False, False)
    c: Term | None = None
    alpha: Any = 1.0
    beta: Any = 0.0
    compute: str | None = None
    autotune: bool = False

    @property
    def dtype(self) -> DType:
        return self.result.layout.dtype


def product(engine: "Engine", p: Product, scratch: "Scratch") -> Run:
    """``run(a, b, out, c, alpha, beta)``. Kernels may be compiled here."""
    labels = {*p.a.labels, *p.b.labels}
    if p.result.layout.size == 0:
        return nothing
    if math.prod(p.extents[x] for x in labels) == 0 or (p.dtype.is_integer and labels != set(p.result.labels)):
        return _by_kernel(engine, scratch, p)
    ours, better = _ours(engine, p)
    algorithms = ALGORITHMS if p.autotune else ALGORITHMS[:ASKED]
    theirs: list[Make] = [partial(_by_cutensor, p=p, algorithm=algorithm) for algorithm in algorithms]
    makes = [*theirs, *ours] if better else [*ours, *theirs]
    for make in fastest_first(engine, p, makes) if p.autotune else makes:
        try:
            return make(engine, scratch)
        except Refused:
            continue
    raise AssertionError("we take all")


def _ours(engine: "Engine", p: Product) -> tuple[list[Make], bool]:
    """Our ways, the cheapest first, and whether cuTENSOR's is better."""
    labels = {*p.a.labels, *p.b.labels}
    if labels == set(p.result.labels):
        return [partial(_elementwise, p=p)], engine.choice.outer()
    ways = lowerings(p.a, p.b, p.result, p.extents, LAUNCH)
    makes: list[Make] = [partial(_matrices, p=p, way=way) for way in (distinct(ways) if p.autotune else ways[:1])]
    if p.autotune and math.prod(p.extents[x] for x in labels) <= SMALL:
        makes.append(partial(_by_kernel, p=p))
    return makes, engine.choice.contraction(ways)


def _operator(conj: bool) -> str:
    return "conj" if conj else "identity"


def _elementwise(engine: "Engine", scratch: "Scratch", p: Product) -> Run:
    """Return a product in which nothing is summed."""
    terms = [Term(p.a, _operator(p.conj[0]), p.alpha), Term(p.b, _operator(p.conj[1]))]
    if p.c is None:
        run = combined(engine, scratch, p.result, terms, ("mul",), p.extents)
        return lambda a, b, out, c, alpha, beta: run(out, (a, b), (alpha, 1.0))
    run = combined(engine, scratch, p.result, [*terms, p.c], ("mul", "add"), p.extents)
    return lambda a, b, out, c, alpha, beta: run(out, (a, b, c), (alpha, 1.0, beta))


def _by_kernel(engine: "Engine", scratch: "Scratch", p: Product) -> Run:
    terms = [Term(p.a, _operator(p.conj[0])), Term(p.b, _operator(p.conj[1]))]
    run = reduced(engine, scratch, p.result, terms, p.extents, "add", p.alpha, p.c)
    return lambda a, b, out, c, alpha, beta: run(out, (a, b), c, alpha, beta)


def _by_cutensor(engine: "Engine", scratch: "Scratch", p: Product, algorithm: int) -> Run:
    """Multiply by cuTENSOR; an addend with another layout is copied into the result first."""
    if p.c is None or p.c.tensor == p.result:
        return by_cutensor.contracted(engine, scratch, p, algorithm)
    there = p._replace(c=Term(p.result, factor=p.beta))
    run = by_cutensor.contracted(engine, scratch, there, algorithm)
    bring = mover(engine, scratch, p.c.tensor, p.result, p.extents, p.c.operator == "conj")

    def added(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        if beta and c is not None:
            bring(c, out)
        run(a, b, out, None, alpha, beta)

    return added


# -- matrix products ---------------------------------------------------------------------------------------------------


def _matrices(engine: "Engine", scratch: "Scratch", p: Product, way: Lowering) -> Run:
    """Operands and result that do not fit are copied, to scratch memory and back; all outer indices at once."""
    turned = way.out is not None and way.out.matrix.transposed
    places: list[int] = []

    def operand(
        name: str, tensor: Tensor, fits: Stack | None, conj: bool
    ) -> tuple[Stack, Tensor, Callable[[int], int], bool]:
        """The stack to multiply, the tensor that holds it, the copy into it, and whether it remains to be conjugated.

        The copy returns the address of the stack. cuBLAS conjugates only together with a transposition.
        """
        conj = conj and p.dtype.is_complex
        if fits is not None and (not conj or fits.matrix.transposed != turned):
            return fits, tensor, lambda address: address, conj
        stack, place, target = _packed(way, name, tensor, p, scratch)
        places.append(place)
        move = mover(engine, scratch, tensor, target, p.extents, conj)

        def bring(address: int) -> int:
            move(address, scratch.base + place)
            return scratch.base + place

        return stack, target, bring, False

    a, held_a, bring_a, conj_a = operand("a", p.a, way.a, p.conj[0])
    b, held_b, bring_b, conj_b = operand("b", p.b, way.b, p.conj[1])
    out, place, target = way.out, None, p.result
    if out is None:
        out, place, target = _packed(way, "out", p.result, p, scratch)
        places.append(place)
    types = types_of(p.dtype, None)
    if p.compute in ROUNDED and p.dtype.name in ("f32", "c64"):
        types = types._replace(compute=ROUNDED[p.compute], classic=None)
    multiply = _multiply(engine, types, p, (a, b, out), way.extents[0], (conj_a, conj_b))
    conj_c = p.c is not None and p.c.operator == "conj" and p.dtype.is_complex
    add = None if p.c is None else mover(engine, scratch, p.c.tensor, target, p.extents, conj_c)
    in_place = p.c is not None and place is None and not conj_c and p.c.tensor == p.result
    always = isinstance(p.beta, Operand)
    store = None if place is None else mover(engine, scratch, target, p.result, p.extents)
    for taken in places:
        scratch.give(taken)
    offsets = _offsets(way.outer, p.extents, (held_a, held_b, target))

    def run(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        into = out if place is None else scratch.base + place
        if add is not None and c is not None and (always or beta != 0.0) and not (in_place and c == out):
            add(c, into)
        first, second = bring_a(a), bring_b(b)
        for at_a, at_b, at_out in offsets:
            multiply(first + at_a, second + at_b, into + at_out, alpha, beta)
        if store is not None:
            store(into, out)

    return run


def _packed(way: Lowering, name: str, like: Tensor, p: Product, scratch: "Scratch") -> tuple[Stack, int, Tensor]:
    """A row-major stack in scratch memory for this operand, its place, and the same by its modes."""
    _, rows, cols = way.shape(name)
    labels = (*(x for x in way.outer if x in like.labels), *way.order(name))
    target = Tensor(labels, layout_of(like.layout.dtype, tuple(p.extents[x] for x in labels)))
    step = rows * cols if way.extents[0] > 1 else 0
    return Stack(Matrix(rows, cols, cols, False), step), scratch.take(target.layout.nbytes), target


def _offsets(outer: Sequence[Label], extents: Mapping[Label, int], tensors: Sequence[Tensor]) -> list[tuple[int, ...]]:
    """For each index of the outer modes, where each tensor's stack begins, in bytes."""
    steps = [[step * x.layout.dtype.itemsize for step in x.steps(outer)] for x in tensors]
    return [
        tuple(sum(i * step for i, step in zip(index, mine, strict=True)) for mine in steps)
        for index in itertools.product(*(range(extents[x]) for x in outer))
    ]


def _multiply(
    engine: "Engine", types: Types, p: Product, stacks: tuple[Stack, Stack, Stack], count: int, conj: tuple[bool, bool]
) -> Callable[[int, int, int, Any, Any], None]:
    a, b, out = stacks
    one = product_of(p.dtype, a.matrix, b.matrix, out.matrix, (False, False), conj)
    factors = (factor_of(p.alpha, types.scale), factor_of(p.beta, types.scale))
    if count == 1:
        return gemm_run(engine.cublas, types, one, factors)
    return strided_run(engine.cublas, types, one, (a.step, b.step, out.step), count, factors)
