"""``Members``: the devices of a trainer, a replica beside each, brought to one state after a loss."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from callboard.actors.errors import AskTimeout
from callboard.actors.props import Props
from callboard.core.errors import ContextLost, DeviceStopped, LibraryError
from callboard.device.client.handle import Device
from callboard.device.client.residents.ref import ResidentRef
from callboard.kernel.collective.library import JOINING, READY
from callboard.kernel.collective.messages import Leave
from callboard.multi_device.worlds.forming import LOOK, end, next_world
from callboard.train.batches import Batch, part, rows_of, shares
from callboard.train.replicas.calls import every, together
from callboard.train.replicas.replica import Replica, Taken, Update
from callboard.train.running.laps import Laps
from callboard.train.states import Kept, State, check_alike, merged

__all__ = ["Members"]

STOPPING = 5.0
"""Seconds that a replica's current call gets when it is stopped."""

CONNECTING = 60.0
"""Seconds in which the replicas must have connected."""

_log = logging.getLogger(__name__)


class Members:
    """The replicas that take part, in the order of their ranks.

    Args:
        props: Makes a replica.
        partial: Each has the optimizer's state of some parameters only.

    Attributes:
        devices: Their devices.
        replicas: The actors, one beside each device.
        begun, loss, micros, laps: See :class:`.Participants`.
    """

    def __init__(self, props: Props[Replica], *, partial: bool = False) -> None:
        self.devices: list[Device] = []
        self.replicas: list[ResidentRef[Replica]] = []
        self.begun = 0
        self.micros: tuple[int, ...] = ()
        self.laps = Laps()
        self._props = props
        self._partial = partial
        self._generations: list[int] = []
        self._number: int | None = None  # of the communicator that they share

    async def change(self, devices: Sequence[Device]) -> None:
        """Let these devices take part, and no others. Those that come have no state until :meth:`agree`."""
        self._abort("the devices change")
        known = dict(zip(self.devices, self.replicas, strict=True))
        for device, replica in known.items():
            if device not in devices:
                await _end(replica)
        self.devices = list(devices)
        self.replicas = [known.get(device) or device.actor_of(self._props) for device in devices]
        self._generations = []

    async def close(self) -> None:
        """Stop the replicas."""
        self._abort("the trainer is closed")
        await asyncio.gather(*map(_end, self.replicas))

    @property
    def agreed(self) -> bool:
        """No device has been lost since all replicas were brought to one state."""
        return [device.generation for device in self.devices] == self._generations

    @property
    def copied(self) -> bool:
        """What is lost with a device is on another one, too."""
        return len(self.devices) > 1 and not self._partial

    def doubt(self) -> None:
        """Something failed: look at every replica again before the next step."""
        self._generations = []

    async def agree(self, kept: Kept | None) -> Update:
        """Wait for lost devices, and bring all replicas to the state of the most advanced one.

        Args:
            kept: The state for the case that no replica has one, or that one has lost what no other has. None: that
                which the model was built with.

        Returns:
            The last update.

        Raises:
            ContextLost: Another device was lost meanwhile: try again.
            DeviceStopped: The last device has stopped for good.
            ValueError, TypeError: They cannot be at one.
        """
        self._abort("a device was lost")
        await self._without_stopped()
        self.laps.lap("ready")
        generations = [device.generation for device in self.devices]
        best = await self._at_one(await self._entered(kept is None), kept)
        self.laps.lap("state")
        await self._connect()
        self.laps.lap("joined")
        self._generations = generations
        return best

    async def _entered(self, is_first: bool) -> list[Update]:
        """The last updates of all, who know their ranks now.

        Args:
            is_first: There is no state yet but that which the model is built with.
        """
        size = len(self.replicas)
        return await every(replica.call(Replica.enter, rank, size) for rank, replica in enumerate(self.replicas))

    async def _at_one(self, done: list[Update], kept: Kept | None) -> Update:
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
            best = await self.replicas[0].call(Replica.begin)
            behind = list(range(1, len(done)))
        if behind:
            donor = next(rank for rank in range(len(done)) if rank not in behind)
            state = await self.replicas[donor].call(Replica.state, False)
            await every(self._give(state, rank) for rank in behind)
        return best

    async def _connect(self) -> None:
        """Have the replicas reach each other, without the application."""
        world, size = next_world(), len(self.replicas)
        self._number = world
        calls = (replica.call(Replica.offer, world, rank, size) for rank, replica in enumerate(self.replicas))
        offers: list[bytes] = await every(calls)
        states: list[str] = await every(replica.call(Replica.join, offers) for replica in self.replicas)
        pause, most = LOOK
        try:
            async with asyncio.timeout(CONNECTING):
                while JOINING in states:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, most)
                    states = await every(replica.call(Replica.look) for replica in self.replicas)
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

    def _parts(self, batch: Batch) -> list[Batch]:
        """What each replica computes of a batch."""
        return [part(batch, share) for share in shares(rows_of(batch), len(self.replicas))]

    async def take(self, number: int, batch: Batch) -> Update:
        """Take a step: each replica computes its part, and makes the same update."""
        before, self.begun = self.begun, max(self.begun, number)
        rows, parts = rows_of(batch), self._parts(batch)
        calls = (
            replica.call(Replica.take, number, rows, own) for replica, own in zip(self.replicas, parts, strict=True)
        )
        try:
            steps: list[Taken] = await together(calls, self._abort)
        except (ContextLost, DeviceStopped):
            self.doubt()
            raise
        except Exception:  # of the model, on one or on all
            self.doubt()
            done: list[Update] = await every(replica.call(Replica.done) for replica in self.replicas)
            if all(update.step == number - 1 for update in done):
                self.begun = before
            raise
        except BaseException:  # a cancelled step may be done on some
            self.doubt()
            raise
        self.micros = tuple(step.micros for step in steps)
        return steps[0].update

    async def load(self, kept: Kept) -> list[Update]:
        """Give every replica this state."""
        (state,) = kept.parts
        return await every(replica.call(Replica.load, state) for replica in self.replicas)

    async def keep(self) -> Kept:
        """The same as :meth:`state`, for :meth:`agree` and :meth:`load`."""
        return Kept([await self.state()])

    async def state(self) -> State:
        """The state of all, in host memory."""
        if not self._partial:
            return await self.replicas[0].call(Replica.state, True)
        calls = (replica.call(Replica.state, True, not rank) for rank, replica in enumerate(self.replicas))
        parts: list[State] = await every(calls)
        check_alike(parts)
        return await asyncio.to_thread(merged, parts)

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
