"""``FftPlan``: a transform on a GPU, ready to be enqueued."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from callboard.backends.cuda.copies import copier
from callboard.backends.cuda.fft.advanced import advanced
from callboard.backends.cuda.fft.cufft import ALIGNMENT, FORWARD, INVERSE, Cufft, LinkedFunction
from callboard.backends.cuda.fft.scaling import scaler
from callboard.backends.cuda.workspace import Workspace
from callboard.core.errors import ShapeError
from callboard.kernel.fft.transform import Transform

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["FftPlan", "NoPlan", "aligned"]

Step = Callable[[int, int, int], None]


class NoPlan:
    """Plan of an empty batch."""

    def __call__(self, stream: "CudaStream", *operands: int | None) -> None:
        pass


class FftPlan:
    """A cuFFT plan with the copies and the scaling around it. Calling it enqueues, and nothing else.

    It works in the library's shared workspace: work area and copies are at fixed offsets of that.

    Args:
        device: The device; its context is current.
        stream: The stream it usually enqueues on.
        cufft: Makes the plan.
        workspace: Shared by the plans of a library.
        transform: Transform to compute.
        overwrite: cuFFT may overwrite ``x``.
        padding: It may write the gaps after the rows of a real output.
        beside: Bytes at the start of the workspace that belong to the caller.
        functions: Functions that cuFFT's kernels call.

    Attributes:
        base: Offset of its part of the workspace.

    Raises:
        OutOfMemory: No room for the plan, its work area or its copies.
        LibraryError: cuFFT refuses.
    """

    def __init__(
        self,
        device: "CudaDevice",
        stream: "CudaStream",
        cufft: Cufft,
        workspace: Workspace,
        transform: Transform,
        *,
        overwrite: bool = False,
        padding: bool = False,
        beside: int = 0,
        functions: Sequence[LinkedFunction] = (),
    ) -> None:
        self._cufft = cufft
        self._functions = functions
        self._workspace = workspace
        where = advanced(transform, overwrite, padding)
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
            work_at = aligned(beside)
            # Beside the work area, even if that is empty: measured, cuFFT fails on an operand at its address.
            src_at = work_at + aligned(max(work, 1))
            out_at = src_at + (aligned(src.size * src.itemsize) if self._copy_in else 0)
            self._room = workspace.lease(out_at + (aligned(out.size * out.itemsize) if self._copy_out else 0))
        except BaseException:  # Ctrl-C, too: nothing else returns the plan
            cufft.destroy(self._plan)
            raise
        self.base = self._room.memory.address
        self._src, self._out = self.base + src_at, self.base + out_at
        try:
            self._bind(stream)
            cufft.checked("cufftSetWorkArea", cufft.library.set_work_area, self._plan, self.base + work_at)
        except BaseException:  # likewise
            self.close()
            raise
        self._exec = cufft.library.xt_exec
        self._alignment = 2 * transform.src.real.itemsize

    def __call__(self, stream: "CudaStream", x: int, out: int) -> None:
        if stream is not self._stream:
            self._bind(stream)
        native = stream.native
        src, target = x, out
        if self._copy_in is not None:
            src = self._src
            self._copy_in(native, x, src)
        elif x % self._alignment:
            raise self._unaligned("x", x)
        if self._copy_out is not None:
            target = self._out
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
        self._workspace.leave(self._room)
        self._cufft.destroy(self._plan)

    def _bind(self, stream: "CudaStream") -> None:
        self._cufft.checked("cufftSetStream", self._cufft.library.set_stream, self._plan, stream.native)
        self._stream = stream

    def _unaligned(self, name: str, address: int) -> ShapeError:
        return ShapeError(
            f"{name} begins at an address that is not a multiple of {self._alignment} bytes, which cuFFT asks for; "
            f"pass a copy (dev.copy)"
        )


def aligned(nbytes: int) -> int:
    """Round a number of bytes up to the alignment of any array."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
