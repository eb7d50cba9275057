"""Histograms, of one channel or several."""

from typing import ClassVar

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.cub.actor import CubActor
from callboard.kernel.cub.checks import NUMBERS, check_dtype, check_line, check_number

__all__ = ["HistogramEven", "HistogramRange"]

MOST_BINS = 1 << 24


def _channels(op: "HistogramEven | HistogramRange") -> tuple[int, ...]:
    """The leading axes of the result: none, or the number of channels that are counted."""
    if op.channels is None:
        return ()
    if op.x.ndim == 0:
        raise refuse(op, f"x is {op.x.layout!r}; with channels its last axis is that of the channels")
    if not 1 <= op.channels <= op.x.shape[-1]:
        raise refuse(op, f"channels is {op.channels}; x has {op.x.shape[-1]} along its last axis")
    return (op.channels,)


class HistogramEven(Op[CubActor, GpuRef], tag="cub.histogram_even"):
    """Count the samples in each of ``bins`` bins of equal width (``HistogramRequest``).

    Bin i counts the samples in ``[lower + i w, lower + (i + 1) w)`` with ``w = (upper - lower) / bins``; samples
    outside ``[lower, upper)`` and NaN are not counted. This is CUB's rule: NumPy's last bin also includes ``upper``.
    The bin is ``floor((x - lower) * (bins / (upper - lower)))``, at most the last, in f64: integers of 64 bits are
    rounded to f64 first.

    Args:
        x: Samples of any shape, f16, bf16, f32, f64 or any integer.
        bins: Number of bins, at least 1.
        lower, upper: Finite numbers, ``lower < upper``.
        channels: Number of histograms. The last axis of ``x`` is then the channel axis, and the first ``channels``
            channels have a histogram each. None: one histogram of all samples.
        out: ``[bins]``, or ``[channels, bins]``, i64; a new array when None. It is overwritten, not added to.
    """

    dtypes: ClassVar[tuple[DType, ...]] = NUMBERS

    x: In
    bins: int
    lower: Scalar
    upper: Scalar
    channels: int | None = None
    out: Out | None = None

    def infer(self) -> Outputs:
        check_dtype(self, "x", self.x, NUMBERS)
        if not 1 <= self.bins <= MOST_BINS:
            raise refuse(self, f"bins is {self.bins}; it must lie between 1 and {MOST_BINS}")
        for name in ("lower", "upper"):
            check_number(self, name, getattr(self, name), DTYPES["f64"])
        return {"out": layout_of(DTYPES["i64"], (*_channels(self), self.bins))}


class HistogramRange(Op[CubActor, GpuRef], tag="cub.histogram_range"):
    """Count the samples between neighbouring levels.

    Bin i counts the samples in ``[levels[i], levels[i + 1])``; others, and NaN, are not counted. This is CUB's rule:
    NumPy's last bin also includes the last level.

    Args:
        x: Samples of any shape, f16, bf16, f32, f64 or any integer.
        levels: ``[bins + 1]``, dtype of ``x``, ascending, without NaN.
        channels: See :class:`HistogramEven`; the same levels apply to all channels.
        out: ``[bins]``, or ``[channels, bins]``, i64; a new array when None. It is overwritten, not added to.
    """

    dtypes: ClassVar[tuple[DType, ...]] = NUMBERS

    x: In
    levels: In
    channels: int | None = None
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_dtype(self, "x", self.x, NUMBERS)
        bins = check_line(self, "levels", self.levels) - 1
        if self.levels.dtype is not dtype:
            raise refuse(self, f"levels is {self.levels.layout!r} and x {self.x.layout!r}; they need one dtype")
        if not 1 <= bins <= MOST_BINS:
            raise refuse(self, f"levels is {self.levels.layout!r}; it must have between 2 and {MOST_BINS + 1} elements")
        return {"out": layout_of(DTYPES["i64"], (*_channels(self), bins))}
