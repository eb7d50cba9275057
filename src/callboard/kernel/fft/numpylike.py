"""Transforms of arrays of any strides, along any axes, as in NumPy's ``fft`` module."""

from typing import Any, ClassVar

import msgspec

from callboard.core.dtype import DType, dtypes_of
from callboard.core.layout import Layout
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.fft.actor import FftActor
from callboard.kernel.fft.transform import (
    HALF,
    FftDirection,
    FftNorm,
    Side,
    Transform,
    complex_layout,
    complex_side,
    real_layout,
    real_side,
    settle_alignment,
)

__all__ = ["Fft", "Irfft", "IrfftOverwrite", "Rfft", "halved", "restored"]

AnyOp = Any  # an op with an operand x
MOST_AXES = 3


class Fft(Op[FftActor, GpuRef], tag="fft.fft"):
    """Complex to complex: ``out[k] = scale * sum(x[j] * exp(-+2i pi j k / n))`` along each axis (``FftRequest``, C2C).

    Args:
        x: Complex, of any strides: c64, c128, or f16 whose last axis holds real and imaginary part. Axes are counted
            without that one.
        out: Same shape and dtype; a new array when None. May be ``x``: in place.
        axes: One to three, distinct.
        direction: Sign of the exponent: - forward, + inverse.
        norm: ``"backward"``: the inverse is divided by the number of points; ``"forward"``: the forward transform is;
            ``"ortho"``: both by its square root.
        aligned: Found by the message itself: both arrays begin at multiples of a complex number.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 c64 c128")
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x")})

    x: In
    out: Out | None = None
    axes: tuple[int, ...] = (-1,)
    direction: FftDirection = "forward"
    norm: FftNorm = "backward"
    aligned: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        settle_alignment(self, self.x, self.out)
        settle_axes(self, True)

    def infer(self) -> Outputs:
        side = complex_side(self, "x", self.x.layout)
        check_axes(self, side, self.axes)
        if self.out is not None:
            complex_side(self, "out", self.out.layout)
        return {"out": complex_layout(side.real, side.shape)}

    def transform(self) -> Transform:
        """For a backend."""
        out = complex_side(self, "out", given_or_new(self, self.out))
        src = complex_side(self, "x", self.x.layout)
        return Transform("C2C", self.direction, self.norm, self.axes, src, out, self.aligned)


class Rfft(Op[FftActor, GpuRef], tag="fft.rfft"):
    """Real to complex, forward (``FftRequest`` with R2C): of the last of ``axes`` only the first half is kept.

    Args:
        x: f16, f32 or f64, of any strides.
        out: Complex; a new array when None. Along ``axes[-1]`` it has ``n // 2 + 1`` points where ``x`` has ``n``.
            c64 for f32, c128 for f64; for f16, f16 with a further axis of real and imaginary part.
        axes: One to three, distinct.
        norm: ``"forward"`` divides by the number of points, ``"ortho"`` by its square root, ``"backward"`` by nothing.
        aligned: Found by the message itself: both arrays begin at multiples of a complex number.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 f32 f64")

    x: In
    out: Out | None = None
    axes: tuple[int, ...] = (-1,)
    norm: FftNorm = "backward"
    aligned: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        settle_alignment(self, self.x, self.out)
        settle_axes(self, False)

    def infer(self) -> Outputs:
        side = real_side(self, "x", self.x.layout)
        check_axes(self, side, self.axes)
        if self.out is not None:
            complex_side(self, "out", self.out.layout)
        return {"out": complex_layout(side.real, halved(side.shape, self.axes[-1]))}

    def transform(self) -> Transform:
        """For a backend."""
        out = complex_side(self, "out", given_or_new(self, self.out))
        src = real_side(self, "x", self.x.layout)
        return Transform("R2C", "forward", self.norm, self.axes, src, out, self.aligned)


