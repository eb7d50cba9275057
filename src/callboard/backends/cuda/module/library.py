"""``CudaModule``: kernels that are compiled already."""

import threading
from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.module.images import Images
from callboard.backends.cuda.nvrtc.answers import BytesPlan, inspection
from callboard.backends.cuda.nvrtc.calls import KernelCall
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Library, plans
from callboard.kernel.module import Inspect, Launch, Link

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaModule"]


class CudaModule(Library):
    """Serves :mod:`callboard.kernel.module`."""

    name = "module"
    max_plans: ClassVar[int | None] = 4096
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.images = Images(
            device.driver, device.info.compute_capability, lambda: device.non_blocking_thread != threading.get_ident()
        )

    def close(self) -> None:
        self.images.close()

    @plans(Launch, inline=True)
    def call(self, op: Launch) -> KernelCall:
        """The plan of a launch."""
        with self.images.function(op.images, op.options, op.spec.name) as loaded:
            return KernelCall(self.device, loaded, op)

    @plans(Inspect, inline=True, captures=False)
    def inspected(self, op: Inspect) -> BytesPlan:
        """The plan of a question about a kernel."""
        with self.images.function(op.images, op.options, op.name) as loaded:
            return inspection(self.device, loaded, op.threads, op.shared)

    @plans(Link, sizes=True, captures=False)
    def linked(self, op: Link) -> BytesPlan:
        """The plan of a link."""
        return BytesPlan(self.images.linked(op.images, op.options))
