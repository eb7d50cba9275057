"""``CudaCub``: parallel primitives on a GPU."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import AnyOp, Library, modules_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaCub"]


class CudaCub(Library):
    """Serves :mod:`callboard.kernel.cub` with CUB, through ``cuda.compute``, and custom kernels.

    All launches can be recorded in graphs. An algorithm is compiled on the helper's thread for each set of dtypes and
    operators, which takes 1 to 3 s, and is kept on disk.
    """

    name = "cub"
    max_plans = 1024
    modules = modules_of(__name__)

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.cccl = Cccl(device)

    def prepare(self, op: AnyOp) -> Any:
        return self.makers[type(op)](self.cccl, op)

    def warm_up(self) -> None:
        """Load our kernels."""
        self.cccl.device.kernels.get("cub_moves", "iota_i32")

    def close(self) -> None:
        self.cccl.close()
