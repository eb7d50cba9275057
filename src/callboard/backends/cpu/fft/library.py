"""``CpuFft``: the modules whose plans serve the messages."""

from typing import ClassVar

from callboard.backends.cpu.fft import transforms
from callboard.backends.cpu.library import CpuLibrary
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.library import modules_of
from callboard.kernel.fft import FftWithCallback

__all__ = ["CpuFft"]


class CpuFft(CpuLibrary):
    """Serves :mod:`callboard.kernel.fft` with :mod:`scipy.fft`, in the precision of the operands (halves in f32)."""

    name = "fft"
    implementation = "scipy"
    modules = modules_of(__name__)
    refused: ClassVar = {
        FftWithCallback: "load and store are CUDA C++, which a CPU cannot run; compute before and after a transform"
    }

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        transforms.scipy_fft()  # imports it now and not inside the first op
