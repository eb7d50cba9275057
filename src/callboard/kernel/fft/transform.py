"""``Transform``: a Fourier transform as backends see it, independent of the message."""

import math
from typing import Any, Literal, NamedTuple

import msgspec

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Operand
from callboard.kernel.checks import AnyOp, refuse

__all__ = [
    "COMPLEXES",
    "HALF",
    "REALS",
    "FftDirection",
    "FftKind",
    "FftNorm",
    "Side",
    "Transform",
    "complex_layout",
    "complex_side",
    "real_layout",
    "real_side",
    "settle_alignment",
]

FftKind = Literal["C2C", "R2C", "C2R", "Z2Z", "D2Z", "Z2D"]
"""From complex or real to complex or real, in single (C, R) or double (Z, D) precision; cuFFT's names.

C and R also apply to halves; the arrays determine which of the two is meant.
"""

FftDirection = Literal["forward", "inverse"]
"""The sign of the exponent: - forward, + inverse."""

FftNorm = Literal["backward", "ortho", "forward"]
"""The direction that is divided by the number of points: the inverse, both by its square root, or the forward one."""

REALS = (DTYPES["f16"], DTYPES["f32"], DTYPES["f64"])
"""Dtypes of real arrays."""
COMPLEXES = (DTYPES["c64"], DTYPES["c128"])
_COMPLEX_OF = {DTYPES["f32"]: DTYPES["c64"], DTYPES["f64"]: DTYPES["c128"]}
HALF = DTYPES["f16"]
PAIR = "complex halves are f16 arrays whose last axis holds real and imaginary part: extent 2, without gaps"


class Side(NamedTuple):
    """Layout of the real or complex elements of one end of a transform.

    Attributes:
        real: Type of a real part.
        is_complex: True if an element has two of them.
        shape: Extents.
        strides: Steps, in elements.
    """

    real: DType
    is_complex: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.real.itemsize * (2 if self.is_complex else 1)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def layout(self) -> Layout:
        """Layout of the array that holds it: a complex half has an axis of two f16."""
        if not self.is_complex:
            return layout_of(self.real, self.shape, self.strides)
        if self.real is HALF:
            return layout_of(HALF, (*self.shape, 2), (*(2 * s for s in self.strides), 1))
        return layout_of(_COMPLEX_OF[self.real], self.shape, self.strides)


class Transform(NamedTuple):
    """A resolved transform, as executed by a backend.

    Attributes:
        kind: ``"C2C"``, ``"R2C"`` or ``"C2R"``; the precision is that of the sides.
        direction: Sign of the exponent; forward for R2C, inverse for C2R.
        norm: Normalisation, which selects the direction that is scaled.
        axes: Transformed axes: 1 to 3 distinct numbers >= 0. Along the last one, real transforms keep the first half.
        src: The input.
        out: The output.
        aligned: Both sides begin at multiples of a complex number, as vendors' libraries require.
    """

    kind: Literal["C2C", "R2C", "C2R"]
    direction: FftDirection
    norm: FftNorm
    axes: tuple[int, ...]
    src: Side
    out: Side
    aligned: bool

    @property
    def lengths(self) -> tuple[int, ...]:
        """Points along each of the axes."""
        real = self.out if self.kind == "C2R" else self.src
        return tuple(real.shape[axis] for axis in self.axes)

    @property
    def points(self) -> int:
        """Points of one transform, the divisor of the norms."""
        return math.prod(self.lengths)

    @property
    def scale(self) -> float:
        """The factor of the unscaled sum."""
        if self.norm == "ortho":
            return 1 / math.sqrt(self.points)
        return 1 / self.points if self.norm == ("forward" if self.direction == "forward" else "backward") else 1.0


def settle_alignment(op: Any, x: Operand, out: Operand | None = None) -> None:
    """Note in ``op.aligned`` that an operand does not begin at a multiple of a complex number.

    Plans are kept by the signature of a message, which holds no places, and this one decides whether a copy is needed.
    """
    # The address of a placeholder is unknown: there the signature has decided it. Both are multiples of a power of two,
    # so their union is one, too.
    reached = getattr(x, "offset", 0)
    if out is not None:
        reached |= getattr(out, "offset", 0)
    if reached and op.aligned and reached % max(4, 2 * x.dtype.real.itemsize):
        msgspec.structs.force_setattr(op, "aligned", False)


def complex_side(op: AnyOp, name: str, layout: Layout) -> Side:
    """The layout as an array of complex numbers: c64, c128, or pairs of f16."""
    dtype = layout.dtype
    if dtype in COMPLEXES:
        return Side(dtype.real, True, layout.shape, layout.strides)
    if dtype is not HALF:
        cure = "; rfft takes real arrays" if dtype.is_float else ""
        raise refuse(op, f"{name} is {layout!r}; its dtype must be c64, c128, or f16 in pairs{cure}")
    if layout.ndim < 1 or layout.shape[-1] != 2:
        raise refuse(op, f"{name} is {layout!r}; {PAIR}")
    if layout.size and (layout.strides[-1] != 1 or any(s % 2 for s in layout.strides[:-1])):
        raise refuse(op, f"{name} is {layout!r}; {PAIR} (copy it first: dev.copy)")
    return Side(HALF, True, layout.shape[:-1], tuple(s // 2 for s in layout.strides[:-1]))


def real_side(op: AnyOp, name: str, layout: Layout) -> Side:
    """The layout as an array of real numbers."""
    if layout.dtype not in REALS:
        cure = "; fft takes complex arrays" if layout.dtype.is_complex else ""
        raise refuse(op, f"{name} is {layout!r}; its dtype must be f16, f32 or f64{cure}")
    return Side(layout.dtype, False, layout.shape, layout.strides)


def complex_layout(real: DType, shape: tuple[int, ...]) -> Layout:
    """Layout of a new array of complex numbers whose parts have the dtype ``real``."""
    return layout_of(HALF, (*shape, 2)) if real is HALF else layout_of(_COMPLEX_OF[real], shape)


def real_layout(real: DType, shape: tuple[int, ...]) -> Layout:
    """Layout of a new array of real numbers."""
    return layout_of(real, shape)
