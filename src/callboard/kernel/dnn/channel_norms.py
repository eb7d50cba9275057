"""Norms with a scale for each channel: batch norm, instance norm, group norm.

S. Ioffe, C. Szegedy, "Batch Normalization", ICML 2015; D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance Normalization",
arXiv:1607.08022; Y. Wu, K. He, "Group Normalization", ECCV 2018. Arrays are ``[n, …, channels, …]``, the channels along
``axis``: 1 for NCHW, -1 for NHWC. Sums are accumulated in f32, in f64 for f64.
"""

import math
from typing import Any, ClassVar, TypeVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import ByValue, In, InOut, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.layer_norm import Normalised, NormGradients
from callboard.kernel.dnn.operands import (
    FLOATS,
    accumulator,
    axis_of,
    check_floats,
    check_like,
    check_number,
    check_parameter,
    check_parameters,
    check_statistics,
)

__all__ = [
    "BatchNorm",
    "BatchNormBackward",
    "BatchNormTraining",
    "GroupNorm",
    "GroupNormBackward",
    "GroupNormTraining",
    "InstanceNorm",
    "InstanceNormBackward",
    "InstanceNormTraining",
]

R_co = TypeVar("R_co", covariant=True)


def channels_of(op: Op[Any, Any], x: Operand, axis: int, *, first: bool) -> tuple[int, int]:
    """The axis of the channels, and how many there are; ``first``: the first axis counts items."""
    if x.ndim < 2:
        raise refuse(op, f"x is {x.layout!r}; it must have 2 axes at least, [n, channels, …]")
    at = axis_of(op, "x", x, axis)
    if first and at == 0:
        raise refuse(op, f"axis is {axis}; the first axis of x, {x.layout!r}, counts items")
    return at, x.shape[at]


class BatchNorm(Op[CudnnActor, GpuRef], tag="dnn.batch_norm"):
    """``out = (x - mean) / sqrt(variance + epsilon) * scale + bias`` by given statistics: inference.

    Args:
        x: ``[n, …, channels, …]``, f16, bf16, f32 or f64, any strides.
        mean, variance: ``[channels]``, f32 (f64 for f64): the running ones of :class:`BatchNormTraining`.
        scale, bias: ``[channels]``, dtype of ``x`` or f32; 1 and 0 when None.
        axis: The channel axis: 1 for NCHW, -1 for NHWC.
        epsilon: Added to the variance.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x")})

    x: In
    mean: In
    variance: In
    scale: In | None = None
    bias: In | None = None
    axis: int = 1
    epsilon: float = 1e-5
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_floats(self, "x", self.x)
        _, channels = channels_of(self, self.x, self.axis, first=False)
        check_number(self, "epsilon", self.epsilon, 0)
        for name in ("mean", "variance"):
            check_statistics(self, name, getattr(self, name), (channels,), dtype)
        check_parameters(self, self.scale, self.bias, (channels,), dtype)
        return {"out": layout_of(dtype, self.x.shape)}


class BatchNormTraining(Op[CudnnActor, Normalised], tag="dnn.batch_norm_training"):
    """:class:`BatchNorm` by the statistics of ``x`` itself, which are returned and update the running ones.

    Args:
        x: ``[n, …, channels, …]``, f16, bf16, f32 or f64, any strides; at least 2 elements of each channel.
        scale, bias: ``[channels]``, dtype of ``x`` or f32; 1 and 0 when None.
        running_mean, running_variance: ``[channels]``, f32 (f64 for f64), both or none; become
            ``(1 - momentum) * running + momentum * that of x``, where the variance of ``x`` is the unbiased one.
        momentum: Weight of ``x`` in them, a number of the call; ``1 / (steps + 1)`` gives the mean of all steps.
        axis: The channel axis.
        epsilon: Added to the variance, which divides by the number of elements.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
        mean, inverse: ``[channels]``, f32 (f64 for f64); new arrays when None.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("out", "mean", "inverse")
    results: ClassVar[type[Normalised]] = Normalised
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x")})

    x: In
    scale: In | None = None
    bias: In | None = None
    running_mean: InOut | None = None
    running_variance: InOut | None = None
    momentum: ByValue = 0.1
    axis: int = 1
    epsilon: float = 1e-5
    out: Out | None = None
    mean: Out | None = None
    inverse: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_floats(self, "x", self.x)
        _, channels = channels_of(self, self.x, self.axis, first=False)
        check_number(self, "epsilon", self.epsilon, 0)
        if channels and self.x.size // channels < 2:
            raise refuse(self, f"x is {self.x.layout!r}: a channel has no deviation with fewer than 2 elements")
        if (self.running_mean is None) != (self.running_variance is None):
            raise refuse(self, "one of running_mean and running_variance is None; pass both, or none")
        for name in ("running_mean", "running_variance"):
            check_statistics(self, name, getattr(self, name), (channels,), dtype)
        check_parameters(self, self.scale, self.bias, (channels,), dtype)
        statistics = layout_of(accumulator(dtype), (channels,))
        return {"out": layout_of(dtype, self.x.shape), "mean": statistics, "inverse": statistics}


