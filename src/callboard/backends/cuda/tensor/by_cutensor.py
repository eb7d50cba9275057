"""Tensor work by cuTENSOR: contractions, reductions, permutations, two and three tensors element by element.

Each function returns the launch, or raises :class:`Refused` for work of another engine: integers, factors on the device
(cuTENSOR reads them on the host, at the call), negative steps, operators that this version lacks. If a factor is 0, its
operand must not be read, so that call is another engine's, too.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.tensor.cutensor import BY_NUMBER, Cutensor, Described, Refused
from callboard.core.dtype import DType
from callboard.core.operand import Operand
from callboard.kernel.tensor.modes import Label, Tensor

if TYPE_CHECKING:
    from callboard.backends.cuda.tensor.elementwise import Run, Term
    from callboard.backends.cuda.tensor.engine import Engine, Scratch
    from callboard.backends.cuda.tensor.products import Product

__all__ = ["contracted", "joined", "reduced"]

CALLS = {1: "permute", 2: "elementwise_binary_execute", 3: "elementwise_trinary_execute"}


def contracted(engine: "Engine", scratch: "Scratch", p: "Product", algorithm: int) -> "Run":
    """``run(a, b, out, c, alpha, beta)``; ``c`` has the layout of the result, or has been copied to it.

    Args:
        engine: The engine it is enqueued on.
        scratch: Scratch memory that holds the workspace.
        p: The product to compute.
        algorithm: A ``cutensorAlgo_t``.
    """
    cutensor = _taken(engine, (p.alpha, p.beta))
    _check_summed((p.a, p.b), p.result, p.extents)
    library, handle = cutensor.library, cutensor.handle
    conj = [cutensor.operator("conj" if x else "identity", p.dtype) for x in p.conj]
    op_c = cutensor.operator("identity" if p.c is None else p.c.operator, p.dtype)
    compute = cutensor.compute(p.dtype, p.compute)

    def describe(a: Described, b: Described, out: Described) -> int:
        sides = (*a, conj[0], *b, conj[1], *out, op_c, *out)
        return int(library.create_contraction(handle, *sides, compute))

    planned = cutensor.planned((p.a, p.b, p.result), p.extents, describe, algorithm, BY_NUMBER)
    place = scratch.keep(planned, planned.workspace)
    contract = cutensor.guarded(library.contract, "cutensorContract")
    (at_alpha, put_alpha), (at_beta, put_beta) = _cell(p.dtype), _cell(p.dtype)
    cublas, size = engine.cublas, planned.workspace

    def run(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        c = c or out
        put_alpha(alpha)
        put_beta(beta)
        plan = planned.at(a | b | c | out)
        stream = cublas.stream.native
        contract(handle, plan, at_alpha, a, b, at_beta, c, out, scratch.base + place, size, stream)

    return run


def reduced(
    engine: "Engine",
    scratch: "Scratch",
    result: Tensor,
    term: "Term",
    extents: Mapping[Label, int],
    operator: str,
    factors: tuple[Any, Any],
    c: "Term | None",
) -> "Run":
    """``run(out, addresses, c, alpha, beta)``; ``alpha`` is not 0.

    Args:
        engine: The engine it is enqueued on.
        scratch: Scratch memory that holds the workspace.
        result: The output.
        term: The operand that is reduced.
        extents: Extents of all modes.
        operator: ``"add"`` …
        factors: The op's fields for ``alpha`` and ``beta``.
        c: The addend; has the layout of the result.
    """
    cutensor = _taken(engine, factors)
    dtype = result.layout.dtype
    _check_summed((term.tensor,), result, extents)
    _check_like(c, result)
    library, handle = cutensor.library, cutensor.handle
    op_a = cutensor.operator(term.operator, dtype)
    op_c = cutensor.operator("identity" if c is None else c.operator, dtype)
    op_reduce, compute = cutensor.operator(operator, dtype), cutensor.compute(dtype)

    def describe(a: Described, out: Described) -> int:
        return int(library.create_reduction(handle, *a, op_a, *out, op_c, *out, op_reduce, compute))

    planned = cutensor.planned((term.tensor, result), extents, describe)
    place = scratch.keep(planned, planned.workspace)
    reduce = cutensor.guarded(library.reduce, "cutensorReduce")
    (at_alpha, put_alpha), (at_beta, put_beta) = _cell(dtype), _cell(dtype)
    cublas, size = engine.cublas, planned.workspace

    def run(out: int, addresses: Sequence[int], c: int | None, alpha: Any, beta: Any) -> None:
        (a,) = addresses
        c = c or out
        put_alpha(alpha)
        put_beta(beta)
        stream = cublas.stream.native
        plan = planned.at(a | c | out)
        reduce(handle, plan, at_alpha, a, at_beta, c, out, scratch.base + place, size, stream)

    return run


def joined(
    engine: "Engine",
    scratch: "Scratch",
    result: Tensor,
    terms: "Sequence[Term]",
    joins: Sequence[str],
    extents: Mapping[Label, int],
) -> "Run":
    """``run(out, addresses, factors)`` for one to three terms; no factor is 0.

    The last of several terms has the layout of the result.

    Args:
        engine: The engine it is enqueued on.
        scratch: Keeps the plan.
        result: The output.
        terms: Joined from the left.
        joins: Between them.
        extents: Extents of all modes.
    """
    cutensor = _taken(engine, [term.factor for term in terms])
    dtype = result.layout.dtype
    if len(terms) > 1:
        _check_like(terms[-1], result)
    library, handle = cutensor.library, cutensor.handle
    operators = [cutensor.operator(term.operator, dtype) for term in terms]
    codes, compute = [cutensor.operator(join, dtype) for join in joins], cutensor.compute(dtype)
    create = (
        library.create_permutation,
        library.create_elementwise_binary,
        library.create_elementwise_trinary,
    )[len(terms) - 1]

    def describe(*described: Described) -> int:
        *sides, out = described
        inputs = [x for side, operator in zip(sides, operators, strict=True) for x in (*side, operator)]
        return int(create(handle, *inputs, *out, *codes, compute))

    planned = cutensor.planned((*(term.tensor for term in terms), result), extents, describe)
    scratch.keep(planned, 0)
    call = CALLS[len(terms)]
    execute = cutensor.guarded(getattr(library, call), call)
    cells = [_cell(dtype) for _ in terms]
    cublas = engine.cublas

    def run(out: int, addresses: Sequence[int], factors: Sequence[Any]) -> None:
        everything = out
        arguments: list[int] = []
        for (at, put), address, factor in zip(cells, addresses, factors, strict=True):
            put(factor)
            everything |= address
            arguments += (at, address)
        execute(handle, planned.at(everything), *arguments, out, cublas.stream.native)

    return run


def _taken(engine: "Engine", factors: Sequence[Any]) -> Cutensor:
    if any(isinstance(factor, Operand) for factor in factors):
        raise Refused("a factor on the device")
    return engine.choice.cutensor()


def _check_like(c: "Term | None", result: Tensor) -> None:
    if c is not None and c.tensor != result:
        raise Refused("what is added lies in another way than the result")


def _check_summed(terms: Sequence[Tensor], result: Tensor, extents: Mapping[Label, int]) -> None:
    """A mode that is summed must be walked by an operand: one along which all are repeated would be lost."""
    for label, extent in extents.items():
        if extent > 1 and label not in result.labels and not any(any(x.steps((label,))) for x in terms):
            raise Refused(f"every operand is repeated along {label!r}")


def _cell(dtype: DType) -> tuple[int, Callable[[Any], None]]:
    """Return the address of a factor that is read at the call, and the function that sets it."""
    part = ctypes.c_double if dtype.name in ("f64", "c128") else ctypes.c_float
    cell = (part * 2)()

    def put(value: complex) -> None:
        cell[0], cell[1] = value.real, value.imag

    return ctypes.addressof(cell), put
