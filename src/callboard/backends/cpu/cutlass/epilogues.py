"""Epilogues in NumPy: the nodes one after the other, in the dtype that the message computes in."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.blas_lt.activations import forward
from callboard.backends.cpu.elementwise.erf import erf
from callboard.backends.cpu.lowprec import encode_f8
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DTYPES, DType
from callboard.kernel.cutlass.epilogue import BINARY as NODES
from callboard.kernel.cutlass.fused import Fused, Problem

__all__ = ["Finish", "finisher", "rounded"]

Array = np.ndarray[Any, Any]
Finish = Callable[..., None]
"""``(product, groups, out, c, inputs, reductions, alpha, beta)``; ``groups``: the group of each row, or None."""

REDUCE: dict[str, Any] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
EMPTY = {"max": -np.inf, "min": np.inf}
BINARY: dict[str, Any] = {name: getattr(np, name) for name in NODES}
PRECISE_ERF = np.frompyfunc(math.erf, 1, 1)
"""For f64: NumPy has none."""


def finisher(op: Fused[Any], problem: Problem) -> Finish:
    """Return the function that finishes the products of a message."""
    kind = op.computed.np.type
    shape = problem.result.shape
    write = viewer(problem.result if op.out is None else op.out.layout)
    view_c = None if op.c is None else viewer(op.c.layout)
    views = {name: viewer(one.layout) for name, one in zip(op.names, op.inputs, strict=True)}
    targets = [viewer(one.layout) for one in op.reductions]
    exact = op.a.dtype.name == "i8" and not op.epilogue and problem.result.dtype.name == "i32"

    def finish(
        product: Array, groups: Array | None, out: int, c: Any, inputs: Any, reductions: Any, alpha: Any, beta: Any
    ) -> None:
        if exact and alpha == 1 and beta == 0:
            write(out)[...] = product.reshape(shape)
            return
        with np.errstate(all="ignore"):
            value = product.astype(kind, copy=False).reshape(shape)
            if alpha != 1:
                value = value * kind(alpha)
            if beta != 0 and view_c is not None:
                value = value + kind(beta) * view_c(c).astype(kind)
            given = {name: view(at).astype(kind) for (name, view), at in zip(views.items(), inputs or (), strict=True)}
            found: list[Array] = []
            if op.epilogue:
                value = _evaluated(op, problem, value, given, groups, found)
            for view, at, numbers in zip(targets, reductions or (), found, strict=True):
                view(at)[...] = numbers
            write(out)[...] = rounded(np.broadcast_to(value, shape), problem.result.dtype)

    return finish


def _evaluated(
    op: Fused[Any], problem: Problem, product: Array, given: dict[str, Array], groups: Array | None, found: list[Array]
) -> Array:
    values: list[Any] = []
    for node in op.epilogue:
        arguments = [values[one] for one in node.arguments]
        if node.kind == "accumulator":
            values.append(product)
        elif node.kind == "number":
            values.append(product.dtype.type(node.value))
        elif node.kind in BINARY:
            values.append(BINARY[node.kind](*arguments))
        elif node.kind == "quantize":
            values.append(rounded(arguments[0], DTYPES[node.name]).astype(product.dtype))
        elif node.kind == "reduce":
            found.append(_reduced(np.broadcast_to(arguments[0], product.shape), node.how, problem))
            values.append(arguments[0])
        elif node.name:
            values.append(_spread(given[node.name], node.kind, problem, groups))
        else:
            values.append(_function(node.kind, np.asarray(arguments[0])))
    top: Array = np.asarray(values[-1])
    return top


def _spread(array: Array, kind: str, problem: Problem, groups: Array | None) -> Array:
    """An input in a form that broadcasts with the product."""
    if kind == "row":
        return array[..., None]
    if kind == "column" and array.ndim == 2:
        return array[:, None, :] if groups is None else array[groups]
    return array


def _function(name: str, x: Array) -> Array:
    one = x.dtype.type(1)
    if name in ("relu", "gelu"):
        return forward(name, x)
    if name == "sigmoid":
        found: Array = one / (one + np.exp(-x))
    elif name == "silu":
        found = x / (one + np.exp(-x))
    elif name == "erf":
        found = np.empty_like(x)
        if x.dtype == np.float32:
            erf(x, found)
        else:
            found[...] = PRECISE_ERF(x)
    else:
        found = getattr(np, name)(x)
    return found


def _reduced(value: Array, how: str, problem: Problem) -> Array:
    name, _, per = how.partition(" ")
    axes: int | tuple[int, ...] = -1
    if per == "column":
        axes = 1 if problem.stacks else tuple(range(value.ndim - 1))
    if name in EMPTY:
        found: Array = REDUCE[name](value, axis=axes, initial=EMPTY[name])
    else:
        found = REDUCE[name](value, axis=axes, dtype=np.float64)  # summed more precisely than anything else
    return found


def rounded(value: Array, dtype: DType) -> Array:
    """Values as they are stored: to nearest, ties to even; integers and fp8 saturate, as CUDA's conversions do.

    A NaN becomes 0 in i32 and -128 in i8.
    """
    if dtype.name.startswith("f8"):
        return encode_f8(value, dtype)
    if dtype.is_integer:
        limits = np.iinfo(dtype.np)
        wide = np.rint(value.astype(np.float64))
        wide = np.nan_to_num(wide, nan=float(limits.min if dtype.name == "i8" else 0))
        whole: Array = np.clip(wide, limits.min, limits.max).astype(dtype.np)
        return whole
    return value.astype(dtype.np, copy=False)
