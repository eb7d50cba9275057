"""Convolutions over 1 to 3 spatial axes, their gradients, and transposed ones.

In the layout ``"NCHW"`` an image is ``[n, c, ...]`` and a filter ``[k, c / groups, ...]``; in ``"NHWC"`` they are
``[n, ..., c]`` and ``[k, ..., c / groups]``. As in other deep learning libraries, a convolution here is a
cross-correlation: ``out[n, k, p] = sum over c, q of x[n, c, p * stride + q * dilation - before] * w[k, c, q]``.
"""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from callboard.core.dtype import DTYPES, DType, DTypeLike, as_dtype
from callboard.core.layout import layout_of
from callboard.core.op import Outputs
from callboard.core.operand import In, Out, Placeholder
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.accumulation import Accumulating
from callboard.kernel.dnn.checks import (
    FLOATS,
    DataLayout,
    Extents,
    Image,
    Padding,
    check_like,
    dtype_of,
    image_of,
    paddings_of,
    per_axis,
    shape_of_image,
)

__all__ = [
    "Conv",
    "ConvActivation",
    "ConvBackwardData",
    "ConvBackwardFilter",
    "ConvTranspose",
    "Geometry",
    "geometry_of",
]

ConvActivation = Literal["relu", "sigmoid", "tanh", "gelu", "gelu_tanh", "swish", "elu", "softplus"]
"""Activations that may follow a convolution; ``"gelu"`` by the error function, ``"gelu_tanh"`` by its approximation."""

ScaledDType = Annotated[DTypeLike, Literal["f32", "i8"]]
"""The dtype of a scaled result."""
WITH_I8 = (*FLOATS, DTYPES["i8"])


class Geometry(NamedTuple):
    """A convolution from ``image`` to ``result`` with ``filters`` (``channels`` are those of one group).

    Attributes:
        image, result: Extents of input and output.
        window: Extent of the filter along each spatial axis; the following fields also have a number for each spatial
            axis.
        stride: Distance between neighbouring positions of the filter.
        padding: Before and after the image.
        dilation: Distance between neighbouring elements of the filter.
        groups: Number of groups of channels, which are convolved separately.
    """

    image: Image
    result: Image
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        places = self.result.batch * self.result.channels
        for n in (*self.result.spatial, *self.window):
            places *= n
        return 2 * places * (self.image.channels // self.groups)


class _Convolution(Accumulating):
    """Base of convolutions; :class:`Conv` describes it."""

    stride: Extents = 1
    padding: Padding = 0
    dilation: Extents = 1
    groups: int = 1
    layout: DataLayout = "NCHW"
    tf32: bool = False
    deterministic: bool = False
    autotune: bool = False


class Conv(_Convolution, tag="dnn.conv"):
    """``activation(conv(x, w) + bias + residual)`` (``ConvFwdRequest``).

    Args:
        x: ``[n, c, ...]`` with 1 to 3 spatial axes; f16, bf16, f32, f64 or i8.
        w: ``[k, c / groups, ...]``, same dtype.
        out: ``[n, k, ...]``; a new array when None. Dtype of ``x``; of i8: i32, or with ``scale`` f32 or i8.
        bias: ``[k]``, dtype of ``x`` (f32 for i8).
        residual: Shape and dtype of the result; added before the activation.
        addend, alpha, beta: The result becomes ``alpha * result + beta * addend``. ``addend`` is like ``out``, and
            may be the same array, which then accumulates; it is not read if ``beta`` is 0. Not for i8, which has
            ``scale``.
        activation: Applied last.
        scale: Factor of the sums before the bias; for i8 only.
        out_dtype: The dtype of a new result for i8 with ``scale``: ``"f32"`` or ``"i8"`` (rounded to even, saturated).
        stride: Distance between neighbouring positions of the filter; one number, or one for each spatial axis.
        padding: Zeros around the image: one number, or for each spatial axis one or ``(before, after)``.
        dilation: Distance between neighbouring elements of the filter.
        groups: Number of groups of channels of the image and of the result, which are convolved separately.
        layout: Order of the axes of images and filters.
        tf32: f32 factors may be rounded to TF32 (10 bits of mantissa), if the device has it.
        deterministic: Equal calls give equal bits. The CPU always does.
        autotune: Time the engines of the library when a convolution of this kind is first met, and keep the fastest.

    With a bias, a residual or an activation, ``alpha`` is a factor of what they make. Halves are multiplied and summed
    in f32. They are rounded once if the device has an engine for the whole op, otherwise also between the convolution
    and its epilogue, and before ``alpha`` and ``addend``; products of i8 are summed in i32.
    """

    dtypes: ClassVar[tuple[DType, ...]] = WITH_I8

    x: In
    w: In
    out: Out | None = None
    bias: In | None = None
    residual: In | None = None
    activation: ConvActivation | None = None
    scale: float | None = None
    out_dtype: ScaledDType | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, WITH_I8, x=self.x, w=self.w)
        geometry = geometry_of(self)
        made = layout_of(self.result_dtype(dtype), shape_of_image(geometry.result, self.layout))
        bias_dtype = DTYPES["f32"] if dtype.name == "i8" else dtype
        if self.bias is not None:
            check_like(self, "bias", self.bias, (geometry.result.channels,), "a number for each channel of the result")
            if self.bias.dtype is not bias_dtype:
                raise refuse(self, f"bias is {self.bias.layout!r}; with {dtype} its dtype must be {bias_dtype}")
        if self.residual is not None:
            check_like(self, "residual", self.residual, made.shape, "the shape of the result")
            if self.residual.dtype is not made.dtype:
                raise refuse(
                    self, f"residual is {self.residual.layout!r}; its dtype must be that of the result: {made.dtype}"
                )
        if dtype.name == "i8" and (self.addend is not None or self.alpha != 1):
            raise refuse(self, f"x is {self.x.layout!r}, and addend and alpha are not for i8; pass scale and residual")
        return self.accumulated(made)

    def result_dtype(self, dtype: DType) -> DType:
        """The dtype of the result, given that of ``x``."""
        if dtype.name != "i8":
            if self.scale is not None or self.out_dtype is not None:
                raise refuse(self, f"scale and out_dtype are for i8; x is {self.x.layout!r}")
            return dtype
        if self.scale is None:
            for name in ("bias", "residual", "activation", "out_dtype"):
                if getattr(self, name) is not None:
                    raise refuse(
                        self, f"{name} is given and scale is None; with i8 it needs a scale (1.0 keeps the sums)"
                    )
            return DTYPES["i32"]
        return as_dtype(self.out_dtype or "f32")


