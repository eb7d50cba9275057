"""``CudaSparse``: sparse matrices on a GPU."""

from typing import TYPE_CHECKING

from callboard.backends.cuda.sparse.cusparse import Cusparse
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Library, modules_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaSparse"]


class CudaSparse(Library):
    """Serves :mod:`callboard.kernel.sparse` with cuSPARSE and custom kernels.

    Three handles: one that executes, on the admitting thread; one for prepares, on the helper thread; and one
    for ops that use it in size queries on the helper thread and in launches on the admitting one: sparse products,
    sorting, blocks.

    Not recorded in graphs (tried with CUDA 13.0 on an H200): solves, whose analysis ends the process then (SIGFPE);
    exchanges of rows and columns by csr2csc, which meet an illegal address; sparse products and sorting, whose size
    query must run each time.
    """

    name = "sparse"
    max_plans = 1024
    modules = modules_of(__name__)

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.cusparse = Cusparse(device, stream)
        self.maker = Cusparse(device, stream)
        self.sizer = Cusparse(device, stream)

    def warm_up(self) -> None:
        """Load our kernels."""
        self.cusparse.device.kernels.get("sparse", "clear_4")

    def close(self) -> None:
        for handle in (self.cusparse, self.maker, self.sizer):
            handle.close()
