"""Plans of contractions: each step of the network as a stack of matrix products (NumPy's, and so BLAS's).

``numpy.einsum`` and opt_einsum's own lowering loop over batches without BLAS, hence callboard's own lowering.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.tensor.elementwise import layout_of_out
from callboard.backends.cpu.tensor.operators import Array, term, widened
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.tensor import Contract, Einsum
from callboard.kernel.tensor.contraction import operands_of
from callboard.kernel.tensor.lowering import lowerings
from callboard.kernel.tensor.modes import Label, Tensor
from callboard.kernel.tensor.network import Step, network

__all__ = ["contract", "einsum"]

Plan = Callable[..., None]
Extents = Mapping[Label, int]
Run = Callable[[Sequence[Array], Array | None], Array]
"""``run(operands, into)``: the result, with the axes of the step's; ``into`` itself if that was given and used."""


@plans(Contract)
def contract(op: Contract) -> Plan:
    """Called with ``(a, b, out, c, alpha, beta)``."""
    tensors, inferred, extents = operands_of(op)
    dtype = op.a.dtype
    result = Tensor(inferred.labels, layout_of_out(op, inferred.layout))
    run = _steps(network(tensors, result, extents), tensors, extents, dtype)
    views = [viewer(tensor.layout) for tensor in tensors]
    view_out, view_c = viewer(result.layout), None if op.c is None else viewer(op.c.layout)
    term_a, term_b = term(dtype, op.op_a, 1.0), term(dtype, op.op_b, 1.0)
    scale, term_c = term(dtype, "identity", op.alpha), term(dtype, op.op_c, op.beta)
    plain = op.c is None and widened(dtype) == dtype.np

    def work(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        into = view_out(out)
        if plain and isinstance(alpha, float) and alpha == 1.0:
            _store(run([term_a(views[0](a), 1.0), term_b(views[1](b), 1.0)], into), into)
            return
        found = scale(run([term_a(views[0](a), 1.0), term_b(views[1](b), 1.0)], None), alpha)
        if c is not None and view_c is not None:
            found = found + term_c(view_c(c), beta)
        into[...] = found

    return work


@plans(Einsum)
def einsum(op: Einsum) -> Plan:
    """Called with ``(operands, out)``."""
    equation = op.read()
    dtype = op.operands[0].dtype
    result = Tensor(equation.output, layout_of_out(op, op.infer()["out"]))
    steps = network(equation.inputs, result, equation.extents, op.optimize)
    run = _steps(steps, equation.inputs, equation.extents, dtype)
    views = [viewer(tensor.layout) for tensor in equation.inputs]
    view_out, widen = viewer(result.layout), term(dtype, "identity", 1.0)
    plain = widened(dtype) == dtype.np

    def work(operands: Sequence[int], out: int) -> None:
        into = view_out(out)
        arrays = [widen(view(address), 1.0) for view, address in zip(views, operands, strict=True)]
        _store(run(arrays, into if plain else None), into)

    return work


def _store(found: Array, into: Array) -> None:
    if found is not into:
        into[...] = found


def _steps(steps: Sequence[Step], inputs: Sequence[Tensor], extents: Extents, dtype: DType) -> Run:
    """All steps, one after the other."""
    tensors = [*inputs, *(step.result for step in steps)]
    runs: list[tuple[tuple[int, ...], Run]] = []
    for step in steps:
        operands = [tensors[i] for i in step.operands]
        make = _sum if len(operands) == 1 else _product
        runs.append((step.operands, make(operands, step.result, extents, widened(dtype))))

    def run(arrays: Sequence[Array], into: Array | None) -> Array:
        known: list[Array] = list(arrays)
        for i, (operands, one) in enumerate(runs):
            known.append(one([known[j] for j in operands], into if i == len(runs) - 1 else None))
        return known[-1]

    return run


def _sum(operands: Sequence[Tensor], result: Tensor, extents: Extents, wide: "np.dtype[Any]") -> Run:
    (tensor,) = operands
    rest = [x for x in tensor.labels if x not in result.labels]
    order = [tensor.labels.index(x) for x in (*result.labels, *rest)]
    axes = tuple(range(len(result.labels), len(order)))

    def run(arrays: Sequence[Array], into: Array | None) -> Array:
        turned = arrays[0].transpose(order)
        return np.asarray(np.add.reduce(turned, axis=axes, dtype=wide)) if axes else turned

    return run


def _product(operands: Sequence[Tensor], result: Tensor, extents: Extents, wide: "np.dtype[Any]") -> Run:
    a, b = operands
    if math.prod(extents[x] for x in {*a.labels, *b.labels}) == 0:
        return lambda arrays, into: np.zeros(result.layout.shape, wide)
    if set(a.labels).union(b.labels) == set(result.labels):
        return _outer(a, b, result)
    if _is_in_panels(a, b, result):
        return _panels
    return _matrices(a, b, result, extents)


def _is_in_panels(a: Tensor, b: Tensor, result: Tensor) -> bool:
    """Whether a matrix is multiplied with one whose columns are in panels: ``mk,nkp->mnp``."""
    if (len(a.labels), len(b.labels)) != (2, 3):
        return False
    (m, k), (n, rows, p) = a.labels, b.labels
    return rows == k and len({m, n, k, p}) == 4 and tuple(result.labels) == (m, n, p)


def _panels(arrays: Sequence[Array], into: Array | None) -> Array:
    """A product for each panel, as it lies in memory."""
    found = np.empty((len(arrays[0]), *arrays[1].shape[::2]), arrays[0].dtype) if into is None else into
    np.matmul(arrays[0], arrays[1], out=found.transpose(1, 0, 2))
    return found


def _outer(a: Tensor, b: Tensor, result: Tensor) -> Run:
    """Nothing is summed: elements are multiplied, axes that one operand lacks are repeated."""

    def aligned(tensor: Tensor) -> Callable[[Array], Array]:
        order = [tensor.labels.index(x) for x in result.labels if x in tensor.labels]
        index = tuple(slice(None) if x in tensor.labels else None for x in result.labels)
        return lambda array: array.transpose(order)[index]

    first, second = aligned(a), aligned(b)
    return lambda arrays, into: np.multiply(first(arrays[0]), second(arrays[1]), out=into)


def _matrices(a: Tensor, b: Tensor, result: Tensor, extents: Extents) -> Run:
    way = lowerings(a, b, result, extents)[0]

    def stacked(name: str, tensor: Tensor) -> Callable[[Array], Array]:
        order, shape = [tensor.labels.index(x) for x in way.order(name)], way.shape(name)
        fits = getattr(way, name) is not None

        def stack(array: Array) -> Array:
            turned = array.transpose(order).reshape(shape)
            # Copied even where NumPy has a view: its product loops over odd strides without BLAS.
            return turned if fits else np.ascontiguousarray(turned)

        return stack

    first, second = stacked("a", a), stacked("b", b)
    order = way.order("out")
    split = tuple(extents[x] for x in order)
    back = [order.index(x) for x in result.labels]
    target = stacked("out", result) if way.out is not None else None

    def run(arrays: Sequence[Array], into: Array | None) -> Array:
        x, y = first(arrays[0]), second(arrays[1])
        if into is not None and target is not None:
            np.matmul(x, y, out=target(into))
            return into
        found: Array = np.matmul(x, y).reshape(split).transpose(back)
        return found

    return run
