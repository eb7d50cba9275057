"""Convolutions on a GPU: operation graphs of cuDNN, with the epilogue in the same engine if there is one.

If cuDNN has no engine for a convolution with its epilogue, the convolution is stored first and a kernel finishes it in
place. Operands are described as ``[n, c, ...]`` with at least two spatial axes, whatever their order.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.accumulating import accumulating
from callboard.backends.cuda.dnn.frontend import GraphBuilder, Planned
from callboard.backends.cuda.dnn.padding import WidenedImage, is_even, widened
from callboard.backends.cuda.elementwise.mapping import MapPlan
from callboard.backends.cuda.plans import PlanMemory
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import Layout, layout_of
from callboard.core.library import plans
from callboard.core.op import info_of
from callboard.core.operand import Operand
from callboard.kernel.dnn.conv import Conv, ConvBackwardData, ConvBackwardFilter, ConvTranspose, Geometry, geometry_of
from callboard.kernel.dnn.epilogues import epilogue_of
from callboard.kernel.dnn.layouts import channels_first, of_channels

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["activated", "convolution", "data_gradient", "filter_gradient", "transpose"]

METHODS = {
    "relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "gelu": "gelu", "gelu_tanh": "gelu_approx_tanh",
    "swish": "swish", "elu": "elu", "softplus": "softplus",
}  # fmt: skip
"""Nodes of the frontend by our names."""


def activated(g: GraphBuilder, tensor: Any, activation: str) -> Any:
    """The node of an activation."""
    return getattr(g.raw, METHODS[activation])(tensor)


def two_axes(array: Layout) -> Layout:
    """With a spatial axis of extent 1 in front if there is only one: cuDNN has engines for 2 and 3."""
    if array.ndim != 3:
        return array
    (n, c, extent), (step_n, step_c, step) = array.shape, array.strides
    return layout_of(array.dtype, (n, c, 1, extent), (step_n, step_c, extent * step, step))


def described(op: Any, array: Layout) -> Layout:
    """The descriptor of an image or a filter, as given to cuDNN."""
    return two_axes(channels_first(array, op.layout))


def settings(g: Geometry) -> dict[str, list[int]]:
    """The settings shared by all convolution nodes."""
    one = [1] * (len(g.window) == 1)
    none = [0] * len(one)
    return {
        "pre_padding": none + [before for before, _ in g.padding],
        "post_padding": none + [behind for _, behind in g.padding],
        "stride": one + list(g.stride),
        "dilation": one + list(g.dilation),
    }


def policy(op: Any, dtype: DType) -> dict[str, Any]:
    """The settings of engine selection."""
    return {
        "compute": "f64" if dtype.name == "f64" else "i32" if dtype.name == "i8" else "f32",
        "tensor_cores": op.tf32 or dtype.name != "f32",
        "deterministic": op.deterministic,
        "autotune": op.autotune,
    }


def given(op: Any) -> Layout:
    """The layout of the result."""
    made: Layout = op.infer()["out"]
    out: Operand | None = op.out
    return made if out is None else out.layout


class Convolution:
    """A plan: ``plan(stream, x, w, out, bias, residual)``."""

    def __init__(self, library: "CudaDnn", op: Conv) -> None:
        self._plan: Planned | None = None
        self._finish: MapPlan | None = None
        self._sums: Memory | None = None
        self._device = library.device
        made = given(op)
        if not made.size:
            return
        follows = any(value is not None for value in (op.bias, op.residual, op.activation, op.scale))
        if follows:
            try:
                self._plan = planned(library, op, made, whole=True)
                return
            except UnsupportedOp:
                self._finish = finishing(library, op, made)
        sums = made if op.scale is None else layout_of(DTYPES["i32"], made.shape)
        if op.scale is not None:  # not in the workspace: the kernel that finishes them may work there
            self._sums = library.device.allocate(sums.nbytes)
        self._plan = planned(library, op, sums, whole=False)

    def __call__(self, stream: "CudaStream", x: int, w: int, out: int, bias: int | None, residual: int | None) -> None:
        if self._plan is None:
            return
        more = [address for address in (bias, residual) if address is not None]
        if self._finish is None:
            self._plan(stream, x, w, *more, out)
        else:
            sums = out if self._sums is None else self._sums.address
            self._plan(stream, x, w, sums)
            self._finish(stream, [sums, *more], None, [out])

    def close(self) -> None:
        for plan in (self._plan, self._finish):
            if plan is not None:
                plan.close()
        if self._sums is not None:
            self._device.release(self._sums)


def planned(library: "CudaDnn", op: Conv, out: Layout, *, whole: bool) -> Planned:
    """The convolution, with or without its epilogue."""
    geometry, dtype = geometry_of(op), op.x.dtype

    def describe(g: GraphBuilder) -> None:
        x, w = g.input(described(op, op.x.layout)), g.input(described(op, op.w.layout))
        result = described(op, out)
        value = g.raw.conv_fprop(x, w, **settings(geometry))
        is_i8 = dtype.name == "i8"
        if whole:
            value = followed(g, op, g.virtual(value, "i32" if is_i8 else "f32"), result)
        elif is_i8:  # cuDNN 9.19's engines for the convolution alone multiply its sums by the bits of 1.0f
            value = g.raw.identity(g.virtual(value, "i32"), compute_data_type=g.dtype("i32"))
        g.output(value, result)

    key = info_of(type(op)).split(op).signature + (b"whole" if whole else b"alone")
    try:
        return library.frontend.plan(describe, key, "dnn.conv", **policy(op, dtype))
    except UnsupportedOp as e:
        if dtype.name == "i8":
            raise UnsupportedOp(f"{e}; images and filters of i8 must be NHWC in memory") from None
        raise


def followed(g: GraphBuilder, op: Conv, value: Any, result: Layout) -> Any:
    """The nodes after the convolution; all compute in f32."""
    wide = {"compute_data_type": g.dtype("f32")}
    steps: list[Callable[[Any], Any]] = []
    if op.scale is not None:
        steps.append(lambda v: g.raw.mul(v, g.scalar(op.scale or 0.0, result.ndim), **wide))
    if op.bias is not None:
        bias = g.input(of_channels(op.bias.layout, result.ndim))
        steps.append(lambda v: g.raw.add(v, bias, **wide))
    if op.residual is not None:
        residual = g.input(described(op, op.residual.layout))
        steps.append(lambda v: g.raw.add(v, residual, **wide))
    if op.activation is not None:
        name = METHODS[op.activation]
        steps.append(lambda v: getattr(g.raw, name)(v, **wide))
    for i, step in enumerate(steps):
        value = step(value)
        if i < len(steps) - 1:
            g.virtual(value)
    return value


def finishing(library: "CudaDnn", op: Conv, made: Layout) -> MapPlan:
    """Return the plan that follows the convolution: in place, or on sums of i8."""
    out = channels_first(made, op.layout)
    sums = out if op.scale is None else channels_first(layout_of(DTYPES["i32"], made.shape), op.layout)
    operands = [sums]
    if op.bias is not None:
        operands.append(of_channels(op.bias.layout, out.ndim))
    if op.residual is not None:
        operands.append(channels_first(op.residual.layout, op.layout))
    program = epilogue_of(
        sums.dtype, out.dtype, scale=op.scale, bias=None if op.bias is None else op.bias.dtype,
        residual=None if op.residual is None else op.residual.dtype, activation=op.activation,
    )  # fmt: skip
    return MapPlan(library, program, out.shape, operands, [out])


class Gradient:
    """A plan: ``plan(stream, first, second, out)``.

    Args:
        library: The library of the plan.
        op: The message.
        node: Name of the node in the frontend.
        first, second: The operands.
        image: Name of the array that is the image.
    """

    def __init__(self, library: "CudaDnn", op: Any, node: str, first: str, second: str, image: str) -> None:
        self._plan: Planned | None = None
        layouts = {name: getattr(op, name).layout for name in (first, second)} | {"out": given(op)}
        if not layouts["out"].size:
            return
        geometry = geometry_of(op)
        self._cudnn, self._makes_image = library.cudnn, image == "out"
        self._memory = PlanMemory(library)
        self._image: WidenedImage | None = None
        if not is_even(geometry):
            wide = widened(layouts[image], geometry, op.layout)
            self._image = WidenedImage(self._memory, layouts[image], wide)
            layouts[image], geometry = wide.whole, geometry._replace(padding=wide.padding)

        def describe(g: GraphBuilder) -> None:
            operands = [g.input(described(op, layouts[name])) for name in (first, second)]
            g.output(getattr(g.raw, node)(*operands, **settings(geometry)), described(op, layouts["out"]))

        key, tag = info_of(type(op)).split(op).signature, info_of(type(op)).tag
        self._plan = library.frontend.plan(describe, key, tag, **policy(op, layouts[first].dtype))
        if self._image is not None:
            self._room = self._memory.take(self._plan.workspace)
            self._memory.settle()

    def __call__(self, stream: "CudaStream", first: int, second: int, out: int) -> None:
        if self._plan is None:
            return
        if self._image is None:
            self._plan(stream, first, second, out)
            return
        native, handle, there = stream.native, self._cudnn.on(stream), self._image.address
        if self._makes_image:
            self._plan.enqueue(handle, (first, second, there), self._room.ptr)
            self._image.deliver(native, out)
        else:
            self._image.fill(native, first)
            self._plan.enqueue(handle, (there, second, out), self._room.ptr)

    def close(self) -> None:
        if self._plan is not None:
            self._plan.close()
            self._memory.close()


class Zeros:
    """A plan: ``plan(stream, first, second, out)`` where sums are of nothing."""

    def __init__(self, library: "CudaDnn", out: Layout) -> None:
        self._driver, self._nbytes = library.device.driver, out.nbytes
        self._memory = PlanMemory(library)
        self._delivery = self._memory.delivered(out)
        self._memory.settle()

    def __call__(self, stream: "CudaStream", first: int, second: int, out: int) -> None:
        target, native = self._delivery.target(out), stream.native
        self._driver.check(self._driver.memset_8(target, 0, self._nbytes, native), "cuMemsetD8Async")
        self._delivery.finish(native, out)

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._memory.close()


def gradient(library: "CudaDnn", op: Any, node: str, first: str, second: str, image: str) -> Gradient | Zeros:
    """The plan of a gradient or of a transposed convolution; arguments as of :class:`Gradient`."""
    out = given(op)
    if out.size and not (getattr(op, first).size and getattr(op, second).size):
        return Zeros(library, out)
    return Gradient(library, op, node, first, second, image)


@plans(Conv)
@accumulating
def convolution(library: "CudaDnn", op: Conv) -> Any:
    """A plan: called with ``(x, w, out, bias, residual)``. It owns its memory, so repeated launches may be recorded."""
    return library.repeats.of(Convolution(library, op))


@plans(ConvBackwardData)
@accumulating
def data_gradient(library: "CudaDnn", op: ConvBackwardData) -> Any:
    """A plan: called with ``(dy, w, out)``."""
    return library.repeats.of(gradient(library, op, "conv_dgrad", "dy", "w", "out"))


@plans(ConvBackwardFilter)
@accumulating
def filter_gradient(library: "CudaDnn", op: ConvBackwardFilter) -> Any:
    """A plan: called with ``(x, dy, out)``."""
    return library.repeats.of(gradient(library, op, "conv_wgrad", "x", "dy", "x"))


@plans(ConvTranspose)
@accumulating
def transpose(library: "CudaDnn", op: ConvTranspose) -> Any:
    """A plan: called with ``(x, w, out)``."""
    return library.repeats.of(gradient(library, op, "conv_dgrad", "x", "w", "out"))
