"""Transforms with functions of the user's at both ends."""

from typing import ClassVar, Literal

import msgspec

from callboard.core.dtype import DType, dtypes_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.fft.actor import FftActor
from callboard.kernel.fft.numpylike import check_axes, given_or_new, halved, restored, settle_axes
from callboard.kernel.fft.transform import (
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

__all__ = ["FftWithCallback"]


class FftWithCallback(Op[FftActor, GpuRef], tag="fft.with_callback"):
    """A transform with CUDA C++ functions applied to loaded and stored elements; CUDA only.

    The functions are CUDA C++ source, compiled on first use: into cuFFT's own kernels if that is expected to be faster
    (the compiler then takes about a second), else into kernels before and after. CUDA only: a CPU has no compiler for
    them. ``real`` and ``cplx`` (with parts ``x`` and ``y``) are the types of numbers; the source defines::

        __device__ cplx load(const cplx *x, unsigned long long i, const void *data)  // real for R2C
        __device__ void store(cplx *out, unsigned long long i, cplx value, const void *data)  // real for C2R

    ``i`` counts the elements of the array row by row; they are loaded and stored in any order, each once. ``store`` has
    to set ``out[i]`` every time, since an output is overwritten whole, and no other element of it. ``value`` has been
    scaled by ``norm``.

    Args:
        x: Without gaps: c64 or c128, f32 or f64 for R2C. Not changed.
        out: Without gaps; a new array when None. Shapes as in :class:`Fft`, :class:`Rfft` and :class:`Irfft`.
        kind: ``"C2C"``, ``"R2C"`` or ``"C2R"``; the precision is that of ``x``.
        load, store: Source of the functions; None: plain loads, plain stores. At least one.
        load_data, store_data: Arrays without gaps, of any type, whose addresses the functions get as ``data``; null
            when None.
        n: Points of ``out`` along ``axes[-1]`` for C2R; even by default.
        axes: One to three, distinct.
        direction: Direction of a C2C transform.
        norm: See :class:`Fft`.
        aligned: Found by the message itself: ``x`` and ``out`` begin at multiples of a complex number, as they must.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f32 f64 c64 c128")
    returns: ClassVar[tuple[str, ...]] = ("out",)
    hidden: ClassVar[frozenset[str]] = frozenset({"aligned"})

    x: In
    out: Out | None = None
    kind: Literal["C2C", "R2C", "C2R"] = "C2C"
    load: str | None = None
    store: str | None = None
    load_data: In | None = None
    store_data: In | None = None
    n: int | None = None
    axes: tuple[int, ...] = (-1,)
    direction: FftDirection = "forward"
    norm: FftNorm = "backward"
    aligned: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        settle_alignment(self, self.x, self.out)
        settle_axes(self, self.kind != "R2C")
        direction = {"R2C": "forward", "C2R": "inverse"}.get(self.kind, self.direction)
        if direction != self.direction:
            msgspec.structs.force_setattr(self, "direction", direction)

    def _source(self) -> Side:
        side = real_side if self.kind == "R2C" else complex_side
        return side(self, "x", self.x.layout)

    def infer(self) -> Outputs:
        src = self._source()
        check_axes(self, src, self.axes)
        if src.real.name == "f16":
            raise refuse(
                self, f"x is {self.x.layout!r}; the functions support single and double precision only (put it as f32)"
            )
        if self.load is None and self.store is None:
            raise refuse(self, "load and store are None; pass the source of one of them, or use fft, rfft or irfft")
        for name in ("x", "out", "load_data", "store_data"):
            operand = getattr(self, name)
            if operand is not None and not operand.layout.contiguous:
                raise refuse(self, f"{name} is {operand.layout!r}; it must have no gaps (copy it first: dev.copy)")
        if not self.aligned:
            raise refuse(self, "x or out begins between two complex numbers; pass a copy (dev.copy)")
        if self.kind == "C2R":
            return {"out": real_layout(src.real, restored(self, src.shape, self.axes[-1], self.n))}
        shape = halved(src.shape, self.axes[-1]) if self.kind == "R2C" else src.shape
        return {"out": complex_layout(src.real, shape)}

    def transform(self) -> Transform:
        """For a backend."""
        layout = given_or_new(self, self.out)
        side = (real_side if self.kind == "C2R" else complex_side)(self, "out", layout)
        return Transform(self.kind, self.direction, self.norm, self.axes, self._source(), side, self.aligned)
