"""From the message to the work: the product, its epilogue, and one rounding of everything that is stored."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.blas_lt.activations import derivative, forward, kept, passed
from callboard.backends.cpu.blas_lt.products import Array, affine, factors
from callboard.backends.cpu.lowprec import encode_f8
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.op import Outputs
from callboard.core.operand import Operand
from callboard.kernel.blas_lt import Matmul, MatmulAux, MatmulBgrad
from callboard.kernel.blas_lt.checks import is_fp8
from callboard.kernel.blas_lt.product import Product

__all__ = ["Plan", "backward", "forward_plan"]

Plan = Callable[..., None]
View = Callable[[int], Array]
Store = Callable[[Array, int, int | None, int | None], None]
"""``(value, out, scale_out, amax)``: round and write it."""


@plans(Matmul, MatmulAux)
def forward_plan(op: Matmul | MatmulAux) -> Plan:
    """Called with the operands and numbers of the message."""
    traits, made = op.traits, op.infer()
    read, add, store = factors(op), affine(op), _store(op, made)
    view_bias = _view(op.bias)
    write_aux = _written(op.aux, made, "aux") if isinstance(op, MatmulAux) else None
    weigh = _weights(op) if isinstance(op, Matmul) else None

    def work(
        a: int, b: int, out: int, c: Any, scale_a: Any, scale_b: Any, scale_out: Any, amax: Any, *rest: Any
    ) -> None:
        alpha, beta, bias, aux = rest
        value = add(*read(a, b, scale_a, scale_b), c, alpha, beta)
        if view_bias is not None:
            added = view_bias(bias).astype(value.dtype)
            value = value + (added[:, None, :] if added.ndim == 2 else added)
        if write_aux is not None and traits.activation is not None:
            write_aux(aux)[...] = kept(traits.activation, value)
        if weigh is not None:
            value = weigh(value, aux)
        if traits.activation is not None and not traits.backward:
            value = forward(traits.activation, value)
        store(value, out, scale_out, amax)

    return work


@plans(MatmulBgrad)
def backward(op: MatmulBgrad) -> Plan:
    """Called with the operands and numbers of the message."""
    grad, made = op.traits.grad, op.infer()
    read, add, store, weigh = factors(op), affine(op), _store(op, made), _weights(op)
    plain = op if op.scale_a is None and op.scale_b is None else None
    unscaled = (viewer(op.a.layout), viewer(op.b.layout))
    write_grad = _written(op.bias_grad, made, "bias_grad")

    def work(
        a: int, b: int, out: int, c: Any, scale_a: Any, scale_b: Any, scale_out: Any, amax: Any, *rest: Any
    ) -> None:
        alpha, beta, aux, bias_grad = rest
        left, right = read(a, b, scale_a, scale_b)
        value = weigh(add(left, right, c, alpha, beta), aux)
        if plain is None:  # the sums of factors are those of the stored factors
            left, right = (_turned(v(x), t) for v, x, t in zip(unscaled, (a, b), _flags(op), strict=True))
        terms, axis = {"out": (value, -2), "a": (left, -1), "b": (right, -2)}[grad or "out"]
        sums = np.sum(terms, axis=axis, dtype=np.float64)  # summed once more precisely than anything else, rounded once
        target = write_grad(bias_grad)
        target[...] = sums
        store(value, out, scale_out, amax)

    return work


def _flags(op: Product[Any]) -> tuple[bool, bool]:
    return op.transpose_a, op.transpose_b


def _turned(array: Array, transpose: bool) -> Array:
    return array.swapaxes(-1, -2) if transpose else array


def _weights(op: Matmul | MatmulBgrad) -> Callable[[Array, Any], Array]:
    """The product times the derivative at ``aux``, if there is one."""
    if op.aux is None:
        return lambda value, aux: value
    view = viewer(op.aux.layout)
    if op.traits.activation == "relu":
        return lambda value, aux: np.where(passed(view(aux), value.shape[-1]), value, value.dtype.type(0))
    return lambda value, aux: value * derivative(view(aux).astype(value.dtype))


def _store(op: Product[Any], made: Outputs) -> Store:
    write, dtype = _written(op.out, made, "out"), made["out"].dtype
    if not is_fp8(dtype):

        def store(value: Array, out: int, scale_out: int | None, amax: int | None) -> None:
            write(out)[...] = value

        return store
    view_scale, view_amax = _view(op.scale_out), _view(op.amax)

    def store_fp8(value: Array, out: int, scale_out: int | None, amax: int | None) -> None:
        if view_amax is not None and amax is not None:
            view_amax(amax)[...] = np.max(np.abs(value), initial=0)
        if view_scale is not None and scale_out is not None:
            value = value * view_scale(scale_out)
        write(out)[...] = encode_f8(value, dtype)

    return store_fp8


def _view(operand: Operand | None) -> View | None:
    return None if operand is None else viewer(operand.layout)


def _written(given: Operand | None, made: Outputs, name: str) -> View:
    layout: Layout = made[name] if given is None else given.layout
    return viewer(layout)