class BatchNormBackward(Op[CudnnActor, NormGradients], tag="dnn.batch_norm_backward"):
    """The gradients of a batch norm.

    Args:
        dy: The gradient by the result; dtype and shape of ``x``, any strides.
        x: The input of the normalisation, any strides.
        mean, inverse: ``[channels]``: the statistics that :class:`BatchNormTraining` returned; for a
            :class:`BatchNorm`, its mean and ``1 / sqrt(variance + epsilon)``.
        scale: The same as forward.
        axis: The same as forward.
        training: True if the statistics followed from ``x``; else they are constants.
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
    axis: int = 1
    training: bool = True
    dx: Out | None = None
    dscale: Out | None = None
    dbias: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_floats(self, "x", self.x)
        check_like(self, "dy", self.dy, "x", self.x)
        _, channels = channels_of(self, self.x, self.axis, first=False)
        for name in ("mean", "inverse"):
            check_statistics(self, name, getattr(self, name), (channels,), dtype)
        check_parameter(self, "scale", self.scale, (channels,), dtype)
        return _gradients(self, channels)


def _gradients(op: Any, channels: int) -> Outputs:
    outputs = {"dx": layout_of(op.x.dtype, op.x.shape)}
    if op.scale is not None:
        outputs["dscale"] = outputs["dbias"] = layout_of(op.scale.dtype, (channels,))
    return outputs


# -- of each item ------------------------------------------------------------------------------------------------------


class OfEachItem(Op[CudnnActor, R_co]):
    """Base of norms of each item.

    Args:
        x: ``[n, …, channels, …]``, f16, bf16, f32 or f64, any strides.
        scale, bias: ``[channels]``, dtype of ``x`` or f32; 1 and 0 when None.
        axis: The channel axis: 1 for NCHW, -1 for NHWC.
        epsilon: Added to the variance.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x")})

    x: In
    scale: In | None = None
    bias: In | None = None
    axis: int = 1
    epsilon: float = 1e-5
    out: Out | None = None

    def group_count(self) -> int:
        """Into how many groups the channels of an item are divided."""
        return groups_of(self, self.x, self.axis, None)

    def checked(self) -> dict[str, Any]:
        dtype = check_floats(self, "x", self.x)
        _, channels = channels_of(self, self.x, self.axis, first=True)
        check_number(self, "epsilon", self.epsilon, 0)
        self.group_count()
        check_parameters(self, self.scale, self.bias, (channels,), dtype)
        return {"out": layout_of(dtype, self.x.shape)}

    def with_statistics(self) -> dict[str, Any]:
        outputs = self.checked()
        statistics = layout_of(accumulator(self.x.dtype), (self.x.shape[0], self.group_count()))
        return {**outputs, "mean": statistics, "inverse": statistics}


def groups_of(op: Op[Any, Any], x: Operand, axis: int, groups: int | None) -> int:
    """The number of groups of an item: as given, or one for each channel."""
    _, channels = channels_of(op, x, axis, first=True)
    groups = channels if groups is None else groups
    if groups < 1 or channels % groups:
        raise refuse(op, f"groups is {groups}; it must divide the {channels} channels of x, {x.layout!r}")
    if x.shape[0] and math.prod(x.shape[1:]) == 0:
        raise refuse(op, f"x is {x.layout!r}: an item has nothing to normalise")
    return groups


class OfGroups(OfEachItem[R_co]):
    """Base of group norms.

    Args:
        x: ``[n, …, channels, …]``, f16, bf16, f32 or f64, any strides.
        groups: Into how many the channels are divided, in order.
        scale, bias: ``[channels]``, dtype of ``x`` or f32; 1 and 0 when None.
        axis: The channel axis: 1 for NCHW, -1 for NHWC.
        epsilon: Added to the variance.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
    """

    groups: int = 1

    def group_count(self) -> int:
        return groups_of(self, self.x, self.axis, self.groups)


