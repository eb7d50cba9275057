"""Convolutions as implicit matrix products, with an epilogue."""

from typing import Any, ClassVar, Literal

from callboard.core.layout import layout_of
from callboard.core.op import Outputs
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.cutlass.fused import Fused, Problem, R_co

__all__ = ["Conv", "ConvKind", "ExplainConv"]

ConvKind = Literal["fprop", "dgrad", "wgrad"]


class Convolution(Fused[R_co]):
    """Base of the messages about convolutions; not sent itself. ``Conv`` explains the fields."""

    kind: ConvKind = "fprop"
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    extent: tuple[int, int] | None = None

    def problem(self) -> Problem:
        for name, factor in (("a", self.a), ("b", self.b)):
            if factor.ndim != 4:
                raise refuse(self, f"{name} is {factor.layout!r}; it must have 4 axes")
        if min(*self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            raise refuse(
                self,
                f"stride is {self.stride}, dilation {self.dilation}, padding {self.padding}; strides and dilations are "
                "1 or more, paddings 0 or more",
            )
        if (self.extent is None) != (self.kind == "fprop"):
            raise refuse(
                self, f"kind is {self.kind!r} and extent is {self.extent}; the gradients need it, fprop does not"
            )
        images, filters, small = self.shapes()
        wanted = tuple(
            (full + 2 * pad - dilation * (own - 1) - 1) // stride + 1
            for full, own, pad, dilation, stride in zip(
                images[1:3], filters[1:3], self.padding, self.dilation, self.stride, strict=True
            )
        )
        if images[3] != filters[3]:
            raise refuse(
                self, f"images {list(images)} have {images[3]} channels, filters {list(filters)} have {filters[3]}"
            )
        if min(*filters[1:3], *wanted) < 1:
            raise refuse(self, f"images {list(images)} and filters {list(filters)} do not fit (see padding)")
        expected = (images[0], *wanted, filters[0])
        if small is not None and small != expected:
            raise refuse(self, f"a is {self.a.layout!r}, expected the shape {list(expected)}")
        shape = {"fprop": expected, "dgrad": images, "wgrad": filters}[self.kind]
        return Problem(layout_of(self.result_dtype, shape))

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]:
        """The shapes of images and filters, and of the result of ``fprop`` if it is an operand."""
        if self.kind == "fprop":
            return self.a.shape, self.b.shape, None
        assert self.extent is not None
        if self.kind == "dgrad":
            return (self.a.shape[0], *self.extent, self.b.shape[3]), self.b.shape, self.a.shape
        return self.b.shape, (self.a.shape[3], *self.extent, self.b.shape[3]), self.a.shape


class Conv(Convolution[GpuRef], tag="cutlass.conv"):
    """A 2-d convolution, or one of its gradients, with an epilogue (``ConvRequest``).

    Images are ``[images, h, w, channels]`` and filters ``[filters, r, s, channels]``. The last axis of the result is
    its columns, all others together its rows: a number for each column is one for each filter in ``fprop``.

    Args:
        a: ``fprop``: the images. ``dgrad`` and ``wgrad``: the gradient at the result, ``[images, p, q, filters]``.
        b: ``fprop`` and ``dgrad``: the filters. ``wgrad``: the images.
        out: ``[images, p, q, filters]``, the images' shape, or the filters' shape; a new array when None.
        c, inputs, reductions, alpha, beta, epilogue, out_dtype, accum, engine: See :class:`Gemm`.
        kind: ``"fprop"``, ``"dgrad"`` (gradient of the images) or ``"wgrad"`` (gradient of the filters).
        stride, padding, dilation: For height and width.
        extent: ``dgrad``: height and width of the images; ``wgrad``: of the filters.
    """


class ExplainConv(Convolution[str], tag="cutlass.explain_conv"):
    """The engine of a convolution and its launches, in words; nothing is computed.

    Args:
        a, b, out, c, inputs, reductions, alpha, beta, epilogue, out_dtype, accum, engine: See :class:`Gemm`. With
            ``engine="cutlass"`` a template is compiled, if there is none yet.
        kind, stride, padding, dilation, extent: See :class:`Conv`.
    """

    returns: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[Any] = str

    def infer(self) -> Outputs:
        self.product().infer()
        return {}

    def product(self) -> Conv:
        """The convolution that it is about."""
        return Conv(**{name: getattr(self, name) for name in Conv.__struct_fields__})
