"""``FftPlan``: a transform on a GPU, ready to be enqueued."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from callboard.backends.cuda.copies import copier
from callboard.backends.cuda.fft.advanced import advanced
from callboard.backends.cuda.fft.cufft import ALIGNMENT, FORWARD, INVERSE, Area, Cufft, LinkedFunction
from callboard.backends.cuda.fft.scaling import scaler
from callboard.core.errors import ShapeError
from callboard.kernel.fft.transform import Transform

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["FftPlan", "NoPlan", "aligned"]

Step = Callable[[int, int, int], None]


class NoPlan:
    """Of a batch of nothing."""

    def __call__(self, stream: "CudaStream", x: int, out: int) -> None:
        pass


class FftPlan:
    """A cuFFT plan with the copies and the scaling around it. Calling it enqueues, and nothing else.

    It works in the library's shared area: a plan and its copies are at fixed offsets of that.

    Args:
        device: Whose context is current.
        stream: Where it usually enqueues.
        cufft: Makes the plan.
        area: Shared by the plans of a library.
        transform: What to do.
        overwrite: cuFFT may overwrite ``x``.
        beside: Bytes at the start of the area that are somebody else's.
        functions: For cuFFT's kernels to call.

    Raises:
        OutOfMemory: No room for the plan, its work area or its copies.
        LibraryError: cuFFT refuses.
    """

    def __init__(
        self,
        device: "CudaDevice",
        stream: "CudaStream",
        cufft: Cufft,
        area: Area,
        transform: Transform,
        *,
        overwrite: bool = False,
        beside: int = 0,
        functions: Sequence[LinkedFunction] = (),
    ) -> None:
        self._cufft = cufft
        self._functions = functions
        self._area = area
        where = advanced(transform, overwrite)
        src, out = where.src_copy or transform.src, where.out_copy or transform.out
        driver, kernels = device.driver, device.kernels
        self._copy_in = self._copy_out = None
        if where.src_copy is not None:
            self._copy_in = copier(driver, kernels, transform.src.layout, src.layout)
        if where.out_copy is not None:
            self._copy_out = copier(driver, kernels, out.layout, transform.out.layout)
        self._scale = None if transform.scale == 1.0 else scaler(device, out, transform.scale)
        self._direction = FORWARD if transform.direction == "forward" else INVERSE
        self._plan = cufft.create()
        try:
            for function in functions:
                cufft.link(self._plan, function)
            work = cufft.make(self._plan, transform, where)
            self._work_at = aligned(beside)
            # Beside the work area, also where that is empty: measured, cuFFT fails on an operand at its address.
            self._src_at = self._work_at + aligned(max(work, 1))
            self._out_at = self._src_at + (aligned(src.size * src.itemsize) if self._copy_in else 0)
            area.reserve(self._out_at + (aligned(out.size * out.itemsize) if self._copy_out else 0))
            self._bind(stream)
            self._place()
        except BaseException:  # Ctrl-C, too: nobody else gives the plan back
            cufft.destroy(self._plan)
            raise
        self._exec = cufft.library.xt_exec
        self._alignment = 2 * transform.src.real.itemsize

    def __call__(self, stream: "CudaStream", x: int, out: int) -> None:
        if stream is not self._stream:
            self._bind(stream)
        if self._area.address != self._placed:
            self._place()
        if stream.recording:
            self._area.recorded = True
        native = stream.native
        src, target = x, out
        if self._copy_in is not None:
            src = self._placed + self._src_at
            self._copy_in(native, x, src)
        elif x % self._alignment:
            raise self._unaligned("x", x)
        if self._copy_out is not None:
            target = self._placed + self._out_at
        elif out % self._alignment:
            raise self._unaligned("out", out)
        try:
            self._exec(self._plan, src, target, self._direction)
        except self._cufft.failure as e:
            raise self._cufft.error(e, "cufftXtExec") from None
        if self._scale is not None:
            self._scale(native, target)
        if self._copy_out is not None:
            self._copy_out(native, target, out)

    def close(self) -> None:
        """Destroy it; the stream has passed its last user."""
        self._cufft.destroy(self._plan)

    def _bind(self, stream: "CudaStream") -> None:
        self._cufft.checked("cufftSetStream", self._cufft.library.set_stream, self._plan, stream.native)
        self._stream = stream

    def _place(self) -> None:
        """The area has moved."""
        work = self._area.address + self._work_at
        self._cufft.checked("cufftSetWorkArea", self._cufft.library.set_work_area, self._plan, work)
        self._placed = self._area.address

    def _unaligned(self, name: str, address: int) -> ShapeError:
        return ShapeError(
            f"{name} begins at an address that is no multiple of {self._alignment} bytes, which cuFFT asks for; "
            f"pass a copy (dev.copy)"
        )


def aligned(nbytes: int) -> int:
    """So many bytes that what follows begins where any array may."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