class InstanceNorm(OfEachItem[GpuRef], tag="dnn.instance_norm"):
    """Each channel of each item normalised by its own mean and variance, then ``* scale + bias``."""

    def infer(self) -> Outputs:
        return self.checked()


class InstanceNormTraining(OfEachItem[Normalised], tag="dnn.instance_norm_training"):
    """:class:`InstanceNorm` that also returns the statistics for :class:`InstanceNormBackward`.

    Args:
        x: ``[n, …, channels, …]``, f16, bf16, f32 or f64, any strides.
        scale, bias: ``[channels]``, dtype of ``x`` or f32; 1 and 0 when None.
        axis: The channel axis: 1 for NCHW, -1 for NHWC.
        epsilon: Added to the variance.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
        mean, inverse: ``[n, channels]``, f32 (f64 for f64); new arrays when None.
    """

    returns: ClassVar[tuple[str, ...]] = ("out", "mean", "inverse")
    results: ClassVar[type[Normalised]] = Normalised

    mean: Out | None = None
    inverse: Out | None = None

    def infer(self) -> Outputs:
        return self.with_statistics()


class GroupNorm(OfGroups[GpuRef], tag="dnn.group_norm"):
    """Each group of channels of each item normalised by its own mean and variance, then ``* scale + bias``."""

    def infer(self) -> Outputs:
        return self.checked()


class GroupNormTraining(OfGroups[Normalised], tag="dnn.group_norm_training"):
    """:class:`GroupNorm` that also returns the statistics for :class:`GroupNormBackward`.

    Args:
        x: ``[n, …, channels, …]``, f16, bf16, f32 or f64, any strides.
        groups: Into how many the channels are divided, in order.
        scale, bias: ``[channels]``, dtype of ``x`` or f32; 1 and 0 when None.
        axis: The channel axis: 1 for NCHW, -1 for NHWC.
        epsilon: Added to the variance.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
        mean, inverse: ``[n, groups]``, f32 (f64 for f64); new arrays when None.
    """

    returns: ClassVar[tuple[str, ...]] = ("out", "mean", "inverse")
    results: ClassVar[type[Normalised]] = Normalised

    mean: Out | None = None
    inverse: Out | None = None

    def infer(self) -> Outputs:
        return self.with_statistics()


class BackOfEachItem(Op[CudnnActor, NormGradients]):
    """Base of the gradients of such norms.

    Args:
        dy: The gradient by the result; dtype and shape of ``x``, any strides.
        x: The input of the normalisation, any strides.
        mean, inverse: Statistics of the forward pass.
        scale: The same as forward.
        axis: The same as forward.
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
    axis: int = 1
    dx: Out | None = None
    dscale: Out | None = None
    dbias: Out | None = None

    def group_count(self) -> int:
        """Into how many groups the channels of an item are divided."""
        return groups_of(self, self.x, self.axis, None)

    def infer(self) -> Outputs:
        dtype = check_floats(self, "x", self.x)
        check_like(self, "dy", self.dy, "x", self.x)
        _, channels = channels_of(self, self.x, self.axis, first=True)
        statistics = (self.x.shape[0], self.group_count())
        for name in ("mean", "inverse"):
            check_statistics(self, name, getattr(self, name), statistics, dtype)
        check_parameter(self, "scale", self.scale, (channels,), dtype)
        return _gradients(self, channels)


class InstanceNormBackward(BackOfEachItem, tag="dnn.instance_norm_backward"):
    """The gradients of :class:`InstanceNorm`, from the statistics of :class:`InstanceNormTraining`."""


class GroupNormBackward(BackOfEachItem, tag="dnn.group_norm_backward"):
    """The gradients of :class:`GroupNorm`, from the statistics of :class:`GroupNormTraining`.

    Args:
        dy: The gradient by the result; dtype and shape of ``x``, any strides.
        x: The input of the normalisation, any strides.
        mean, inverse: Statistics returned by :class:`GroupNormTraining`.
        scale: The same as forward.
        groups: The same as forward.
        axis: The same as forward.
        dx: Shape and dtype of ``x``; a new row-major array when None. May be ``dy``.
        dscale, dbias: Shape and dtype of ``scale``; new arrays when None, and none if there is no scale.
    """

    groups: int = 1

    def group_count(self) -> int:
        return groups_of(self, self.x, self.axis, self.groups)
