"""``CudaNvrtc``: kernels of the user's own, compiled by NVRTC."""

import threading
from typing import TYPE_CHECKING, ClassVar

import msgspec

from callboard.backends.cuda.nvrtc.answers import BytesPlan, inspection
from callboard.backends.cuda.nvrtc.calls import KernelCall
from callboard.backends.cuda.nvrtc.programs import Programs
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Library, plans
from callboard.kernel.nvrtc import Compile, Inspect, Launch

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaNvrtc"]


def without_source(op: Launch) -> str | None:
    """The reason why a GPU cannot launch it."""
    return None if op.source.text else f"{op.spec.name} has no CUDA C++ text"


class CudaNvrtc(Library):
    """Serves :mod:`callboard.kernel.nvrtc`.

    Plans are compiled on separate threads; a plan waits for its code on the host's helper thread.
    """

    name = "nvrtc"
    max_plans: ClassVar[int | None] = 4096
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.programs = Programs(
            device.driver, device.info.compute_capability, lambda: device.non_blocking_thread != threading.get_ident()
        )

    def close(self) -> None:
        self.programs.close()

    @plans(Launch, inline=True, refuses=without_source)
    def call(self, op: Launch) -> KernelCall:
        """The plan of a launch."""
        with self.programs.function(op.source, op.spec.name) as loaded:
            return KernelCall(self.device, loaded, op)

    @plans(Compile, inline=True, sizes=True, captures=False)
    def compiled(self, op: Compile) -> BytesPlan:
        """The plan of a compilation."""
        return BytesPlan(msgspec.msgpack.encode(self.programs.compiled(op.source, form=op.form)))

    @plans(Inspect, inline=True, captures=False)
    def inspected(self, op: Inspect) -> BytesPlan:
        """The plan of a question about a kernel."""
        with self.programs.function(op.source, op.name) as loaded:
            return inspection(self.device, loaded, op.threads, op.shared)
