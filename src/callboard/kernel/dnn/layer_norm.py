"""Layer norm and RMS norm: over the last axes of each item.

Layer norm: J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", arXiv:1607.06450. RMS norm: B. Zhang,
R. Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019. Sums are accumulated in f32, in f64 for f64.
"""

import math
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.operands import (
    FLOATS,
    accumulator,
    check_floats,
    check_like,
    check_number,
    check_parameter,
    check_parameters,
    check_statistics,
)

__all__ = [
    "LayerNorm",
    "LayerNormBackward",
    "LayerNormTraining",
    "NormGradients",
    "Normalised",
    "RmsGradients",
    "RmsNorm",
    "RmsNormBackward",
    "RmsNormTraining",
    "RmsNormalised",
]

R_co = TypeVar("R_co", covariant=True)


class Normalised(NamedTuple, Generic[Mode]):
    """A normalised array, and the statistics for its gradient.

    Attributes:
        out: The array.
        mean: Mean of the elements normalised together, f32 (f64 for f64).
        inverse: ``1 / sqrt(variance + epsilon)``, likewise.
    """

    out: GpuRef[Mode]
    mean: GpuRef[Mode]
    inverse: GpuRef[Mode]


class RmsNormalised(NamedTuple, Generic[Mode]):
    """A normalised array, and the statistics for its gradient.

    Attributes:
        out: The array.
        inverse: ``1 / sqrt(mean(x²) + epsilon)`` of each item, f32 (f64 for f64).
    """

    out: GpuRef[Mode]
    inverse: GpuRef[Mode]


_ABSENT: Any = None


class NormGradients(NamedTuple, Generic[Mode]):
    """Gradients of a norm.

    Attributes:
        dx: Gradient with respect to the array.
        dscale, dbias: Gradients with respect to the parameters. None if there is no scale; their types omit None
            because the caller passes the scale.
    """

    dx: GpuRef[Mode]
    dscale: GpuRef[Mode] = _ABSENT
    dbias: GpuRef[Mode] = _ABSENT


class RmsGradients(NamedTuple, Generic[Mode]):
    """Gradients of an RMS norm.

    Attributes:
        dx: Gradient with respect to the array.
        dscale: Gradient with respect to the scale. None if there is none; its type omits None because the caller passes
            the scale.
    """

    dx: GpuRef[Mode]
    dscale: GpuRef[Mode] = _ABSENT


class OverLastAxes(Op[CudnnActor, R_co]):
    """Base of norms over the last axes.

    Args:
        x: f16, bf16, f32 or f64, any strides.
        scale: Shape of the last ``axes`` axes, dtype of ``x`` or f32; 1 when None.
        axes: The number of last axes that are normalised together.
        epsilon: Added to the variance (RMS norm: to the mean of the squares).
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x")})

    x: In
    scale: In | None = None
    axes: int = 1
    epsilon: float = 1e-5
    out: Out | None = None

    def parts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of the items, and of each normalised group."""
        return parts_of(self, self.x.shape, self.axes)

    def checked(self) -> dict[str, Any]:
        dtype = check_floats(self, "x", self.x)
        check_number(self, "epsilon", self.epsilon, 0)
        _, last = self.parts()
        check_parameter(self, "scale", self.scale, last, dtype)
        return {"out": layout_of(dtype, self.x.shape)}


