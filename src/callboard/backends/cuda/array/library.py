"""``CudaArray``: elements converted, numbered, gathered and scattered on a GPU."""

from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.array import indexing, movement
from callboard.core.library import Entry, Library
from callboard.kernel.array import Arange, Cast, Gather, Scatter, TakeAlong

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaArray"]


class CudaArray(Library):
    """Serves :mod:`callboard.kernel.array` with kernels of our own; conversions have one for each pair of dtypes."""

    name = "array"
    max_plans = 1024  # those of gathers own memory
    device: "CudaDevice"
    table: ClassVar = {
        Arange: Entry(lambda library, op: movement.arange(library.device, op)),
        Cast: Entry(lambda library, op: movement.cast(library.device, op), refuses=movement.too_scattered),
        Gather: Entry(lambda library, op: indexing.gather(library.device, op), refuses=indexing.too_many),
        Scatter: Entry(lambda library, op: indexing.scatter(library.device, op), refuses=indexing.too_many),
        TakeAlong: Entry(lambda library, op: indexing.take_along(library.device, op), refuses=indexing.too_many),
    }

    def warm_up(self) -> None:
        """Load the kernels."""
        self.device.kernels.get("array", "arange")
