"""Plans of reductions, permutations and element-wise ops."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from callboard.backends.cpu.tensor.operators import BINARY_UFUNCS, term, widened
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.op import Op
from callboard.core.operand import Operand
from callboard.kernel.tensor import ElementwiseBinary, ElementwiseTrinary, Permutation, Reduction
from callboard.kernel.tensor.elementwise import modes_of

__all__ = ["binary", "layout_of_out", "permutation", "reduction", "trinary"]

Plan = Callable[..., None]


def layout_of_out(op: Op[Any, Any], inferred: Layout) -> Layout:
    """Return the layout of the given output, or of the one that the host allocates."""
    given: Operand | None = op.out  # type: ignore[attr-defined]
    return inferred if given is None else given.layout


@plans(Reduction)
def reduction(op: Reduction) -> Plan:
    """Called with ``(a, out, c, alpha, beta)``."""
    named, result, extents = modes_of(op)
    labels = [x for x in extents if x not in result.labels]
    view_a = viewer(named["a"].along((*result.labels, *labels), extents))
    view_out = viewer(layout_of_out(op, result.layout))
    view_c = viewer(named["c"].layout) if "c" in named else None
    term_a, term_c = term(op.a.dtype, op.op_a, 1.0), term(op.a.dtype, op.op_c, op.beta)
    scale = term(op.a.dtype, "identity", op.alpha)
    reduce = partial(BINARY_UFUNCS[op.op_reduce].reduce, dtype=widened(op.a.dtype))
    axes = tuple(range(len(result.labels), len(extents)))
    empty = result.layout.size == 0

    def work(a: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        if empty:
            return  # of nothing there is no maximum, not even an empty one
        total = np.asarray(reduce(term_a(view_a(a), 1.0), axis=axes))
        found = scale(total, alpha)
        if c is not None and view_c is not None:
            found = found + term_c(view_c(c), beta)
        view_out(out)[...] = found

    return work


@plans(Permutation)
def permutation(op: Permutation) -> Plan:
    """Called with ``(a, out, alpha)``."""
    named, result, extents = modes_of(op)
    view_a, view_out = viewer(named["a"].along(result.labels, extents)), viewer(layout_of_out(op, result.layout))
    term_a = term(op.a.dtype, op.op_a, op.alpha)

    def work(a: int, out: int, alpha: Any) -> None:
        view_out(out)[...] = term_a(view_a(a), alpha)

    return work


@plans(ElementwiseBinary)
def binary(op: ElementwiseBinary) -> Plan:
    """Called with ``(a, c, out, alpha, gamma)``."""
    named, result, extents = modes_of(op)
    view_a, view_c = (viewer(named[x].along(result.labels, extents)) for x in "ac")
    view_out = viewer(layout_of_out(op, result.layout))
    term_a, term_c = term(op.a.dtype, op.op_a, op.alpha), term(op.a.dtype, op.op_c, op.gamma)
    join = BINARY_UFUNCS[op.op_ac]

    def work(a: int, c: int, out: int, alpha: Any, gamma: Any) -> None:
        view_out(out)[...] = join(term_a(view_a(a), alpha), term_c(view_c(c), gamma))

    return work


@plans(ElementwiseTrinary)
def trinary(op: ElementwiseTrinary) -> Plan:
    """Called with ``(a, b, c, out, alpha, beta, gamma)``."""
    named, result, extents = modes_of(op)
    view_a, view_b, view_c = (viewer(named[x].along(result.labels, extents)) for x in "abc")
    view_out = viewer(layout_of_out(op, result.layout))
    dtype = op.a.dtype
    term_a, term_b, term_c = (
        term(dtype, op.op_a, op.alpha),
        term(dtype, op.op_b, op.beta),
        term(dtype, op.op_c, op.gamma),
    )
    first, second = BINARY_UFUNCS[op.op_ab], BINARY_UFUNCS[op.op_abc]

    def work(a: int, b: int, c: int, out: int, alpha: Any, beta: Any, gamma: Any) -> None:
        found = first(term_a(view_a(a), alpha), term_b(view_b(b), beta))
        view_out(out)[...] = second(found, term_c(view_c(c), gamma))

    return work
