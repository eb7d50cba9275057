"""``CudaCollective``: collectives by NCCL, one process for each GPU, or one thread."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.collective.member import CudaMember, SetupResources
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
        device, stream: See :class:`Library`.
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
        self._spare_setups: list[SetupResources] = []  # left by members that have ended

    @property
    def detail(self) -> str:
        return f"NCCL {self._nccl.version}"

    def member(self, world: int, rank: int, size: int) -> CudaMember:
        self._sweep()
        setup = next((setup for setup in self._spare_setups if setup.scratch.nbytes > size), None)
        if setup is None:
            setup = SetupResources(self._device.stream(), self._device.allocate(1 + size))
        else:
            self._spare_setups.remove(setup)
        member = CudaMember(world, rank, size, self._nccl, self._device, self._stream, setup)
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
        for setup in self._spare_setups:
            self._device.release(setup.scratch)
        self._spare_setups.clear()

    def _sweep(self) -> None:
        """Take back the setup resources of members whose thread has ended.

        They are kept for later members instead of being freed: freeing memory waits for all kernels, and the kernel of
        a collective runs as long as a rank is missing.
        """
        for member in [m for m in self._all if m.lost is not None and m.ended]:
            self._all.remove(member)
            self._spare_setups.append(member.setup)
