"""``CpuFft``: which plan serves which message."""

from typing import ClassVar

from callboard.backends.cpu.fft.transforms import Plan, planned, scipy_fft
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import AccelDevice, AccelStream, Status
from callboard.core.library import Library, launches, prepares
from callboard.kernel.fft import Fft, FftPlanMany, FftPlanManyInPlace, FftWithCallback, Irfft, IrfftOverwrite, Rfft

__all__ = ["CpuFft"]


class CpuFft(Library):
    """Serves :mod:`callboard.kernel.fft` with :mod:`scipy.fft`, in the precision of the operands (halves in f32)."""

    name = "fft"
    refused: ClassVar = {
        FftWithCallback: "load and store are CUDA C++, which a CPU cannot run; compute before and after a transform"
    }

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        scipy_fft()  # imports it now and not inside the first op

    @prepares(Fft, Rfft, Irfft, IrfftOverwrite, FftPlanMany, FftPlanManyInPlace, inline=True)
    def plan(self, op: Fft | Rfft | Irfft | IrfftOverwrite | FftPlanMany | FftPlanManyInPlace) -> Plan:
        return planned(op.transform())

    @launches(Fft, Rfft, Irfft, IrfftOverwrite, FftPlanMany)
    def transform(self, stream: CpuStream, plan: Plan, x: int, out: int) -> Status:
        return stream.run("scipy", plan, x, out)

    @launches(FftPlanManyInPlace)
    def in_place(self, stream: CpuStream, plan: Plan, x: int) -> Status:
        return stream.run("scipy", plan, x, x)
