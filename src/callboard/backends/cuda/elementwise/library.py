"""``CudaElementwise``: which plan serves which message."""

from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.workspace import Workspace
from callboard.core.library import Library, modules_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CudaElementwise"]


class CudaElementwise(Library):
    """Serves :mod:`callboard.kernel.elementwise`: one kernel for each expression, dtypes and kind of layout.

    The kernels are generated as text and compiled by NVRTC on the host's helper thread; kernels that have been compiled
    on this machine are read from the disk. Sizes, steps and numbers are arguments, so another shape needs no compiler.
    Every launch can be recorded in a graph.
    """

    name = "elementwise"
    max_plans: ClassVar[int | None] = 1024
    modules = modules_of(__name__)
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: "CudaStream") -> None:
        super().__init__(device, stream)
        self.workspace = Workspace(device)

    def close(self) -> None:
        self.workspace.close()