class ConvBackwardData(_Convolution, tag="dnn.conv_backward_data"):
    """Gradient of a convolution by its image (``ConvBwdDataRequest``).

    Args:
        dy: ``[n, k, ...]``, the gradient by the result; f16, bf16, f32 or f64.
        w: ``[k, c / groups, ...]``, same dtype.
        shape: Shape of the image: ``(n, c, ...)``, in the order of ``layout``.
        out: Same dtype; a new array when None.
        addend, alpha, beta: The result becomes ``alpha * result + beta * addend``. ``addend`` is like ``out``, and
            may be the same array, which then accumulates; it is not read if ``beta`` is 0. Halves are rounded before
            and after.
        stride, padding, dilation, groups, layout, tf32, deterministic, autotune: See :class:`Conv`.

    Halves are multiplied and summed in f32 and rounded once.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    dy: In
    w: In
    shape: tuple[int, ...]
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, FLOATS, dy=self.dy, w=self.w)
        geometry_of(self)
        return self.accumulated(layout_of(dtype, self.shape))


class ConvBackwardFilter(_Convolution, tag="dnn.conv_backward_filter"):
    """Gradient of a convolution by its filter (``ConvBwdFilterRequest``).

    Args:
        x: ``[n, c, ...]``, the image; f16, bf16, f32 or f64.
        dy: ``[n, k, ...]``, the gradient by the result, same dtype.
        shape: Shape of the filter: ``(k, c / groups, ...)``, in the order of ``layout``.
        out: Same dtype; a new array when None.
        addend, alpha, beta: The result becomes ``alpha * result + beta * addend``. ``addend`` is like ``out``, and
            may be the same array, which then accumulates; it is not read if ``beta`` is 0. Halves are rounded before
            and after.
        stride, padding, dilation, groups, layout, tf32, deterministic, autotune: See :class:`Conv`.

    Halves are multiplied and summed in f32 and rounded once.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    x: In
    dy: In
    shape: tuple[int, ...]
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, FLOATS, x=self.x, dy=self.dy)
        geometry_of(self)
        return self.accumulated(layout_of(dtype, self.shape))


