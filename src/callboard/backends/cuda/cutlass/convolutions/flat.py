"""Convolutions as the matrix products that their templates compute; which convolutions have a template."""

from callboard.backends.cuda.cutlass.finishing import steps_of
from callboard.backends.cuda.cutlass.hopper import BYTES
from callboard.backends.cuda.cutlass.templates import why_no_template
from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import Conv, Gemm
from callboard.kernel.cutlass.epilogue import INPUTS
from callboard.kernel.cutlass.fused import Problem

__all__ = ["flattened", "why_no_conv"]

FACTORS = ("f16", "bf16")
CHANNELS = 8
"""Of both dtypes, in the 16 bytes at which TMA's loads start."""
STRIDE = 8
"""The largest step of TMA between the pixels that it loads."""
CORNER = 128
"""TMA holds the corners of the window that its loads are within in signed bytes, and offsets in unsigned bytes."""
PIXELS = 2**31


def flattened(op: Conv, problem: Problem) -> Gemm:
    """The product whose rows, columns and epilogue are those of a convolution.

    ``fprop``: ``[pixels, taps of channels] @ [taps of channels, filters]``. ``dgrad``: ``[pixels, taps of filters] @
    [taps of filters, channels]``. ``wgrad``: ``[filters, pixels] @ [pixels, channels]``, a batch of the taps.
    """
    images, filters, small = op.shapes()
    count, r, s, channels = filters
    dtype = op.a.dtype
    if op.kind == "wgrad":
        assert small is not None
        pixels, taps = small[0] * small[1] * small[2], r * s
        a = layout_of(dtype, (count, pixels), (1, count))
        b = layout_of(dtype, (taps, pixels, channels))
    else:
        taps = 0
        spatial = problem.result.shape[1:3]
        pixels, patch = images[0] * spatial[0] * spatial[1], r * s * (channels if op.kind == "fprop" else count)
        a = layout_of(dtype, (pixels, patch))
        b = layout_of(dtype, (patch, problem.result.shape[-1]), (1, patch) if op.kind == "fprop" else None)

    def flat(layout: Layout, kind: str) -> Layout:
        steps = steps_of(layout, kind, problem)
        assert steps is not None  # such a message is refused
        _, row, column = steps
        n = problem.result.shape[-1]
        if kind == "tensor":
            return layout
        if kind == "column":
            return layout_of(layout.dtype, (n,), (column,))
        shape, strides = ((taps, count), (row, taps * row)) if taps else ((pixels,), (row,))
        if kind == "row":
            return layout_of(layout.dtype, shape, strides)
        return layout_of(layout.dtype, (*shape, n), (*strides, column))

    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    inputs = [Placeholder(flat(one.layout, kinds[name])) for name, one in zip(op.names, op.inputs, strict=True)]
    return Gemm(
        a=Placeholder(a),
        b=Placeholder(b),
        out=Placeholder(flat(problem.result if op.out is None else op.out.layout, "matrix")),
        c=None if op.c is None else Placeholder(flat(op.c.layout, "matrix")),
        inputs=tuple(inputs),
        reductions=op.reductions,
        beta=op.beta,
        epilogue=op.epilogue,
        engine=op.engine,
    )


def why_no_conv(op: Conv, problem: Problem) -> str | None:
    """The reason why there is no template for a convolution, with a cure; None if there is one."""
    if op.a.dtype.name not in FACTORS or op.b.dtype is not op.a.dtype:
        return f"a is {op.a.dtype}; the templates of convolutions have {', '.join(FACTORS)}"
    if not problem.result.size or not op.a.size or not op.b.size:
        return "there is nothing to compute; leave engine out"
    _, (count, *extents, channels), small = op.shapes()
    if small is not None and op.kind == "wgrad" and small[0] * small[1] * small[2] == 1:
        return f"a is {op.a.layout!r}, one pixel; the template of wgrad has more: leave engine out"
    if op.kind == "dgrad" and op.stride != (1, 1):
        return f"stride is {op.stride}; the template of dgrad has stride 1: leave engine out"
    if max(op.stride) > STRIDE:
        return f"stride is {op.stride}; templates have strides up to {STRIDE}: leave engine out"
    stored = BYTES // problem.result.dtype.itemsize
    multiples = (
        {"channels": CHANNELS, "filters": stored}
        if op.kind == "fprop"
        else {"channels": max(CHANNELS, stored), "filters": CHANNELS}
    )
    for name, number in (("channels", channels), ("filters", count)):
        if number % multiples[name]:
            has = f"templates have multiples of {multiples[name]}"
            return f"there are {number} {name}; {has}: pad them, or leave engine out"
    for extent, pad, dilation in zip(extents, op.padding, op.dilation, strict=True):
        reach = (extent - 1) * dilation
        if pad >= CORNER or reach - pad > CORNER or reach >= 2 * CORNER - 1:
            return (
                f"padding is {pad} for filters that span {reach + 1} pixels; templates have paddings below {CORNER}, "
                f"spans below {2 * CORNER}, at most {CORNER + 1} beyond the padding: leave engine out"
            )
    flat = flattened(op, problem)
    if op.a.size // op.a.shape[-1] >= PIXELS or problem.result.size // problem.result.shape[-1] >= PIXELS:
        return f"there are 2**31 pixels and more in {op.a.layout!r}; templates have less: split the images"
    kinds = {node.kind for node in op.epilogue}
    if op.kind == "wgrad" and "row" in kinds:
        return "the epilogue has a number for each row, which wgrad's template does not have: leave engine out"
    for name, one in (("c", flat.c), ("out", flat.out)):
        if one is not None and one.shape[-1] > 1 and one.strides[-1] != 1:
            return f"{name} is {one.layout!r}; its rows must have no gaps: pass dev.copy({name})"
    return why_no_template(flat, flat.problem())
