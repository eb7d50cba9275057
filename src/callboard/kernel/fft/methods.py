"""The methods of ``dev.fft`` that have the names of NumPy's ``fft`` module.

Each method is a message with its direction and axes filled in; the message's docstring describes the arguments.
"""

from collections.abc import Sequence

from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.api import Api, as_tuple
from callboard.kernel.fft.numpylike import Fft, Irfft, IrfftOverwrite, Rfft
from callboard.kernel.fft.transform import FftNorm

__all__ = ["Methods"]

Axes = Sequence[int] | None


class Methods(Api[Mode]):
    """Fourier transforms on a device. ``axes=None`` means all axes."""

    __slots__ = ()

    covers = frozenset({"fft", "rfft", "irfft", "irfft_overwrite"})

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


def _all(x: GpuRef[Mode], axes: Axes, is_complex: bool) -> tuple[int, ...]:
    """Return the requested axes; by default all, without the axis that holds the parts of complex halves."""
    if axes is not None:
        return as_tuple("axes", axes)
    pairs = is_complex and getattr(x, "dtype", None) is not None and x.dtype.name == "f16"
    return tuple(range(getattr(x, "ndim", 1) - pairs))
