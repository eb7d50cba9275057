"""Batches of transforms with explicit strides and distances: cuFFT's advanced layout.

Element ``[i, j, k]`` of transform ``b`` is ``b * dist + ((i * embed[1] + j) * embed[2] + k) * stride`` elements from
the start of the array, each side with its own ``embed``, ``stride`` and ``dist``. A complex half is one element.
"""

from typing import ClassVar, Literal

from callboard.core.dtype import DTYPES, DType, dtypes_of
from callboard.core.layout import Layout
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.fft.actor import FftActor
from callboard.kernel.fft.transform import (
    HALF,
    FftDirection,
    FftKind,
    FftNorm,
    Side,
    Transform,
    complex_layout,
    complex_side,
    settle_alignment,
)

__all__ = ["FftPlanMany", "FftPlanManyInPlace"]

_SINGLE, _DOUBLE = DTYPES["f32"], DTYPES["f64"]
_KINDS: dict[str, tuple[Literal["C2C", "R2C", "C2R"], DType]] = {
    "C2C": ("C2C", _SINGLE),
    "R2C": ("R2C", _SINGLE),
    "C2R": ("C2R", _SINGLE),
    "Z2Z": ("C2C", _DOUBLE),
    "D2Z": ("R2C", _DOUBLE),
    "Z2D": ("C2R", _DOUBLE),
}
Embed = tuple[int, ...] | None


