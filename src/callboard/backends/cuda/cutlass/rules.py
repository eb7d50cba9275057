"""Ops that no engine has, decided from the message in the application, before anything is sent."""

from typing import Any

from callboard.backends.cuda.blas_lt.rules import refuses as refused_product
from callboard.backends.cuda.cutlass.convolutions.flat import why_no_conv
from callboard.backends.cuda.cutlass.engines import product_message, settings_of
from callboard.backends.cuda.cutlass.finishing import steps_of
from callboard.backends.cuda.cutlass.grouped_text import why_no_groups
from callboard.backends.cuda.cutlass.templates import why_no_template
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.kernel.cutlass import Conv, Explain, ExplainConv, Gemm, GroupedGemm
from callboard.kernel.cutlass.epilogue import INPUTS
from callboard.kernel.cutlass.fused import Fused, Problem

__all__ = ["conv_factors", "refuses"]


def refuses(op: Fused[Any]) -> str | None:
    """The reason why an op is unsupported, with a cure; None if it is supported."""
    if isinstance(op, Explain | ExplainConv):
        op = op.product()
    problem = op.problem()
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    arrays = [(name, one.layout, kinds[name]) for name, one in zip(op.names, op.inputs, strict=True)]
    arrays += [(name, one.layout, "matrix") for name, one in (("c", op.c), ("out", op.out)) if one is not None]
    for name, layout, kind in arrays:
        if steps_of(layout, kind, problem) is None:
            return f"{name} is {layout!r}, whose rows have no common distance; pass dev.copy({name})"
    if op.engine == "cutlass":
        why = _why_no_template(op, problem)
        if why is not None:
            return f"engine is 'cutlass': {why}"
    for one in op.reductions:
        if not one.layout.contiguous:
            return f"a reduction is {one.layout!r}; it must be row-major"
    if isinstance(op, GroupedGemm) or problem.result.size == 0:
        return None
    if isinstance(op, Gemm):
        if op.a.shape[-1] == 0:
            return None
        return _product(op, problem, op.a.layout, op.b.layout, **settings_of(op))
    assert isinstance(op, Conv)
    if not (op.a.layout.contiguous and op.b.layout.contiguous):
        return "a and b of a convolution must be row-major: pass dev.copy of them"
    a, b, shape = conv_factors(op, problem)
    return _product(op, Problem(layout_of(op.accumulated, shape)), a, b)


def _why_no_template(op: Fused[Any], problem: Problem) -> str | None:
    if isinstance(op, GroupedGemm):
        return why_no_groups(op, problem)
    assert isinstance(op, Gemm | Conv)
    return why_no_template(op, problem) if isinstance(op, Gemm) else why_no_conv(op, problem)


def _product(op: Fused[Any], problem: Problem, a: Layout, b: Layout, **settings: Any) -> str | None:
    try:
        return refused_product(product_message(a, b, layout_of(op.accumulated, problem.result.shape), **settings))
    except ShapeError as e:
        return str(e).partition(": ")[2]


def conv_factors(op: Conv, problem: Problem) -> tuple[Layout, Layout, tuple[int, ...]]:
    """Both factors of the product that a convolution is, and the shape of its sums."""
    images, filters, small = op.shapes()
    spatial = (problem.result.shape if small is None else small)[1:3]
    pixels, count = images[0] * spatial[0] * spatial[1], filters[0]
    patch = filters[1] * filters[2] * filters[3]
    dtype = op.a.dtype
    if op.kind == "fprop":
        return layout_of(dtype, (pixels, patch)), layout_of(op.b.dtype, (patch, count), (1, patch)), (pixels, count)
    if op.kind == "dgrad":
        return layout_of(dtype, (pixels, count)), layout_of(op.b.dtype, (count, patch)), (pixels, patch)
    return layout_of(dtype, (count, pixels), (1, count)), layout_of(op.b.dtype, (pixels, patch)), (count, patch)
