"""``CudaCollective``: collectives by NCCL, one process for each GPU, or one thread."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.collective.member import Aside, CudaMember
from callboard.backends.cuda.collective.nccl import Nccl
from callboard.backends.cuda.collective.parts import PartPlan, why_not
from callboard.core.backend import Status
from callboard.core.errors import WorldLost
from callboard.core.library import launches, prepares
from callboard.kernel.collective import Run
from callboard.kernel.collective.library import CollectiveLibrary

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CudaCollective"]


class CudaCollective(CollectiveLibrary):
    """NCCL's communicators, one for each world. Parts of all of them are enqueued on one stream, in order.

    Args:
        device, stream: As of :class:`Library`.
        nccl: Stands in for NCCL.

    Raises:
        BackendUnavailable: nccl4py or libnccl is missing.
    """

    def __init__(self, device: "CudaDevice", stream: "CudaStream", nccl: Nccl | None = None) -> None:
        super().__init__(device, stream)
        self._nccl = nccl or Nccl()
        self._device = device
        self._stream = stream
        self._all: list[CudaMember] = []
        self._asides: list[Aside] = []  # of members that are gone

    @property
    def detail(self) -> str:
        return f"NCCL {self._nccl.version}"

    def member(self, world: int, rank: int, size: int) -> CudaMember:
        self._sweep()
        aside = next((aside for aside in self._asides if aside.scratch.nbytes > size), None)
        if aside is None:
            aside = Aside(self._device.stream(), self._device.allocate(1 + size))
        else:
            self._asides.remove(aside)
        member = CudaMember(world, rank, size, self._nccl, self._device, self._stream, aside)
        self._all.append(member)
        return member

    @prepares(Run, inline=True)
    def plan_run(self, op: Run) -> PartPlan:
        return PartPlan(op, self._nccl)

    @launches(Run, captures=False, refuses=why_not)
    def run(
        self,
        stream: "CudaStream",
        plan: PartPlan,
        world: int,
        call: int,
        after: int,
        ins: Sequence[int],
        inouts: Sequence[int],
        outs: Sequence[int],
        factors: Sequence[Any],
    ) -> Status:
        member = self.find(world)
        assert isinstance(member, CudaMember)
        member.begin(call, after)
        held = member.using.acquire(blocking=False)  # else its thread holds it to abort
        try:
            if not held or member.comm is None:
                member.check()
                raise WorldLost(f"rank {member.rank} has not joined world {world}", member.rank)
            plan.enqueue(member, stream.native, ins, inouts, outs, factors)
        finally:
            if held:
                member.using.release()
        return member.enqueued()

    def close(self) -> None:
        super().close()
        for member in self._all:
            member.wait_end()
        self._sweep()
        for aside in self._asides:
            self._device.release(aside.scratch)
        self._asides.clear()

    def _sweep(self) -> None:
        """Take back what members had that are gone and whose thread has ended.

        It is kept for later members: the driver frees memory only when no kernel runs, which the kernel of a collective
        does as long as a rank is missing.
        """
        for member in [m for m in self._all if m.lost is not None and m.ended]:
            self._all.remove(member)
            self._asides.append(member.aside)