class Irfft(Op[FftActor, GpuRef], tag="fft.irfft"):
    """Complex to real, inverse (``FftRequest`` with C2R): ``x`` is the first half of a Hermitian array.

    Parts of ``x`` that contradict this symmetry (an imaginary part of point 0) have no effect. ``x`` is preserved: if
    the vendor's library would overwrite it (cuFFT does along several axes), it works on a copy; :class:`IrfftOverwrite`
    avoids the copy.

    Args:
        x: Complex as in :class:`Fft`, of any strides, with ``n // 2 + 1`` points along ``axes[-1]``.
        out: Real, of the type of a part of ``x``; a new array when None. It has ``n`` points along ``axes[-1]``.
        n: Points of ``out`` along ``axes[-1]``: even by default, ``2 * (m - 1)`` where ``x`` has ``m``.
        axes: One to three, distinct.
        norm: ``"backward"`` divides by the number of points, ``"ortho"`` by its square root, ``"forward"`` by nothing.
        aligned: Found by the message itself: both arrays begin at multiples of a complex number.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 c64 c128")

    x: In
    out: Out | None = None
    n: int | None = None
    axes: tuple[int, ...] = (-1,)
    norm: FftNorm = "backward"
    aligned: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        settle_alignment(self, self.x, self.out)
        settle_axes(self, True)

    def infer(self) -> Outputs:
        return _infer_real(self, self.x, self.out, self.n, self.axes)

    def transform(self) -> Transform:
        """For a backend."""
        return _to_real(self)


class IrfftOverwrite(Op[FftActor, GpuRef], tag="fft.irfft_overwrite"):
    """:class:`Irfft` that may leave anything in ``x``: no copy of it is made.

    Args:
        x: Input as for :class:`Irfft`; its contents are undefined afterwards.
        out, n, axes, norm, aligned: See :class:`Irfft`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 c64 c128")

    x: InOut
    out: Out | None = None
    n: int | None = None
    axes: tuple[int, ...] = (-1,)
    norm: FftNorm = "backward"
    aligned: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        settle_alignment(self, self.x, self.out)
        settle_axes(self, True)

    def infer(self) -> Outputs:
        return _infer_real(self, self.x, self.out, self.n, self.axes)

    def transform(self) -> Transform:
        """For a backend."""
        return _to_real(self)


# -- what they share ---------------------------------------------------------------------------------------------------


def settle_axes(op: Any, is_complex: bool) -> None:
    """Count the axes of a message from the front, so that equal transforms have equal signatures.

    If an axis is out of range for ``x``, all axes stay as they are, and ``infer`` rejects them.
    """
    layout, given = op.x.layout, op.axes
    ndim = len(layout.shape)
    if is_complex and layout.dtype is HALF:
        ndim -= 1
    axes = tuple([axis + ndim if -ndim <= axis < 0 else axis for axis in given])
    if axes != given and min(axes) >= 0:
        msgspec.structs.force_setattr(op, "axes", axes)


def check_axes(op: AnyOp, side: Side, axes: tuple[int, ...]) -> None:
    """One to three axes that the array has, each once; with at least one point: a transform of none is not defined."""
    ndim = len(side.shape)
    beside = " beside that of the pairs" if side.layout.ndim > ndim else ""
    if not 1 <= len(axes) <= MOST_AXES:
        raise refuse(op, f"axes is {axes}; one call transforms 1 to {MOST_AXES} axes (call again for further ones)")
    for axis in axes:
        if not 0 <= axis < ndim:
            raise refuse(op, f"axes is {axes} and x has {ndim} axes{beside}: there is no axis {axis}")
        if side.shape[axis] == 0:
            raise refuse(op, f"axis {axis} of x has no points to transform (x is {op.x.layout!r})")
    if len(set(axes)) < len(axes):
        raise refuse(op, f"axes is {axes}: an axis can be transformed once in a call")


def halved(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of the kept half of a Hermitian array."""
    return (*shape[:axis], shape[axis] // 2 + 1, *shape[axis + 1 :])


def restored(op: AnyOp, shape: tuple[int, ...], axis: int, n: int | None) -> tuple[int, ...]:
    """The shape of the real array whose half this is."""
    kept = shape[axis]
    points = 2 * (kept - 1) if n is None else n
    if points < 1:
        raise refuse(op, f"n is {points} for the {kept} points of axis {axis}; a transform has at least 1 (give n)")
    if points // 2 + 1 != kept:
        raise refuse(
            op,
            f"n is {points}, so axis {axis} of x must have {points // 2 + 1} points and has {kept}: "
            f"cut it by an index, or pad it",
        )
    return (*shape[:axis], points, *shape[axis + 1 :])


def given_or_new(op: AnyOp, out: Operand | None) -> Layout:
    """The layout of the output: that of the array given, or of the one that will be made."""
    return op.infer()["out"] if out is None else out.layout


def _infer_real(op: AnyOp, x: Operand, out: Operand | None, n: int | None, axes: tuple[int, ...]) -> Outputs:
    side = complex_side(op, "x", x.layout)
    check_axes(op, side, axes)
    shape = restored(op, side.shape, axes[-1], n)
    if out is not None:
        real_side(op, "out", out.layout)
    return {"out": real_layout(side.real, shape)}


def _to_real(op: Irfft | IrfftOverwrite) -> Transform:
    src = complex_side(op, "x", op.x.layout)
    out = real_side(op, "out", given_or_new(op, op.out))
    return Transform("C2R", "inverse", op.norm, op.axes, src, out, op.aligned)