class FftPlanMany(Op[FftActor, GpuRef], tag="fft.plan_many"):
    """A batch of transforms laid out by ``embed``, ``stride`` and ``dist``; returns ``out``.

    Args:
        x: Array without gaps, of any shape: f32, f64, c64 or c128, as ``kind`` requires; or f16 for the kinds in single
            precision, with complex halves as pairs: their last axis has real and imaginary part. Not changed.
        out: Array of the same kind, of the precision of ``x``; returned. Elements that no transform writes are
            unchanged.
        kind: Input and output types of the transform.
        dims: Points along each axis of a transform: 1 to 3 numbers, of the real side for the real kinds. The complex
            side then has ``dims[-1] // 2 + 1`` along the last axis.
        batch: Number of transforms.
        direction: Sign of the exponent. Ignored for the real kinds: R2C and D2Z are forward, C2R and Z2D inverse.
        norm: See :class:`Fft <callboard.kernel.fft.Fft>`; for the unscaled sums of cuFFT, the norm that scales the
            other direction.
        in_embed, out_embed: Extents of the arrays that contain the transforms; ``embed[0]`` has no effect. None: those
            of the transform.
        in_stride, out_stride: Between elements that follow each other on the last axis.
        in_dist, out_dist: Between element 0 of one transform and of the next; None: ``stride * product(embed)``.
        aligned: Found by the message itself: both arrays begin at multiples of a complex number.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 f32 f64 c64 c128")
    returns: ClassVar[tuple[str, ...]] = ("out",)
    hidden: ClassVar[frozenset[str]] = frozenset({"aligned"})

    x: In
    out: InOut
    kind: FftKind
    dims: tuple[int, ...]
    batch: int = 1
    direction: FftDirection = "forward"
    norm: FftNorm = "backward"
    in_embed: tuple[int, ...] | None = None
    in_stride: int = 1
    in_dist: int | None = None
    out_embed: tuple[int, ...] | None = None
    out_stride: int = 1
    out_dist: int | None = None
    aligned: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        settle_alignment(self, self.x, self.out)

    def infer(self) -> Outputs:
        self.transform()
        return {}

    def transform(self) -> Transform:
        """For a backend.

        Raises:
            ShapeError: The arrays are too short, or elements of the output overlap.
        """
        kind, real = _precision(self, self.x.layout)
        src_dims, out_dims = _dims(self, self.dims, kind)
        _check_flat(self, "x", self.x.layout, real, kind != "R2C")
        _check_flat(self, "out", self.out.layout, real, kind != "C2R")
        src = _side(self, "in", real, kind != "R2C", src_dims, self.in_embed, self.in_stride, self.in_dist)
        out = _side(self, "out", real, kind != "C2R", out_dims, self.out_embed, self.out_stride, self.out_dist)
        _check_reach(self, "x", src, self.x.layout)
        _check_reach(self, "out", out, self.out.layout)
        _check_distinct(self, "out", out)
        axes = tuple(range(1, len(self.dims) + 1))
        return Transform(kind, _direction(kind, self.direction), self.norm, axes, src, out, self.aligned)


class FftPlanManyInPlace(Op[FftActor, GpuRef], tag="fft.plan_many_in_place"):
    """A batch of transforms within ``x``, which is answered; real rows are padded to their complex ones.

    Real rows are padded: ``n`` numbers occupy the memory of their ``n // 2 + 1`` complex results, so a row has
    ``2 * (n // 2 + 1)`` numbers; the padding has no meaning. ``dev.view(x, dtype=...)`` returns the array as its other
    type, and a view of other extents gives halves as pairs or as single numbers.

    Args:
        x: Without gaps, its axes do not matter; of the type of the input of ``kind``, or f16 as for
            :class:`FftPlanMany`; answered.
        kind, dims, batch, direction, norm, aligned: See :class:`FftPlanMany`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 f32 f64 c64 c128")
    returns: ClassVar[tuple[str, ...]] = ("x",)
    hidden: ClassVar[frozenset[str]] = frozenset({"aligned"})

    x: InOut
    kind: FftKind
    dims: tuple[int, ...]
    batch: int = 1
    direction: FftDirection = "forward"
    norm: FftNorm = "backward"
    aligned: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        settle_alignment(self, self.x)

    def infer(self) -> Outputs:
        self.transform()
        return {}

    def transform(self) -> Transform:
        """For a backend: both sides begin at the same address.

        Raises:
            ShapeError: The array is too short.
        """
        kind, real = _precision(self, self.x.layout)
        src_dims, out_dims = _dims(self, self.dims, kind)
        _check_flat(self, "x", self.x.layout, real, kind != "R2C")
        kept = out_dims if kind == "R2C" else src_dims
        padded = (*kept[:-1], 2 * kept[-1])
        src = _side(self, "in", real, kind != "R2C", src_dims, padded if kind == "R2C" else kept, 1, None)
        out = _side(self, "out", real, kind != "C2R", out_dims, padded if kind == "C2R" else kept, 1, None)
        for side in (src, out):
            _check_reach(self, "x", side, self.x.layout)
        axes = tuple(range(1, len(self.dims) + 1))
        return Transform(kind, _direction(kind, self.direction), self.norm, axes, src, out, self.aligned)


AnyMany = FftPlanMany | FftPlanManyInPlace


def _precision(op: AnyMany, layout: Layout) -> tuple[Literal["C2C", "R2C", "C2R"], DType]:
    """The kind of transform, and the dtype of a part: halves have no kinds of their own, their arrays determine it."""
    kind, real = _KINDS[op.kind]
    return kind, HALF if real is _SINGLE and layout.dtype is HALF else real


def _dims(op: AnyMany, dims: tuple[int, ...], kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not 1 <= len(dims) <= 3 or min(dims) < 1:
        raise refuse(op, f"dims is {dims}; pass 1 to 3 numbers, each at least 1")
    if op.batch < 0:
        raise refuse(op, f"batch is {op.batch}; it must not be negative")
    kept = (*dims[:-1], dims[-1] // 2 + 1)
    return (kept if kind == "C2R" else dims), (kept if kind == "R2C" else dims)


def _direction(kind: str, asked: FftDirection) -> FftDirection:
    return asked if kind == "C2C" else "forward" if kind == "R2C" else "inverse"


def _check_flat(op: AnyMany, name: str, layout: Layout, real: DType, is_complex: bool) -> None:
    dtype = complex_layout(real, ()).dtype if is_complex else real
    if layout.dtype is not dtype:
        wanted = str(dtype)
        if name == "x" and real is _SINGLE:
            wanted += ", or f16 in pairs" if is_complex else " or f16"
        elif real is HALF:
            wanted += " like x, in pairs" if is_complex else " like x"
        raise refuse(op, f"{name} is {layout!r}; for kind {op.kind} it must be {wanted} (dev.view or another kind)")
    if not layout.contiguous:
        raise refuse(op, f"{name} is {layout!r}; pass the whole array, without gaps, and embed, stride and dist")
    if is_complex:
        complex_side(op, name, layout)  # refuses halves that are not pairs


def _side(
    op: AnyMany,
    name: str,
    real: DType,
    is_complex: bool,
    dims: tuple[int, ...],
    embed: Embed,
    stride: int,
    dist: int | None,
) -> Side:
    """The transforms of the batch as one array: ``[batch, *dims]``."""
    embed = dims if embed is None else embed
    if len(embed) != len(dims) or any(e < n for e, n in zip(embed[1:], dims[1:], strict=True)):
        raise refuse(op, f"{name}_embed is {embed}; it takes {len(dims)} extents, none below those of {dims}")
    steps = [stride]
    for extent in reversed(embed[1:]):
        steps.append(steps[-1] * extent)
    if dist is None:
        dist = steps[-1] * max(embed[0], dims[0])
    if stride < 1 or dist < 0:
        raise refuse(op, f"{name}_stride is {stride}, {name}_dist {dist}; they must be positive")
    return Side(real, is_complex, (op.batch, *dims), (dist, *reversed(steps)))


def _check_reach(op: AnyMany, name: str, side: Side, layout: Layout) -> None:
    needed = (sum((n - 1) * s for n, s in zip(side.shape, side.strides, strict=True)) + 1) * side.itemsize
    if side.size and needed > layout.nbytes:
        raise refuse(
            op, f"{name} is {layout!r}, {layout.nbytes} bytes; these transforms reach {needed} bytes: pass a longer one"
        )


def _check_distinct(op: AnyMany, name: str, side: Side) -> None:
    reach = 0
    for stride, extent in sorted((s, n) for n, s in zip(side.shape, side.strides, strict=True) if n > 1):
        if stride <= reach and side.size:
            raise refuse(
                op, f"elements of {name} overlap (steps {side.strides} of extents {side.shape}): enlarge dist or embed"
            )
        reach += stride * (extent - 1)
