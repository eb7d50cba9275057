"""``Members``: the devices of a trainer, a replica beside each, and their world; brought to one state after a loss."""

import asyncio
import contextlib
import logging
import os
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
from callboard.train.replicas.replica import Replica, Update
from callboard.train.states import State

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
    """

    def __init__(self, props: Props[Replica]) -> None:
        self.devices: list[Device] = []
        self.replicas: list[ResidentRef[Replica]] = []
        self.world: World | None = None
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

    def doubt(self) -> None:
        """Something failed: look at every replica again before the next step."""
        self._generations = []

    async def agree(self, kept: State | None) -> Update:
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
        generations = [device.generation for device in self.devices]
        done: list[Update] = await every(replica.call(Replica.done) for replica in self.replicas)
        best = max(done, key=lambda update: update.step)
        if best.step < 0 and kept is not None:
            done = await every(replica.call(Replica.load, kept) for replica in self.replicas)
            best = done[0]
        elif best.step < 0:
            await self.replicas[0].call(Replica.begin)
            best = done[0] = await self.replicas[0].call(Replica.done)
        donor = next(rank for rank, update in enumerate(done) if update.step == best.step)
        behind = [rank for rank, update in enumerate(done) if update.step < best.step]
        if behind:
            state = await self.replicas[donor].call(Replica.state, False)
            await every(self._give(state, rank) for rank in behind)
        if len(self.devices) > 1:
            await self._join_world()
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

    @staticmethod
    def threads(devices: Sequence[Device]) -> int | None:
        """Threads that torch gets in each host, so that the hosts of CPU devices share the cores."""
        hosts = [device for device in devices if device.backend == "cpu" and device.config.isolation == "process"]
        return max(1, (os.cpu_count() or 1) // len(hosts)) if hosts else None


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
