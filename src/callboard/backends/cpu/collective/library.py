"""``CpuCollective``: collectives over shared memory."""

from collections.abc import Sequence
from typing import Any

from callboard.backends.cpu.collective.member import CpuMember
from callboard.backends.cpu.collective.steps import PartPlan
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import Status
from callboard.core.library import launches, prepares
from callboard.kernel.collective import Run
from callboard.kernel.collective.library import CollectiveLibrary

__all__ = ["CpuCollective"]


class CpuCollective(CollectiveLibrary):
    """Ranks are threads of streams, in one process or in several, that exchange through shared memory.

    A part waits for the other ranks on the worker of the library's stream, and holds nothing else of its host.
    """

    def member(self, world: int, rank: int, size: int) -> CpuMember:
        return CpuMember(world, rank, size)

    @prepares(Run, inline=True)
    def plan_run(self, op: Run) -> PartPlan:
        return PartPlan(op)

    @launches(Run, captures=False)
    def run(
        self,
        stream: CpuStream,
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
        assert isinstance(member, CpuMember)
        member.begin(call, after)
        return stream.run(self.name, plan.run, member, stream, call, ins, inouts, outs, factors)
