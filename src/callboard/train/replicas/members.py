"""``Members``: the devices of a trainer, a replica beside each, and their world; brought to one state after a loss."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Coroutine, Sequence
from typing import Any

from callboard.actors.errors import AskTimeout
from callboard.actors.props import Props
from callboard.core.errors import ContextLost, DeviceStopped
from callboard.device.client.handle import Device
from callboard.device.client.residents.ref import ResidentRef
from callboard.multi_device.worlds.errors import WorldStopped
from callboard.multi_device.worlds.opening import world
from callboard.multi_device.worlds.world import World
from callboard.train.batches import Batch, part, rows_of, shares
from callboard.train.replicas.replica import Gradients, Replica, Update
from callboard.train.running.laps import Laps
from callboard.train.states import Kept, State

__all__ = ["Members", "every"]

STOPPING = 5.0
"""Seconds that a replica's current call gets when it is stopped."""

_log = logging.getLogger(__name__)


class Members:
    """The replicas that take part, in the order of their ranks.

    Attributes:
        devices: Their devices.
        replicas: The actors, one beside each device.
        world: None if there is one device only.
        begun, loss, micros, laps: See :class:`.Participants`.
    """

    def __init__(self, props: Props[Replica]) -> None:
        self.devices: list[Device] = []
        self.replicas: list[ResidentRef[Replica]] = []
        self.world: World | None = None
        self.begun = 0
        self.loss = math.nan
        self.micros: tuple[int, ...] = ()
        self.laps = Laps()
        self._props = props
        self._generations: list[int] = []

    async def change(self, devices: Sequence[Device]) -> None:
        """Let these devices take part, and no others. Those that come have no state until :meth:`agree`."""
        known = dict(zip(self.devices, self.replicas, strict=True))
        for device, replica in known.items():
            if device not in devices:
                await _end(replica)
        self.devices = list(devices)
        self.replicas = [known.get(device) or device.actor_of(self._props) for device in devices]
        self._generations = []
        await self._leave_world()

    async def close(self) -> None:
        """Stop the replicas and leave the world."""
        await asyncio.gather(*map(_end, self.replicas))
        await self._leave_world()

    async def _leave_world(self) -> None:
        if self.world is not None:
            await self.world.close()
            self.world = None

    @property
    def agreed(self) -> bool:
        """No device has been lost since all replicas were brought to one state."""
        return [device.generation for device in self.devices] == self._generations

    @property
    def copied(self) -> bool:
        """What is lost with a device is on another one, too."""
        return len(self.devices) > 1

    def doubt(self) -> None:
        """Something failed: look at every replica again before the next step."""
        self._generations = []

    async def agree(self, kept: Kept | None) -> Update:
        """Wait for lost devices, and bring all replicas to the state of the most advanced one.

        Args:
            kept: The state for the case that no replica has one. None: that which the first one was built with.

        Returns:
            The last update of the most advanced replica.

        Raises:
            ContextLost: Another device was lost meanwhile: try again.
            DeviceStopped: The last device has stopped for good.
        """
        await self._without_stopped()
        self.laps.lap("ready")
        generations = [device.generation for device in self.devices]
        done: list[Update] = await every(replica.call(Replica.done) for replica in self.replicas)
        best = max(done, key=lambda update: update.step)
        if best.step < 0 and kept is not None:
            done = await self.load(kept)
            best = done[0]
        elif best.step < 0:
            await self.replicas[0].call(Replica.begin)
            best = done[0] = await self.replicas[0].call(Replica.done)
        donor = next(rank for rank, update in enumerate(done) if update.step == best.step)
        behind = [rank for rank, update in enumerate(done) if update.step < best.step]
        if behind:
            state = await self.replicas[donor].call(Replica.state, False)
            await every(self._give(state, rank) for rank in behind)
        self.laps.lap("state")
        if len(self.devices) > 1:
            await self._join_world()
        self.laps.lap("joined")
        self._generations = generations
        return best

    async def _join_world(self) -> None:
        if self.world is not None:
            try:
                await self.world.ready()
            except WorldStopped:
                await self._leave_world()
        if self.world is None:
            self.world = await world(self.devices)

    async def _give(self, state: State, rank: int) -> None:
        arrays = [ref.to(self.devices[rank]) for ref in state.arrays]
        await self.replicas[rank].call(
            Replica.load, State(state.step, state.updates, state.structure, arrays, state.dtypes)
        )

    async def _without_stopped(self) -> None:
        """Wait until all devices and replicas are ready; go on without devices that have stopped for good."""
        ready = await asyncio.gather(*(_ready(*one) for one in zip(self.devices, self.replicas, strict=True)))
        stopped = [device for device, error in zip(self.devices, ready, strict=True) if error is not None]
        if stopped and len(stopped) < len(self.devices):
            for device in stopped:
                _log.warning("training goes on without %s, which has stopped", device.name)
            await self.change([device for device in self.devices if device not in stopped])
        elif stopped:
            raise next(error for error in ready if error is not None)

    def add_up(self, per_rank: Sequence[list[Any]], averages: Sequence[list[Any]]) -> list[Any]:
        """Have every replica's arrays become the sum of all, and its averages those of the first.

        Returns:
            The collectives' replies.
        """
        if self.world is None:
            return []
        with self.world.group() as group:
            sums = [group.all_reduce(xs, out=xs) for xs in zip(*per_rank, strict=True)]
            return [*sums, *(group.broadcast(xs[0], out=xs) for xs in zip(*averages, strict=True))]

    async def take(self, number: int, batch: Batch) -> Update:
        """Take a step: each replica computes the gradients of its part, and makes the update with the sum of all."""
        rows = rows_of(batch)
        parts = [part(batch, share) for share in shares(rows, len(self.replicas))]
        try:
            gradients: list[Gradients] = await every(
                replica.call(Replica.gradients, number, rank, rows, own)
                for rank, (replica, own) in enumerate(zip(self.replicas, parts, strict=True))
            )
            self.loss = sum(one.loss for one in gradients) / rows
            self.micros = tuple(one.micros for one in gradients)
            buckets, averages = [one.buckets for one in gradients], [one.averages for one in gradients]
            await every(self.add_up(buckets, averages))  # an update behind a sum that fails may run all the same
            self.begun = max(self.begun, number)
            updates: list[Update] = await every(
                replica.call(Replica.update, number, own, means)
                for replica, own, means in zip(self.replicas, buckets, averages, strict=True)
            )
        except BaseException:  # also a cancelled step leaves replicas apart
            self.doubt()
            raise
        return updates[0]

    async def load(self, kept: Kept) -> list[Update]:
        """Give every replica this state."""
        (state,) = kept.parts
        return await every(replica.call(Replica.load, state) for replica in self.replicas)

    async def keep(self) -> Kept:
        """The same as :meth:`state`, for :meth:`agree` and :meth:`load`."""
        return Kept([await self.state()])

    async def state(self) -> State:
        """The state of all, in host memory."""
        return await self.replicas[0].call(Replica.state, True)

    async def flops(self, batch: Batch) -> float:
        """Operations that a sample of this batch costs, forward and backward."""
        few = part(batch, shares(rows_of(batch), len(self.replicas))[0])
        return await self.replicas[0].call(Replica.flops, few)


async def _ready(device: Device, replica: ResidentRef[Replica]) -> DeviceStopped | None:
    try:
        await device.ready()
        await replica.ready()
    except DeviceStopped as error:
        return error
    return None


async def _end(replica: ResidentRef[Replica]) -> None:
    with contextlib.suppress(AskTimeout, ContextLost, DeviceStopped):  # it goes with its device
        await replica.stop_and_wait(timeout=STOPPING)


async def every(calls: Any) -> list[Any]:
    """The results of all, when all have ended.

    Raises:
        ContextLost, DeviceStopped: One failed with it, whatever the others did.
        Exception: The first one that failed.
    """
    results = await asyncio.gather(*(_awaited(call) for call in calls), return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in errors:
        if isinstance(error, ContextLost | DeviceStopped):
            raise error
    if errors:
        raise errors[0]
    return results


async def _awaited(call: Coroutine[Any, Any, Any] | Any) -> Any:
    return await call
