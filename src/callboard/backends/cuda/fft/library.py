"""``CudaFft``: Fourier transforms on a GPU through cuFFT."""

import logging
from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.fft.callbacks import CallbackPlan
from callboard.backends.cuda.fft.cufft import Cufft
from callboard.backends.cuda.fft.linked import LinkedPlan, worth_linking
from callboard.backends.cuda.fft.plans import FftPlan, NoPlan
from callboard.backends.cuda.stream import CudaStream
from callboard.backends.cuda.workspace import Workspace
from callboard.core.errors import LibraryError
from callboard.core.library import Library, launches, plans, prepares
from callboard.kernel import fft
from callboard.kernel.fft.transform import Transform

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaFft"]

_log = logging.getLogger("callboard.cuda")

Transforms = fft.Fft | fft.Rfft | fft.Irfft | fft.IrfftOverwrite | fft.FftPlanMany | fft.FftPlanManyInPlace
Plan = FftPlan | NoPlan


def not_by_cufft(op: Transforms) -> str | None:
    """The reason why cuFFT cannot execute a transform."""
    transform = op.transform()
    if transform.src.real.name == "f16" and any(n & (n - 1) for n in transform.lengths):
        return f"cuFFT transforms halves by powers of two, and these have {transform.lengths} points (use f32)"
    return None


class CudaFft(Library):
    """Serves :mod:`callboard.kernel.fft`: a cuFFT plan for each transform, kept by last use.

    All plans work in one workspace, one after the other on the library's stream. A CUDA graph must not run concurrently
    with that stream, nor after its plan was dropped: the plan owns its part of the workspace, and the data that its
    kernels read besides their operands.
    """

    name = "fft"
    max_plans: ClassVar[int | None] = 64
    device: "CudaDevice"
    stream: CudaStream

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.cufft = Cufft()
        self.workspace = Workspace(device)

    def warm_up(self) -> None:
        """Load cuFFT's kernels by a first plan."""
        plan = self.cufft.create()
        self.cufft.library.make_plan1d(plan, 64, 0x29, 1)
        self.cufft.destroy(plan)

    def close(self) -> None:
        self.workspace.close()

    # Making a plan loads or compiles kernels: milliseconds to a second, on the host's helper thread.

    @plans(fft.Fft, fft.FftPlanMany, fft.Irfft, fft.IrfftOverwrite, fft.Rfft, refuses=not_by_cufft)
    def plan(self, op: Transforms) -> Plan:
        return self._planned(op.transform(), isinstance(op, fft.IrfftOverwrite), padding=False)

    @prepares(fft.FftPlanManyInPlace)
    def plan_in_place(self, op: fft.FftPlanManyInPlace) -> Plan:
        return self._planned(op.transform(), True, padding=True)

    @launches(fft.FftPlanManyInPlace, refuses=not_by_cufft)
    def in_place(self, stream: CudaStream, plan: Plan, x: int) -> None:
        plan(stream, x, x)

    @plans(fft.FftWithCallback)
    def plan_with_callback(self, op: fft.FftWithCallback) -> LinkedPlan | CallbackPlan | NoPlan:
        transform = op.transform()
        if transform.src.size == 0 or transform.out.size == 0:
            return NoPlan()
        if worth_linking(op):
            try:
                return LinkedPlan(self.device, self.stream, self.cufft, self.workspace, op)
            except LibraryError as e:  # also for a source that does not compile, which the next attempt reports
                _log.debug("fft.with_callback: cuFFT does not link the functions, they become kernels: %s", e)
        return CallbackPlan(self.device, self.stream, self.cufft, self.workspace, op)

    def _planned(self, transform: Transform, overwrite: bool, padding: bool) -> Plan:
        if transform.src.size == 0 or transform.out.size == 0:
            return NoPlan()
        return FftPlan(
            self.device, self.stream, self.cufft, self.workspace, transform, overwrite=overwrite, padding=padding
        )
