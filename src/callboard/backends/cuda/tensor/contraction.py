"""Contractions: the steps of a network, one after the other on the stream, with scratch memory between them."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.tensor.elementwise import Run, Term, mover, result_of
from callboard.backends.cuda.tensor.products import Product, product
from callboard.backends.cuda.tensor.reductions import reduced
from callboard.core.library import plans
from callboard.kernel.tensor import Contract, Einsum
from callboard.kernel.tensor.checks import name_of
from callboard.kernel.tensor.contraction import operands_of
from callboard.kernel.tensor.modes import Tensor
from callboard.kernel.tensor.network import Step, network

if TYPE_CHECKING:
    from callboard.backends.cuda.tensor.engine import Engine, Scratch

__all__ = ["contract", "einsum"]


@plans(Contract)
def contract(engine: "Engine", op: Contract, scratch: "Scratch") -> Run:
    """``run(a, b, out, c, alpha, beta)``."""
    tensors, inferred, extents = operands_of(op)
    result = result_of(op, inferred)
    steps = network(tensors, result, extents)
    conj = [op.op_a == "conj", op.op_b == "conj"]  # of a sum as of its terms
    last = steps[-1]
    found = [*tensors, *(step.result for step in steps)]
    for step in steps[:-1]:
        conj.append(conj[step.operands[0]])
    first, second = last.operands
    final = Product(
        found[first],
        found[second],
        result,
        extents,
        (conj[first], conj[second]),
        None if op.c is None else Term(Tensor(result.labels, op.c.layout), op.op_c, op.beta),
        op.alpha,
        op.beta,
        name_of(op.compute),
        op.autotune,
    )
    chain = _Chain(engine, scratch, tensors, steps, final, extents)

    def run(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        chain.run((a, b), out, c, alpha, beta)

    return run


@plans(Einsum)
def einsum(engine: "Engine", op: Einsum, scratch: "Scratch") -> Run:
    """``run(operands, out)``."""
    equation = op.read()
    result = result_of(op, Tensor(equation.output, op.infer()["out"]))
    steps = network(equation.inputs, result, equation.extents, op.optimize)
    chain = _Chain(engine, scratch, equation.inputs, steps, None, equation.extents, op)
    return lambda operands, out: chain.run(operands, out, None, 1.0, 0.0)


class _Chain:
    """The steps of a plan; each result but the last has a place in the scratch memory while it is needed.

    Args:
        final: The last step, if it does more than multiply.
        einsum: Einsum whose settings the other steps have; None if there is none.
    """

    def __init__(
        self,
        engine: "Engine",
        scratch: "Scratch",
        inputs: Sequence[Tensor],
        steps: Sequence[Step],
        final: Product | None,
        extents: Any,
        einsum: Einsum | None = None,
    ) -> None:
        self._scratch = scratch
        pair = (
            Product if einsum is None else partial(Product, compute=name_of(einsum.compute), autotune=einsum.autotune)
        )
        tensors = [*inputs, *(step.result for step in steps)]
        places: dict[int, int] = {}
        self._steps: list[tuple[Run, tuple[int, ...], int | None]] = []
        for number, step in enumerate(steps, len(inputs)):
            operands = [tensors[i] for i in step.operands]
            last = number == len(tensors) - 1
            place = None if last else scratch.take(step.result.layout.nbytes)
            if len(operands) == 1:
                run = _sum(engine, scratch, operands[0], step.result, extents)
            elif last and final is not None:
                run = product(engine, final, scratch)
            else:
                run = product(engine, pair(operands[0], operands[1], step.result, extents), scratch)
            for used in set(step.operands).intersection(places):
                scratch.give(places.pop(used))  # each result is an operand once
            if place is not None:
                places[number] = place
            self._steps.append((run, step.operands, place))

    def run(self, operands: Sequence[int], out: int, c: int | None, alpha: Any, beta: Any) -> None:
        """Enqueue all."""
        addresses = list(operands)
        base = self._scratch.base
        for run, (first, *second), place in self._steps:
            into = out if place is None else base + place
            if not second:
                run(into, addresses[first])
            elif place is None:
                run(addresses[first], addresses[second[0]], out, c, alpha, beta)
            else:
                run(addresses[first], addresses[second[0]], into, None, 1.0, 0.0)
            addresses.append(into)


def _sum(engine: "Engine", scratch: "Scratch", tensor: Tensor, result: Tensor, extents: Any) -> Run:
    """``run(out, a)``: a sum, or a copy if all modes stay."""
    if len(tensor.labels) == len(result.labels):
        move = mover(engine, scratch, tensor, result, extents)
        return lambda out, a: move(a, out)
    add = reduced(engine, scratch, result, [Term(tensor)], extents, "add", 1.0, None)
    return lambda out, a: add(out, (a,), None, 1.0, 0.0)