class ConvTranspose(_Convolution, tag="dnn.conv_transpose"):
    """The transposed convolution, also called deconvolution: the gradient of a convolution applied to ``x``.

    Args:
        x: ``[n, c, ...]`` with 1 to 3 spatial axes; f16, bf16, f32 or f64.
        w: ``[c, k / groups, ...]``, same dtype.
        out: ``[n, k, ...]``; a new array when None. Each spatial extent is
            ``(n - 1) * stride - before - after + (window - 1) * dilation + 1 + output_padding``.
        addend, alpha, beta: The result becomes ``alpha * result + beta * addend``. ``addend`` is like ``out``, and
            may be the same array, which then accumulates; it is not read if ``beta`` is 0. Halves are rounded before
            and after.
        output_padding: Added to the extents at the end, if a stride leaves several possible; less than the stride.
        stride: Distance between neighbouring positions of the filter in the result.
        padding: Elements cut off the result: one number, or for each spatial axis one or ``(before, after)``.
        dilation, groups, layout, tf32, deterministic, autotune: See :class:`Conv`.

    Halves are multiplied and summed in f32 and rounded once. Its gradients are :class:`Conv` (by ``x``) and
    :class:`ConvBackwardFilter` with the roles of image and gradient exchanged (by ``w``).
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    x: In
    w: In
    out: Out | None = None
    output_padding: Extents = 0

    def infer(self) -> Outputs:
        dtype = dtype_of(self, FLOATS, x=self.x, w=self.w)
        return self.accumulated(layout_of(dtype, shape_of_image(geometry_of(self).image, self.layout)))


def geometry_of(op: Any) -> Geometry:
    """The convolution that an op is about: that whose image, result or filter it makes.

    Raises:
        ShapeError: Operands and settings do not fit.
    """
    if isinstance(op, ConvTranspose):
        return _transposed(op)
    layout: DataLayout = op.layout
    if isinstance(op, ConvBackwardData):
        image, filters = _shaped(op, "shape", op.shape, layout), image_of(op, "w", op.w, layout)
    elif isinstance(op, ConvBackwardFilter):
        image, filters = image_of(op, "x", op.x, layout), _shaped(op, "shape", op.shape, layout)
    else:
        image, filters = image_of(op, "x", op.x, layout), image_of(op, "w", op.w, layout)
    geometry = _convolved(op, image, filters)
    if isinstance(op, ConvBackwardData | ConvBackwardFilter):
        shape = shape_of_image(geometry.result, layout)
        check_like(op, "dy", op.dy, shape, "the shape of the convolution's result")
    return geometry


def _shaped(op: Any, name: str, shape: tuple[int, ...], layout: DataLayout) -> Image:
    if any(n < 0 for n in shape):
        raise refuse(op, f"{name} is {shape}; extents are at least 0")
    return image_of(op, name, Placeholder(layout_of(DTYPES["f32"], shape)), layout)


def _convolved(op: Any, image: Image, filters: Image) -> Geometry:
    axes = len(image.spatial)
    if len(filters.spatial) != axes:
        raise refuse(
            op, f"the image has {axes} spatial axes and the filter {len(filters.spatial)}; both must have as many"
        )
    window, groups = filters.spatial, op.groups
    stride, dilation = per_axis(op, "stride", op.stride, axes), per_axis(op, "dilation", op.dilation, axes)
    padding = paddings_of(op, op.padding, axes)
    _check_groups(op, image.channels, filters.batch, filters.channels, "c", "k")
    spatial = []
    for axis, n in enumerate(image.spatial):
        if window[axis] < 1:
            raise refuse(op, f"the filter has extent 0 on spatial axis {axis}; it must have at least 1")
        reach, room = (window[axis] - 1) * dilation[axis] + 1, n + sum(padding[axis])
        if room < reach:
            raise refuse(
                op,
                f"the filter covers {reach} elements of spatial axis {axis}, which has {n} and a padding of "
                f"{padding[axis][0]} + {padding[axis][1]}; pad more or use a smaller filter",
            )
        spatial.append((room - reach) // stride[axis] + 1)
    result = Image(image.batch, filters.batch, tuple(spatial))
    return Geometry(image, result, window, stride, padding, dilation, groups)


def _transposed(op: ConvTranspose) -> Geometry:
    """The convolution that leads from the result back to ``x``."""
    given, filters = image_of(op, "x", op.x, op.layout), image_of(op, "w", op.w, op.layout)
    axes = len(given.spatial)
    if len(filters.spatial) != axes:
        raise refuse(
            op, f"the image has {axes} spatial axes and the filter {len(filters.spatial)}; both must have as many"
        )
    stride, dilation = per_axis(op, "stride", op.stride, axes), per_axis(op, "dilation", op.dilation, axes)
    padding, more = paddings_of(op, op.padding, axes), per_axis(op, "output_padding", op.output_padding, axes, 0)
    if op.groups < 1 or given.channels % op.groups or filters.batch != given.channels:
        raise refuse(
            op,
            f"x has {given.channels} channels, w is for {filters.batch} and groups is {op.groups}; w must be for as "
            f"many channels as x has, a multiple of groups",
        )
    spatial = []
    for axis, n in enumerate(given.spatial):
        if more[axis] >= max(stride[axis], dilation[axis]):
            raise refuse(op, f"output_padding is {op.output_padding!r}; it must be less than stride or dilation")
        extent = (
            (n - 1) * stride[axis] - sum(padding[axis]) + (filters.spatial[axis] - 1) * dilation[axis] + 1 + more[axis]
        )
        if extent < 1 or filters.spatial[axis] < 1:
            raise refuse(op, f"the result has extent {extent} on spatial axis {axis}; pad less or use a larger filter")
        spatial.append(extent)
    image = Image(given.batch, filters.channels * op.groups, tuple(spatial))
    return Geometry(image, given, filters.spatial, stride, padding, dilation, op.groups)


def _check_groups(op: Any, c: int, k: int, of_group: int, *names: str) -> None:
    groups = op.groups
    if groups < 1 or c % groups or k % groups:
        raise refuse(op, f"groups is {groups}; it must divide {names[0]} = {c} and {names[1]} = {k}")
    if of_group * groups != c:
        raise refuse(
            op, f"the filter is for {of_group} channels a group, and the image has {c} in groups = {groups}; "
            f"it must be for c / groups = {c // groups}",
        )  # fmt: skip
