"""``CpuManaged``: managed memory on the CPU, where all memory is the host's."""

from callboard.backends.cpu.stream import CpuStream
from callboard.core.library import Library, launches
from callboard.kernel.managed import Advise, Allocate, Prefetch
from callboard.kernel.managed.checks import check_managed

__all__ = ["CpuManaged"]


class CpuManaged(Library):
    """Serves :mod:`callboard.kernel.managed`: pages are where they are needed already."""

    name = "managed"

    @launches(Allocate)
    def allocate(self, stream: CpuStream, plan: Allocate, out: int) -> None:
        """Do nothing: the host has allocated it."""

    @launches(Prefetch)
    def prefetch(self, stream: CpuStream, plan: Prefetch, x: int) -> None:
        check_managed("prefetch", self.device.managed, x)

    @launches(Advise)
    def advise(self, stream: CpuStream, plan: Advise, x: int) -> None:
        check_managed("advise", self.device.managed, x)
