"""``Shards``: the devices of a trainer, a shard beside each, that take steps together or not at all."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from callboard.actors.props import Props
from callboard.core.errors import ContextLost, DeviceStopped, LibraryError, WorldLost
from callboard.device.client.handle import Device
from callboard.device.client.residents.ref import ResidentRef
from callboard.kernel.collective.library import JOINING, READY
from callboard.kernel.collective.messages import Leave
from callboard.multi_device.worlds.forming import LOOK, end, next_world
from callboard.train.batches import Batch, rows_of
from callboard.train.replicas.members import Members, every
from callboard.train.replicas.replica import Replica, Update
from callboard.train.states import Kept, State, check_alike
from callboard.train.tensor.cuts import Division, joined, parted
from callboard.train.tensor.shard import Entered, ShardStep, TensorShard

__all__ = ["Shards"]


class Shards(Members):
    """The shards, in the order of their numbers.

    No shard has what another one has: when one is lost, all go back to the state that the application keeps.
    """

    def __init__(self, props: Props[TensorShard]) -> None:
        super().__init__(cast(Props[Replica], props))
        self._number: int | None = None
        self._division: Division | None = None

    @property
    def _shards(self) -> list[ResidentRef[TensorShard]]:
        return cast(list[ResidentRef[TensorShard]], self.replicas)

    @property
    def copied(self) -> bool:
        return False

    async def close(self) -> None:
        self._abort("the trainer is closed")
        await super().close()

    async def change(self, devices: Sequence[Device]) -> None:
        self._abort("the devices change")
        await super().change(devices)

    async def agree(self, kept: Kept | None) -> Update:
        """Wait for lost devices, and bring all shards to one state.

        Args:
            kept: The state for the case that a shard has another one than the others. None: that which the model was
                built with.

        Returns:
            The last update.

        Raises:
            ContextLost: Another device was lost meanwhile: try again.
            DeviceStopped: The last device has stopped for good.
            ValueError: Shards cannot be equal: the model is not built alike, or they share random numbers.
        """
        self._abort("a shard was lost")
        await self._without_stopped()
        self.laps.lap("ready")
        generations = [device.generation for device in self.devices]
        size, first = len(self.devices), kept is None
        entered: list[Entered] = await every(
            shard.call(TensorShard.enter, rank, size, first) for rank, shard in enumerate(self._shards)
        )
        _check_alike(entered)
        self._division = entered[0].division
        done: list[Update] = await every(shard.call(TensorShard.done) for shard in self._shards)
        if len({update.step for update in done}) > 1 or done[0].step < 0:
            if kept is None:
                await every(shard.call(TensorShard.begin) for shard in self._shards)
            else:
                await self.load(kept)
            done = await every(shard.call(TensorShard.done) for shard in self._shards)
        self.laps.lap("state")
        await self._connect()
        self.laps.lap("joined")
        self._generations = generations
        return done[0]

    async def _connect(self) -> None:
        """Have the shards reach each other, without the application."""
        world = self._number = next_world()
        offers: list[bytes] = await every(shard.call(TensorShard.offer, world) for shard in self._shards)
        states: list[str] = await every(shard.call(TensorShard.join, offers) for shard in self._shards)
        pause, most = LOOK
        while JOINING in states:
            await asyncio.sleep(pause)
            pause = min(2 * pause, most)
            states = await every(shard.call(TensorShard.look) for shard in self._shards)
        for rank, state in enumerate(states):
            if state != READY:
                raise LibraryError(f"shard {rank} ({self.devices[rank].name}) cannot join: {state}", "collective")

    async def take(self, number: int, batch: Batch) -> Update:
        """Take a step: each shard computes its part of each layer for the whole batch."""
        before, self.begun = self.begun, max(self.begun, number)
        try:
            steps: list[ShardStep] = await self._together(TensorShard.take, number, batch)
        except (ContextLost, DeviceStopped):
            self.doubt()
            raise
        except Exception:  # of the model, on one shard or on all
            self.doubt()
            done: list[Update] = await every(shard.call(TensorShard.done) for shard in self._shards)
            if all(update.step == number - 1 for update in done):
                self.begun = before
            raise
        except BaseException:  # a cancelled step may be done on some
            self.doubt()
            raise
        self.loss = steps[0].loss / rows_of(batch)
        self.micros = tuple(step.micros for step in steps)
        return steps[0].update

    async def load(self, kept: Kept) -> list[Update]:
        """Give every shard its part of this state.

        Raises:
            RuntimeError: It is of another model.
        """
        assert self._division is not None
        parts = kept.parts
        if kept.cut != self._division or len(parts) != len(self.devices):
            whole = parts[0] if kept.cut is None else await asyncio.to_thread(joined, parts, kept.cut)
            parts = await asyncio.to_thread(parted, whole, self._division, len(self.devices))
        return await every(shard.call(TensorShard.load, part) for shard, part in zip(self._shards, parts, strict=True))

    async def state(self) -> State:
        """The state of the whole model, in host memory, as one device would have it."""
        kept = await self.keep()
        return await asyncio.to_thread(joined, kept.parts, kept.cut)

    async def keep(self) -> Kept:
        """The states of the shards, in host memory."""
        parts: list[State] = await every(shard.call(TensorShard.state, True) for shard in self._shards)
        check_alike(parts)
        return Kept(parts, self._division)

    async def flops(self, batch: Batch) -> float:
        return float(sum(await self._together(TensorShard.flops, batch)))

    async def _together(self, method: Any, *arguments: Any) -> list[Any]:
        """Call all shards; when one fails, the others do not wait for it.

        Raises:
            ContextLost, DeviceStopped: A device was lost.
            Exception: What one raised, before what that meant for the others.
        """
        calls = [asyncio.ensure_future(_awaited(shard.call(method, *arguments))) for shard in self._shards]
        try:
            _, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            if waiting:
                self._abort("another shard has failed")
                await asyncio.wait(waiting)
        except BaseException:  # cancelled: no shard may wait for one whose call was withdrawn
            self._abort("the step was cancelled")
            for call in calls:
                call.cancel()
            raise
        errors = [error for error in (call.exception() for call in calls) if error is not None]
        for error in sorted(errors, key=_rank_of):
            raise error
        return [call.result() for call in calls]

    def _abort(self, reason: str) -> None:
        """End what the shards do together."""
        number, self._number = self._number, None
        if number is not None:
            end(self.devices, Leave(world=number, reason=reason))


async def _awaited(call: Any) -> Any:
    return await call


def _rank_of(error: BaseException) -> int:
    """Causes before consequences: a lost device, a failure of the model, a world that has ended."""
    if isinstance(error, WorldLost):
        return 2
    return 0 if isinstance(error, ContextLost | DeviceStopped) else 1


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
