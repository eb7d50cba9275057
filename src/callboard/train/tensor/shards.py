"""``Shards``: the devices of a trainer, a shard beside each, that take steps together or not at all."""

import asyncio
from typing import cast

from callboard.actors.props import Props
from callboard.device.client.residents.ref import ResidentRef
from callboard.train.batches import Batch
from callboard.train.job import Job
from callboard.train.replicas.calls import every, together
from callboard.train.replicas.measuring import Measures
from callboard.train.replicas.members import Members
from callboard.train.replicas.replica import Replica, Update
from callboard.train.states import Kept, State, check_alike
from callboard.train.tensor.cuts import Division, joined, parted
from callboard.train.tensor.plan import Plan
from callboard.train.tensor.shard import Entered, TensorShard

__all__ = ["Shards"]


class Shards(Members):
    """The shards, in the order of their numbers.

    No shard has what another one has: when one is lost, all go back to the state that the application keeps.

    Args:
        plan: How the model is cut.
        job: See :class:`.Members`.
    """

    def __init__(self, plan: Plan, job: Job) -> None:
        super().__init__(lambda job: cast(Props[Replica], Props(TensorShard, job, plan)), job, partial=True)
        self._division: Division | None = None

    @property
    def _shards(self) -> list[ResidentRef[TensorShard]]:
        return cast(list[ResidentRef[TensorShard]], self.actors)

    async def _entered(self, is_first: bool) -> list[Update]:
        size = len(self.devices)
        entered: list[Entered] = await every(
            shard.call(TensorShard.cut, rank, size, is_first) for rank, shard in enumerate(self._shards)
        )
        _check_alike(entered)
        self._division = entered[0].division
        return [one.done for one in entered]

    async def _brought(self, done: list[Update], kept: Kept | None) -> Update:
        if len({update.step for update in done}) == 1 and done[0].step >= 0:
            return done[0]
        if kept is not None:
            return (await self.load(kept))[0]
        begun: list[Update] = await every(shard.call(TensorShard.begin) for shard in self._shards)
        return begun[0]

    def _parts(self, batch: Batch) -> list[Batch]:
        return [batch] * len(self.actors)

    def _shares(self, rows: int) -> list[slice]:
        return [slice(0, rows)]

    def _sum(self, parts: list[Measures]) -> Measures:
        return parts[0]

    async def load(self, kept: Kept) -> list[Update]:
        assert self._division is not None
        parts = kept.parts
        if kept.cut != self._division or len(parts) != len(self.devices):
            whole = parts[0] if kept.cut is None else await asyncio.to_thread(joined, parts, kept.cut)
            parts = await asyncio.to_thread(parted, whole, self._division, len(self.devices))
        return await every(shard.call(TensorShard.load, part) for shard, part in zip(self._shards, parts, strict=True))

    async def state(self) -> State:
        kept = await self.keep()
        return await asyncio.to_thread(joined, kept.parts, kept.cut)

    async def keep(self) -> Kept:
        parts: list[State] = await every(shard.call(TensorShard.state, True) for shard in self._shards)
        check_alike(parts)
        return Kept(parts, self._division)

    async def flops(self, batch: Batch) -> float:
        calls = (shard.call(TensorShard.flops, batch) for shard in self._shards)
        return float(sum(await together(calls, self._abort)))


def _check_alike(entered: list[Entered]) -> None:
    if len({one.weights for one in entered if one.weights}) > 1:
        raise ValueError(
            "TensorParallelTrainer: the model has other weights each time that it is built; have it draw them with "
            "torch's random numbers, load them from a file, or pass the module itself"
        )
    if entered[0].draws and len({one.process for one in entered}) < len(entered):
        raise ValueError(
            "TensorParallelTrainer: the model has dropout, and devices of one process share torch's random numbers; "
            "open the devices with isolation='process', as names of devices are"
        )
