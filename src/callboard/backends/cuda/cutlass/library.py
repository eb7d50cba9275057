"""``CudaCutlass``: products with epilogues on a GPU."""

from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.blas_lt import CudaBlasLt
from callboard.backends.cuda.workspace import Workspace
from callboard.core.library import Library, modules_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CudaCutlass"]


class CudaCutlass(Library):
    """Serves :mod:`callboard.kernel.cutlass`.

    Plans are made on the host's helper thread, where nvcc, NVRTC and cuBLASLt may take their time.

    Attributes:
        lt: cuBLASLt, for products that it has.
        workspace: Sums and patches of the plans that take several launches.
    """

    name = "cutlass"
    device: "CudaDevice"
    max_plans: ClassVar[int | None] = 512
    modules = modules_of(__name__)

    def __init__(self, device: "CudaDevice", stream: "CudaStream") -> None:
        super().__init__(device, stream)
        self.lt = CudaBlasLt(device, stream)
        self.workspace = Workspace(device)

    def close(self) -> None:
        self.lt.close()
        self.workspace.close()