def parts_of(op: Op[Any, Any], shape: tuple[int, ...], axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape split before its last axes."""
    if not 1 <= axes <= len(shape):
        raise refuse(op, f"axes is {axes}; x has shape {shape}, so that it must be from 1 to {len(shape)}")
    items, last = shape[: len(shape) - axes], shape[len(shape) - axes :]
    if math.prod(last) == 0:
        raise refuse(op, f"x has shape {shape}: there is nothing to normalise along the last {axes} axes")
    return items, last


class WithBias(OverLastAxes[R_co]):
    """Base of layer norms.

    Args:
        x: f16, bf16, f32 or f64, any strides.
        scale: Shape of the last ``axes`` axes, dtype of ``x`` or f32; 1 when None.
        axes: The number of last axes that are normalised together.
        epsilon: Added to the variance.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
        bias: Shape and dtype of ``scale``; 0 when None.
    """

    bias: In | None = None

    def checked(self) -> dict[str, Any]:
        outputs = super().checked()
        check_parameters(self, self.scale, self.bias, self.parts()[1], self.x.dtype)
        return outputs


class LayerNorm(WithBias[GpuRef], tag="dnn.layer_norm"):
    """``out = (x - mean) / sqrt(variance + epsilon) * scale + bias`` over the last axes."""

    def infer(self) -> Outputs:
        return self.checked()


class LayerNormTraining(WithBias[Normalised], tag="dnn.layer_norm_training"):
    """:class:`LayerNorm` that also returns the statistics for :class:`LayerNormBackward`.

    Args:
        x: f16, bf16, f32 or f64, any strides.
        scale: Shape of the last ``axes`` axes, dtype of ``x`` or f32; 1 when None.
        axes: The number of last axes that are normalised together.
        epsilon: Added to the variance.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
        bias: Shape and dtype of ``scale``; 0 when None.
        mean, inverse: Shape of ``x`` without its last axes, f32 (f64 for f64); new arrays when None.
    """

    returns: ClassVar[tuple[str, ...]] = ("out", "mean", "inverse")
    results: ClassVar[type[Normalised]] = Normalised

    mean: Out | None = None
    inverse: Out | None = None

    def infer(self) -> Outputs:
        statistics = layout_of(accumulator(self.x.dtype), self.parts()[0])
        return {**self.checked(), "mean": statistics, "inverse": statistics}


class RmsNorm(OverLastAxes[GpuRef], tag="dnn.rms_norm"):
    """``out = x / sqrt(mean(x²) + epsilon) * scale`` over the last axes."""

    def infer(self) -> Outputs:
        return self.checked()


class RmsNormTraining(OverLastAxes[RmsNormalised], tag="dnn.rms_norm_training"):
    """:class:`RmsNorm` that also returns the statistics for :class:`RmsNormBackward`.

    Args:
        x: f16, bf16, f32 or f64, any strides.
        scale: Shape of the last ``axes`` axes, dtype of ``x`` or f32; 1 when None.
        axes: The number of last axes that are normalised together.
        epsilon: Added to the mean of the squares.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
        inverse: Shape of ``x`` without its last axes, f32 (f64 for f64); a new array when None.
    """

    returns: ClassVar[tuple[str, ...]] = ("out", "inverse")
    results: ClassVar[type[RmsNormalised]] = RmsNormalised

    inverse: Out | None = None

    def infer(self) -> Outputs:
        return {**self.checked(), "inverse": layout_of(accumulator(self.x.dtype), self.parts()[0])}


class LayerNormBackward(Op[CudnnActor, NormGradients], tag="dnn.layer_norm_backward"):
    """The gradients of :class:`LayerNorm`, from the statistics of :class:`LayerNormTraining`.

    Args:
        dy: The gradient by the result; dtype and shape of ``x``, any strides.
        x: The input of the normalisation, any strides.
        mean, inverse: Statistics returned by :class:`LayerNormTraining`.
        scale: The same as forward.
        axes: The same as forward.
        dx: Shape and dtype of ``x``; a new row-major array when None. May be ``dy``.
        dscale, dbias: Shape and dtype of ``scale``; new arrays when None, and none if there is no scale.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx", "dscale", "dbias")
    results: ClassVar[type[NormGradients]] = NormGradients
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("dx", "dy")})

    dy: In
    x: In
    mean: In
    inverse: In
    scale: In | None = None
    axes: int = 1
    dx: Out | None = None
    dscale: Out | None = None
    dbias: Out | None = None

    def parts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of the items, and of each normalised group."""
        return parts_of(self, self.x.shape, self.axes)

    def infer(self) -> Outputs:
        dtype = check_floats(self, "x", self.x)
        check_like(self, "dy", self.dy, "x", self.x)
        items, last = self.parts()
        check_statistics(self, "mean", self.mean, items, dtype)
        check_statistics(self, "inverse", self.inverse, items, dtype)
        check_parameter(self, "scale", self.scale, last, dtype)
        outputs = {"dx": layout_of(dtype, self.x.shape)}
        if self.scale is not None:
            outputs["dscale"] = outputs["dbias"] = layout_of(self.scale.dtype, last)
        return outputs


class RmsNormBackward(Op[CudnnActor, RmsGradients], tag="dnn.rms_norm_backward"):
    """The gradients of :class:`RmsNorm`, from the statistics of :class:`RmsNormTraining`.

    Args:
        dy: The gradient by the result; dtype and shape of ``x``, any strides.
        x: The input of the normalisation, any strides.
        inverse: Statistics returned by :class:`RmsNormTraining`.
        scale: The same as forward.
        axes: The same as forward.
        dx: Shape and dtype of ``x``; a new row-major array when None. May be ``dy``.
        dscale: Shape and dtype of ``scale``; a new array when None, and none if there is no scale.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx", "dscale")
    results: ClassVar[type[RmsGradients]] = RmsGradients
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("dx", "dy")})

    dy: In
    x: In
    inverse: In
    scale: In | None = None
    axes: int = 1
    dx: Out | None = None
    dscale: Out | None = None

    def parts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of the items, and of each normalised group."""
        return parts_of(self, self.x.shape, self.axes)

    def infer(self) -> Outputs:
        dtype = check_floats(self, "x", self.x)
        check_like(self, "dy", self.dy, "x", self.x)
        items, last = self.parts()
        check_statistics(self, "inverse", self.inverse, items, dtype)
        check_parameter(self, "scale", self.scale, last, dtype)
        outputs = {"dx": layout_of(dtype, self.x.shape)}
        if self.scale is not None:
            outputs["dscale"] = layout_of(self.scale.dtype, last)
        return outputs
