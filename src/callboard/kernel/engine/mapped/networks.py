"""Products, convolutions, pooling and normalisations."""

import math
from typing import Any

from callboard.core.operand import Operand
from callboard.kernel.elementwise.shapes import broadcast
from callboard.kernel.engine.mapped.tools import LARGEST_OPERAND, Tools, Value, is_float, name_of, operator
from callboard.kernel.tensor import Contract

__all__: list[str] = []


@operator("MatMul", since=1)
def matmul(t: Tools, a: Value, b: Value) -> Value:
    if a.ndim > 1 and b.ndim > 1 and (batch := broadcast([a.shape[:-2], b.shape[:-2]])) is not None:
        t.sized((*batch, a.shape[-2], b.shape[-1]), a, b)
    if (found := _by_panels(t, a, b)) is not None:
        return found
    xp, (x, y) = t.both(a, b)
    if x.ndim < (2 if isinstance(x, Operand) and t.tf32(x) else 3) or y.ndim != 2 or 0 in (*x.shape, *y.shape):
        return xp.matmul(x, y)
    lines = xp.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))  # one product, not one for each matrix
    found = t.blas_lt.matmul(lines, y, tf32=True) if t.tf32(x) else xp.matmul(lines, y)
    return xp.reshape(found, (*x.shape[:-1], y.shape[1]))


def _by_panels(t: Tools, a: Value, b: Value, transposed: bool = False) -> Value | None:
    """The product with a constant matrix in panels (:meth:`Tools.panels`); None if it has none."""
    panels = t.panels(b, a, transposed)
    if panels is None or a.dtype is not panels.dtype or a.shape[-1] != panels.shape[1]:
        return None
    lines = a if a.ndim == 2 else t.xp(a).reshape(a, (-1, a.shape[-1]))
    found = t.submit(Contract(a=lines, b=panels, modes_a="mk", modes_b="nkp", modes_out="mnp"))
    return t.xp(a).reshape(found, (*a.shape[:-1], panels.shape[0] * panels.shape[2]))


@operator("Einsum", since=12)
def einsum(t: Tools, *values: Value, equation: bytes) -> Value:
    text = equation.decode().replace(" ", "")
    terms, arrow, kept = text.partition("->")
    extents: dict[str, int] = {}
    open_: list[tuple[int, ...]] = []
    for term, value in zip(terms.split(","), values, strict=True):
        before, between, after = term.partition("...")
        rest = len(value.shape) - len(after)
        extents.update(zip(before, value.shape, strict=False))
        extents.update(zip(after, value.shape[rest:], strict=True))
        open_.append(tuple(value.shape[len(before) : rest]) if between else ())
    if not arrow:
        kept = "..." + "".join(letter for letter in extents if terms.count(letter) == 1)
    shape = [extents[letter] for letter in kept.replace("...", "")]
    dots = broadcast(open_) or ()
    t.sized([*shape, *(dots if "..." in kept else ())], *values)
    if math.prod((*extents.values(), *dots)) > LARGEST_OPERAND:  # products of small arrays, for which no loop waits
        values = tuple(map(t.ref, values))
    xp, given = t.both(*values)
    return xp.einsum(text, *given)


