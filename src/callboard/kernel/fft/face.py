"""``FftFace``: what stands behind ``dev.fft``.

The names are those of NumPy's ``fft`` module: each is a message with its direction and axes filled in, and the
message's docstring says what the arguments mean. Everything raises at the call: ``TypeError`` (no ref), ``ShapeError``,
``UnsupportedOp``, ``DeviceMismatch``, ``GpuRefStale`` and ``MailboxFull``, and sends nothing then.
"""

from collections.abc import Sequence
from typing import Literal

from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.face import Face
from callboard.kernel.fft.callback import FftWithCallback
from callboard.kernel.fft.many import FftPlanMany, FftPlanManyInPlace
from callboard.kernel.fft.numpylike import Fft, Irfft, IrfftOverwrite, Rfft
from callboard.kernel.fft.transform import FftDirection, FftKind, FftNorm

__all__ = ["FftFace"]

Axes = Sequence[int] | None


class FftFace(Face[Mode]):
    """Fourier transforms on a device. ``axes=None`` means all axes."""

    __slots__ = ()

    # -- complex -------------------------------------------------------------------------------------------------------

    def fft(
        self, x: GpuRef[Mode], *, axis: int = -1, norm: FftNorm = "backward", out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """Forward transform of a complex array along one axis; ``out`` may be ``x``."""
        answer: GpuRef[Mode] = self._submit(Fft(x=x, out=out, axes=(axis,), norm=norm))
        return answer

    def ifft(
        self, x: GpuRef[Mode], *, axis: int = -1, norm: FftNorm = "backward", out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """Inverse of :meth:`fft`."""
        answer: GpuRef[Mode] = self._submit(Fft(x=x, out=out, axes=(axis,), direction="inverse", norm=norm))
        return answer

    def fft2(
        self,
        x: GpuRef[Mode],
        *,
        axes: Sequence[int] = (-2, -1),
        norm: FftNorm = "backward",
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """:meth:`fftn` along two axes."""
        return self.fftn(x, axes=axes, norm=norm, out=out)

    def ifft2(
        self,
        x: GpuRef[Mode],
        *,
        axes: Sequence[int] = (-2, -1),
        norm: FftNorm = "backward",
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """:meth:`ifftn` along two axes."""
        return self.ifftn(x, axes=axes, norm=norm, out=out)

    def fftn(
        self, x: GpuRef[Mode], *, axes: Axes = None, norm: FftNorm = "backward", out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """Forward transform of a complex array along one to three axes; ``out`` may be ``x``."""
        answer: GpuRef[Mode] = self._submit(Fft(x=x, out=out, axes=_all(x, axes, True), norm=norm))
        return answer

    def ifftn(
        self, x: GpuRef[Mode], *, axes: Axes = None, norm: FftNorm = "backward", out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """Inverse of :meth:`fftn`."""
        answer: GpuRef[Mode] = self._submit(Fft(x=x, out=out, axes=_all(x, axes, True), direction="inverse", norm=norm))
        return answer

    # -- real ----------------------------------------------------------------------------------------------------------

    def rfft(
        self, x: GpuRef[Mode], *, axis: int = -1, norm: FftNorm = "backward", out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """Forward transform of a real array along one axis: its first ``n // 2 + 1`` points."""
        answer: GpuRef[Mode] = self._submit(Rfft(x=x, out=out, axes=(axis,), norm=norm))
        return answer

    def irfft(
        self,
        x: GpuRef[Mode],
        *,
        n: int | None = None,
        axis: int = -1,
        norm: FftNorm = "backward",
        out: GpuRef[Mode] | None = None,
        overwrite_x: bool = False,
    ) -> GpuRef[Mode]:
        """Inverse of :meth:`rfft`: a real array with ``n`` points, an even number by default."""
        return self.irfftn(x, n=n, axes=(axis,), norm=norm, out=out, overwrite_x=overwrite_x)

    def rfft2(
        self,
        x: GpuRef[Mode],
        *,
        axes: Sequence[int] = (-2, -1),
        norm: FftNorm = "backward",
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """:meth:`rfftn` along two axes."""
        return self.rfftn(x, axes=axes, norm=norm, out=out)

    def irfft2(
        self,
        x: GpuRef[Mode],
        *,
        n: int | None = None,
        axes: Sequence[int] = (-2, -1),
        norm: FftNorm = "backward",
        out: GpuRef[Mode] | None = None,
        overwrite_x: bool = False,
    ) -> GpuRef[Mode]:
        """:meth:`irfftn` along two axes."""
        return self.irfftn(x, n=n, axes=axes, norm=norm, out=out, overwrite_x=overwrite_x)

    def rfftn(
        self, x: GpuRef[Mode], *, axes: Axes = None, norm: FftNorm = "backward", out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """Forward transform of a real array along one to three axes; of the last one the first half."""
        answer: GpuRef[Mode] = self._submit(Rfft(x=x, out=out, axes=_all(x, axes, False), norm=norm))
        return answer

    def irfftn(
        self,
        x: GpuRef[Mode],
        *,
        n: int | None = None,
        axes: Axes = None,
        norm: FftNorm = "backward",
        out: GpuRef[Mode] | None = None,
        overwrite_x: bool = False,
    ) -> GpuRef[Mode]:
        """Inverse of :meth:`rfftn`: ``n`` points along the last of ``axes``. ``overwrite_x`` spares a copy of ``x``."""
        message = IrfftOverwrite if overwrite_x else Irfft
        answer: GpuRef[Mode] = self._submit(message(x=x, out=out, n=n, axes=_all(x, axes, True), norm=norm))
        return answer

    # -- layouts by numbers --------------------------------------------------------------------------------------------

    def plan_many(
        self,
        x: GpuRef[Mode],
        out: GpuRef[Mode],
        kind: FftKind,
        dims: Sequence[int],
        *,
        batch: int = 1,
        direction: FftDirection = "forward",
        norm: FftNorm = "backward",
        in_embed: Sequence[int] | None = None,
        in_stride: int = 1,
        in_dist: int | None = None,
        out_embed: Sequence[int] | None = None,
        out_stride: int = 1,
        out_dist: int | None = None,
    ) -> GpuRef[Mode]:
        """A batch of transforms whose elements lie where ``embed``, ``stride`` and ``dist`` say; gives ``out``."""
        answer: GpuRef[Mode] = self._submit(
            FftPlanMany(
                x=x,
                out=out,
                kind=kind,
                dims=_row("dims", dims),
                batch=batch,
                direction=direction,
                norm=norm,
                in_embed=None if in_embed is None else _row("in_embed", in_embed),
                in_stride=in_stride,
                in_dist=in_dist,
                out_embed=None if out_embed is None else _row("out_embed", out_embed),
                out_stride=out_stride,
                out_dist=out_dist,
            )
        )
        return answer

    def plan_many_in_place(
        self,
        x: GpuRef[Mode],
        kind: FftKind,
        dims: Sequence[int],
        *,
        batch: int = 1,
        direction: FftDirection = "forward",
        norm: FftNorm = "backward",
    ) -> GpuRef[Mode]:
        """A batch of transforms within ``x``, which is answered; real rows padded to their complex ones."""
        answer: GpuRef[Mode] = self._submit(
            FftPlanManyInPlace(x=x, kind=kind, dims=_row("dims", dims), batch=batch, direction=direction, norm=norm)
        )
        return answer

    # -- functions of one's own ----------------------------------------------------------------------------------------

    def with_callback(
        self,
        x: GpuRef[Mode],
        *,
        out: GpuRef[Mode] | None = None,
        kind: Literal["C2C", "R2C", "C2R"] = "C2C",
        load: str | None = None,
        store: str | None = None,
        load_data: GpuRef[Mode] | None = None,
        store_data: GpuRef[Mode] | None = None,
        n: int | None = None,
        axes: Sequence[int] = (-1,),
        direction: FftDirection = "forward",
        norm: FftNorm = "backward",
    ) -> GpuRef[Mode]:
        """A transform with a function in CUDA C++ for what it loads and one for what it stores; CUDA only."""
        answer: GpuRef[Mode] = self._submit(
            FftWithCallback(
                x=x,
                out=out,
                kind=kind,
                load=load,
                store=store,
                load_data=load_data,
                store_data=store_data,
                n=n,
                axes=_row("axes", axes),
                direction=direction,
                norm=norm,
            )
        )
        return answer


def _all(x: GpuRef[Mode], axes: Axes, is_complex: bool) -> tuple[int, ...]:
    """The axes asked for; else all, without the one that holds the parts of complex halves."""
    if axes is not None:
        return _row("axes", axes)
    pairs = is_complex and getattr(x, "dtype", None) is not None and x.dtype.name == "f16"
    return tuple(range(getattr(x, "ndim", 1) - pairs))


def _row(name: str, numbers: Sequence[int]) -> tuple[int, ...]:
    """A sequence as messages have it; what its items are, they look at."""
    try:
        return tuple(numbers)
    except TypeError:
        raise TypeError(f"{name} is {numbers!r}; pass a sequence of integers, ({numbers!r},)") from None
