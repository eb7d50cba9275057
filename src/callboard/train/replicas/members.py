"""``Members``: the devices of a trainer, a replica beside each, brought to one state after a loss."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec

from callboard.actors.props import Props
from callboard.core.errors import ContextLost, DeviceStopped, LibraryError
from callboard.device.client.handle import Device
from callboard.kernel.collective.library import JOINING, READY
from callboard.kernel.collective.messages import Leave
from callboard.multi_device.worlds.forming import LOOK, end, next_world
from callboard.train.batches import Batch, in_micro_batches, part, rows_of, shares
from callboard.train.job import Job
from callboard.train.replicas.calls import every, together
from callboard.train.replicas.measuring import Measures, added
from callboard.train.replicas.participants import Participants
from callboard.train.replicas.rates import Groups, Rates
from callboard.train.replicas.replica import Replica, Taken, Update
from callboard.train.states import Kept, State, check_alike, merged

__all__ = ["Members"]

CONNECTING = 60.0
"""Seconds in which the replicas must have connected."""


class Members(Participants[Replica]):
    """The replicas that take part, in the order of their ranks.

    Args:
        make: What makes a replica for a job.
        job: See :meth:`use`.
        partial: Each has the optimizer's state of some parameters only.
    """

    def __init__(self, make: Callable[[Job], Props[Replica]], job: Job, *, partial: bool = False) -> None:
        super().__init__()
        self._make = make
        self._job = job
        self._partial = partial
        self._adds_up = False  # the divisor, as far as it was seen
        self._number: int | None = None  # of the communicator that they share

    def use(self, job: Job) -> None:
        self._job = job

    async def change(self, devices: Sequence[Device]) -> None:
        self._abort("the devices change")
        known = dict(zip(self.devices, self.actors, strict=True))
        await self._end(replica for device, replica in known.items() if device not in devices)
        self.devices = list(devices)
        self.actors = [known.get(device) or device.actor_of(self._props(device)) for device in devices]
        self._generations = []

    def _props(self, device: Device) -> Props[Replica]:
        return self._make(replace(self._job, born=device.generation))

    async def close(self) -> None:
        self._abort("the trainer is closed")
        await super().close()

    @property
    def copied(self) -> bool:
        return len(self.devices) > 1 and not self._partial

    async def agree(self, kept: Kept | None) -> Update:
        self._abort("a device was lost")
        return await super().agree(kept)

    async def _at_one(self, kept: Kept | None) -> Update:
        world, size = next_world(), len(self.actors)
        self._number = world
        calls = (replica.call(Replica.offer, world, rank, size) for rank, replica in enumerate(self.actors))
        done, offers = await every((self._entered(kept is None), every(calls)))
        joins = (replica.call(Replica.join, offers) for replica in self.actors)
        update: Update
        states, update = await every((every(joins), self._brought(done, kept)))
        self.laps.lap("state")
        await self._connected(states)
        self.laps.lap("joined")
        return update

    async def _entered(self, is_first: bool) -> list[Update]:
        """The last updates of all, who know their ranks now.

        Args:
            is_first: There is no state yet but that which the model is built with.
        """
        size = len(self.actors)
        return await every(replica.call(Replica.enter, rank, size) for rank, replica in enumerate(self.actors))

    async def _brought(self, done: list[Update], kept: Kept | None) -> Update:
        """Bring all to one state, whose update is returned.

        Args:
            done: Their last updates.
            kept: See :meth:`agree`.
        """
        best = max(done, key=lambda update: update.step)
        behind = [rank for rank, update in enumerate(done) if update.step < best.step]
        if kept is not None and (best.step < 0 or (behind and not self.copied)):
            return (await self.load(kept))[0]
        if best.step < 0:
            best = await self.actors[0].call(Replica.begin)
            behind = list(range(1, len(done)))
        if behind:
            donor = next(rank for rank in range(len(done)) if rank not in behind)
            state = await self.actors[donor].call(Replica.state, False)
            await every(self._give(state, best, rank) for rank in behind)
        return best

    async def _connected(self, states: list[str]) -> None:
        """Wait until the replicas reach each other, without the application.

        Args:
            states: What each has said to all offers.
        """
        pause, most = LOOK
        try:
            async with asyncio.timeout(CONNECTING):
                while JOINING in states:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, most)
                    states = await every(replica.call(Replica.look) for replica in self.actors)
        except TimeoutError:
            self._abort("a rank did not connect")
        for rank, state in enumerate(states):
            if state != READY:
                raise LibraryError(f"rank {rank} ({self.devices[rank].name}) cannot join: {state}", "collective")

    def _abort(self, reason: str) -> None:
        """End what the replicas do together."""
        number, self._number = self._number, None
        if number is not None:
            end(self.devices, Leave(world=number, reason=reason))

    async def _give(self, state: State, done: Update, rank: int) -> None:
        arrays = [ref.to(self.devices[rank]) for ref in state.arrays]
        await self.actors[rank].call(Replica.load, msgspec.structs.replace(state, arrays=arrays), done)

    async def _updates(self) -> list[Update]:
        return await every(replica.call(Replica.done) for replica in self.actors)

    def _parts(self, batch: Batch) -> list[Batch]:
        """What each replica computes of a batch."""
        return [part(batch, share) for share in self._shares(rows_of(batch))]

    def _shares(self, rows: int) -> list[slice]:
        """The rows of each replica; those that all have, once."""
        return shares(rows, len(self.actors))

    def _weights(self, batch: Batch) -> Iterator[tuple[float, int]]:
        """Weight and samples of each part of a batch that is computed at once."""
        for share in self._shares(rows_of(batch)):
            for some, count in in_micro_batches(part(batch, share), self._job.micro_batch_size):
                yield self._job.weight_of(some, count), count

    async def take(self, number: int, batch: Batch, rates: Rates) -> Update:
        """Take a step: each replica computes its part, and makes the same update."""
        total, parts = self._job.weight_of(batch, rows_of(batch)), self._parts(batch)
        if self._job.divisor is not None and not self._adds_up:
            self._adds_up = self._job.adds_up(total, rows_of(batch), list(self._weights(batch)))
        before, self.begun = self.begun, max(self.begun, number)
        pairs = zip(self.actors, parts, strict=True)
        calls = (replica.call(Replica.take, number, total, own, rates) for replica, own in pairs)
        try:
            steps: list[Taken] = await together(calls, self._abort)
        except (ContextLost, DeviceStopped):
            self.doubt()
            raise
        except Exception:  # of the model, on one or on all
            self.doubt()
            if all(update.step == number - 1 for update in await self._updates()):
                self.begun = before
            raise
        except BaseException:  # a cancelled step may be done on some
            self.doubt()
            raise
        self.micros = tuple(step.micros for step in steps)
        return steps[0].update

    async def evaluate(self, step: int, batch: Batch, metrics: bytes) -> Measures:
        parts = zip(self.actors, self._parts(batch), strict=True)
        try:
            return self._sum(
                await together((one.call(Replica.evaluate, step, own, metrics) for one, own in parts), self._abort)
            )
        except BaseException:  # what they do together has ended
            self.doubt()
            raise

    def _sum(self, parts: list[Measures]) -> Measures:
        return added(parts)

    async def load(self, kept: Kept) -> list[Update]:
        (state,) = kept.parts
        return await every(replica.call(Replica.load, state) for replica in self.actors)

    async def keep(self) -> Kept:
        return Kept([await self.state()])

    async def state(self) -> State:
        if not self._partial:
            return await self.actors[0].call(Replica.state, True)
        calls = (replica.call(Replica.state, True, not rank) for rank, replica in enumerate(self.actors))
        parts: list[State] = await every(calls)
        check_alike(parts)
        return await asyncio.to_thread(merged, parts)

    async def groups(self) -> list[Groups]:
        return [await self.actors[0].call(Replica.groups)]

    async def flops(self, batch: Batch) -> float:
        few = part(batch, shares(rows_of(batch), len(self.actors))[0])
        return await self.actors[0].call(Replica.flops, few)