@operator("Gemm", since=7)
def gemm(
    t: Tools,
    a: Value,
    b: Value,
    c: Value = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    t.expect(a, "A", None, None)
    t.expect(b, "B", None, None)
    found = None if transA else _by_panels(t, a, b, bool(transB))
    if found is None:
        xp, (x, y) = t.both(a, b)
        x = xp.matrix_transpose(x) if transA else x
        y = xp.matrix_transpose(y) if transB else y
        found = matmul(t, x, y)
    if alpha != 1.0:
        found = _times(t, found, alpha)
    if c is None or beta == 0.0:
        return found
    t.fits(c, "C", tuple(found.shape))
    xp, (found, c) = t.both(found, c)
    return xp.add(found, c if beta == 1.0 else _times(t, c, beta))


def _times(t: Tools, x: Value, factor: float) -> Value:
    if not is_float(x) and not factor.is_integer():
        raise t.refusal(f"the factor {factor} of integers is not mapped")
    return t.xp(x).multiply(x, factor if is_float(x) else int(factor))


def _window(
    t: Tools,
    x: Value,
    kernel: list[int],
    strides: list[int] | None,
    dilations: list[int] | None,
    pads: list[int] | None,
    auto_pad: bytes,
) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Strides, dilations and padding of each axis."""
    n = len(kernel)
    if x.ndim != n + 2:
        raise t.misfit(f"the kernel {kernel} does not fit {x.ndim} axes")
    step, reach = strides or [1] * n, dilations or [1] * n
    if auto_pad in (b"", b"NOTSET"):
        given = pads or [0] * (2 * n)
        t.sized((*x.shape[:2], *(x.shape[at + 2] + given[at] + given[at + n] for at in range(n))), x)
        return step, reach, [(given[at], given[at + n]) for at in range(n)]
    if auto_pad == b"VALID":
        return step, reach, [(0, 0)] * n
    around = []
    for at in range(n):
        extent = x.shape[at + 2]
        total = max((-(-extent // step[at]) - 1) * step[at] + (kernel[at] - 1) * reach[at] + 1 - extent, 0)
        less, more = total // 2, total - total // 2
        around.append((less, more) if auto_pad == b"SAME_UPPER" else (more, less))
    return step, reach, around


@operator("Conv", since=1)
def conv(
    t: Tools,
    x: Value,
    w: Value,
    b: Value = None,
    *,
    auto_pad: bytes = b"NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    x, w = t.ref(x), t.ref(w)
    kernel = list(w.shape[2:])
    if kernel_shape and kernel_shape != kernel:
        raise t.misfit(f"kernel_shape is {kernel_shape}, and W has the shape {list(w.shape)}")
    step, reach, around = _window(t, x, kernel, strides, dilations, pads, auto_pad)
    return t.dnn.conv(
        x,
        w,
        stride=tuple(step),
        padding=tuple(around),
        dilation=tuple(reach),
        groups=group,
        bias=None if b is None else t.ref(b),
        tf32=t.tf32(x),
    )


@operator("ConvTranspose", since=1)
def conv_transpose(
    t: Tools,
    x: Value,
    w: Value,
    b: Value = None,
    *,
    auto_pad: bytes = b"NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    x, w = t.ref(x), t.ref(w)
    if auto_pad not in (b"", b"NOTSET"):
        raise t.refusal("automatic padding of ConvTranspose is not mapped")
    n = len(w.shape) - 2
    step, reach, around = _window(t, x, list(w.shape[2:]), strides, dilations, pads, auto_pad)
    more = output_padding or [0] * n
    extents = [
        (x.shape[at + 2] - 1) * step[at] + (w.shape[at + 2] - 1) * reach[at] + 1 - sum(around[at]) + more[at]
        for at in range(n)
    ]
    t.sized((x.shape[0], w.shape[1] * group, *extents), x, w)
    found = t.dnn.conv_transpose(
        x,
        w,
        stride=tuple(step),
        padding=tuple(around),
        dilation=tuple(reach),
        groups=group,
        output_padding=tuple(more),
        tf32=t.tf32(x),
    )
    return found if b is None else t.xp(found).add(found, t.ref(b).reshape(1, -1, *[1] * n))


def _ceiled(
    x: Any, kernel: list[int], step: list[int], reach: list[int], around: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Padding with which the last window of each axis is complete (``ceil_mode``)."""
    grown = []
    for at, (before, after) in enumerate(around):
        extent = x.shape[at + 2] + before + after
        rest = extent - (kernel[at] - 1) * reach[at] - 1
        outputs = -(-rest // step[at]) + 1
        if (outputs - 1) * step[at] >= x.shape[at + 2] + before:
            outputs -= 1  # a window that would begin behind the padding
        grown.append((before, max(after, after + (outputs - 1) * step[at] - rest)))
    return grown


@operator("MaxPool", since=1)
def max_pool(
    t: Tools,
    x: Value,
    *,
    kernel_shape: list[int],
    auto_pad: bytes = b"NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
) -> Value:
    if t.outputs > 1:
        raise t.refusal("indices of MaxPool are not mapped")
    x = t.ref(x)
    if not is_float(x):
        raise t.refusal("MaxPool of integers is not mapped")
    step, reach, around = _window(t, x, kernel_shape, strides, dilations, pads, auto_pad)
    if ceil_mode:
        around = _ceiled(x, kernel_shape, step, reach, around)
    return t.dnn.max_pool(x, tuple(kernel_shape), stride=tuple(step), padding=tuple(around), dilation=tuple(reach))


@operator("AveragePool", since=7)
def average_pool(
    t: Tools,
    x: Value,
    *,
    kernel_shape: list[int],
    auto_pad: bytes = b"NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    x = t.ref(x)
    step, reach, around = _window(t, x, kernel_shape, strides, dilations, pads, auto_pad)
    if ceil_mode or any(n != 1 for n in reach):
        raise t.refusal("AveragePool with ceil_mode or dilations is not mapped")
    return t.dnn.avg_pool(
        x, tuple(kernel_shape), stride=tuple(step), padding=tuple(around), count_include_pad=bool(count_include_pad)
    )


@operator("GlobalAveragePool", since=1)
def global_average_pool(t: Tools, x: Value) -> Value:
    return t.xp(x).mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalMaxPool", since=1)
def global_max_pool(t: Tools, x: Value) -> Value:
    return t.xp(x).max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("BatchNormalization", since=9)
def batch_normalization(
    t: Tools,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Value:
    if training_mode or t.outputs > 1:
        raise t.refusal("BatchNormalization in training is not mapped")
    return t.dnn.batch_norm(
        t.ref(x), t.ref(mean), t.ref(variance), scale=t.ref(scale), bias=t.ref(bias), epsilon=epsilon
    )


@operator("InstanceNormalization", since=6)
def instance_normalization(t: Tools, x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5) -> Value:
    return t.dnn.instance_norm(t.ref(x), scale=t.ref(scale), bias=t.ref(bias), epsilon=epsilon)


@operator("GroupNormalization")
def group_normalization(
    t: Tools, x: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    if scale.shape[0] != x.shape[1]:
        raise t.refusal("GroupNormalization with a scale for each group (opset 18) is not mapped")
    return t.dnn.group_norm(t.ref(x), scale=t.ref(scale), bias=t.ref(bias), groups=num_groups, epsilon=epsilon)


@operator("LayerNormalization")
def layer_normalization(
    t: Tools, x: Value, scale: Value, bias: Value = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    if t.outputs > 1:
        return _layer_statistics(t, x, scale, bias, axis, epsilon)
    axes = x.ndim - t.axis(axis, x.ndim)
    shape = tuple(x.shape[x.ndim - axes :])
    for w, what in ((scale, "Scale"), (bias, "B")):
        if w is not None:
            t.fits(w, what, shape)
    return t.dnn.layer_norm(
        t.ref(x),
        scale=_widened(t, scale, shape),
        bias=None if bias is None else _widened(t, bias, shape),
        axes=axes,
        epsilon=epsilon,
    )


def _widened(t: Tools, w: Value, shape: tuple[int, ...]) -> Value:
    """A weight of a norm in the shape of what is normalised; one that has it stays the constant that it is."""
    return t.ref(w if tuple(w.shape) == shape else t.xp(w).broadcast_to(w, shape))


def _layer_statistics(t: Tools, x: Value, scale: Value, bias: Value, axis: int, epsilon: float) -> tuple[Value, ...]:
    xp, (a, s) = t.both(x, scale)
    along = tuple(range(t.axis(axis, x.ndim), x.ndim))
    wide = t.cast(a, "f32")
    mean = xp.mean(wide, axis=along, keepdims=True)
    centred = xp.subtract(wide, mean)
    variance = xp.mean(xp.multiply(centred, centred), axis=along, keepdims=True)
    inverse = xp.divide(xp.ones_like(variance), xp.sqrt(xp.add(variance, epsilon)))
    found = xp.multiply(t.cast(xp.multiply(centred, inverse), name_of(x)), s)
    return (found if bias is None else xp.add(found, t.ref(bias)), mean, inverse)[: t.outputs]


@operator("RMSNormalization")
def rms_normalization(
    t: Tools, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    axes = x.ndim - t.axis(axis, x.ndim)
    return t.dnn.rms_norm(
        t.ref(x), scale=_widened(t, scale, tuple(x.shape[x.ndim - axes :])), axes=axes, epsilon=epsilon
    )


@operator("LRN", since=1)
def lrn(t: Tools, x: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Value:
    if size % 2 == 0:
        raise t.refusal(f"LRN over {size} channels is not mapped: an odd number is")
    return t.dnn.lrn(t.ref(x), size=size, alpha=alpha, beta=beta, k=bias)
