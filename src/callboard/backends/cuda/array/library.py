"""``CudaArray``: elements converted, numbered, gathered and scattered on a GPU."""

from typing import TYPE_CHECKING, Any

from callboard.core.library import AnyOp, Library, modules_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaArray"]


class CudaArray(Library):
    """Serves :mod:`callboard.kernel.array` with kernels of our own; conversions have one for each pair of dtypes."""

    name = "array"
    max_plans = 1024  # those of gathers own memory
    device: "CudaDevice"
    modules = modules_of(__name__)

    def prepare(self, op: AnyOp) -> Any:
        return self.makers[type(op)](self.device, op)

    def warm_up(self) -> None:
        """Load the kernels."""
        self.device.kernels.get("array", "arange")
