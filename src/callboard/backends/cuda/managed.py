"""``CudaManaged``: managed memory on a GPU."""

from typing import TYPE_CHECKING

from callboard.backends.cuda.driver import CPU_DEVICE
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Library, launches
from callboard.kernel.managed import Advise, Allocate, Location, Prefetch
from callboard.kernel.managed.checks import check_managed

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaManaged"]

ADVICE = {"read_mostly": (1, 2), "preferred_location": (3, 4), "accessed_by": (5, 6)}
"""``CUmem_advise``: set, unset."""


class CudaManaged(Library):
    """Serves :mod:`callboard.kernel.managed`."""

    name = "managed"
    device: "CudaDevice"

    @launches(Allocate)
    def allocate(self, stream: CudaStream, plan: Allocate, out: int) -> None:
        """Do nothing: the host has allocated it."""

    @launches(Prefetch, captures=False)
    def prefetch(self, stream: CudaStream, plan: Prefetch, x: int) -> None:
        check_managed("prefetch", self.device.managed, x)
        low, high = plan.x.layout.span
        if high > low:
            self.device.driver.mem_prefetch(x + low, high - low, self._location(plan.to), stream.native)

    @launches(Advise, captures=False)
    def advise(self, stream: CudaStream, plan: Advise, x: int) -> None:
        check_managed("advise", self.device.managed, x)
        low, high = plan.x.layout.span
        if high > low:
            advice = ADVICE[plan.advice][plan.unset]
            self.device.driver.mem_advise(x + low, high - low, advice, self._location(plan.location))

    def _location(self, where: Location) -> int:
        return self.device.native if where == "device" else CPU_DEVICE
