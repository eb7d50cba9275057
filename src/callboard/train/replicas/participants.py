"""``Participants``: the devices of a trainer with an actor beside each, as far as its steps know them."""

import abc
import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from callboard.actors.errors import AccelError, AskTimeout
from callboard.core.errors import ContextLost, DeviceStopped
from callboard.device.client.handle import Device
from callboard.device.client.residents.ref import ResidentRef
from callboard.train.batches import Batch
from callboard.train.job import Job
from callboard.train.replicas.measuring import Measures
from callboard.train.replicas.rates import Groups, Rates
from callboard.train.replicas.replica import Update
from callboard.train.running.laps import Laps
from callboard.train.states import Kept, State

__all__ = ["Participants"]

STOPPING = 5.0
"""Seconds that an actor's current call gets when it is stopped."""

_log = logging.getLogger(__name__)

A = TypeVar("A")


class Participants(abc.ABC, Generic[A]):
    """Base of those who take the steps of a trainer.

    Attributes:
        devices: The devices, in the order of their actors.
        actors: The actors, one beside each device.
        begun: The number of the step whose updates were sent last; some actors may have taken it.
        micros: Microseconds that each actor took for its gradients.
        laps: Measures their recoveries.
    """

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self.actors: list[ResidentRef[A]] = []
        self.begun = 0
        self.micros: tuple[int, ...] = ()
        self.laps = Laps()
        self._generations: list[int] = []

    @property
    def generations(self) -> list[int]:
        """Of the devices, now."""
        return [device.generation for device in self.devices]

    @property
    def agreed(self) -> bool:
        """No device has been lost since all actors were brought to one state."""
        return self.generations == self._generations

    async def lost_since(self, generations: list[int]) -> bool:
        """A device has been lost, or has stopped, since the devices were of these generations.

        An actor cannot answer beside a device whose loss is not known yet, so asking all of them makes it known.
        """
        try:
            await self._updates()
        except (ContextLost, DeviceStopped):
            return True
        except AccelError:  # they were stopped
            pass
        return generations != self.generations

    @property
    def copied(self) -> bool:
        """What is lost with a device is on another one, too."""
        return False

    def doubt(self) -> None:
        """Something failed: look at every actor again before the next step."""
        self._generations = []

    @abc.abstractmethod
    def use(self, job: Job) -> None:
        """Actors that are made from now on train this job."""

    @abc.abstractmethod
    async def change(self, devices: Sequence[Device]) -> None:
        """Let these devices take part, and no others. Those that come have no state until :meth:`agree`."""

    async def close(self) -> None:
        """Stop the actors."""
        await self._end(self.actors)

    async def agree(self, kept: Kept | None) -> Update:
        """Wait for lost devices, and bring all actors to one state.

        Args:
            kept: The state for the case that no actor has one, or that one has lost what no other has. None: that
                which the model was built with.

        Returns:
            The last update.

        Raises:
            ContextLost: Another device was lost meanwhile: try again.
            DeviceStopped: The last device has stopped for good.
            ValueError, TypeError: They cannot be at one.
        """
        await self._without_stopped()
        self.laps.lap("ready")
        generations = self.generations
        update = await self._at_one(kept)
        if generations != self.generations:  # calls that came later went to an instance without a state
            raise ContextLost("another device was lost while all were brought to one state")
        self._generations = generations
        return update

    @abc.abstractmethod
    async def _at_one(self, kept: Kept | None) -> Update:
        """Bring all to one state, now that they are ready; see :meth:`agree`."""

    @abc.abstractmethod
    async def _updates(self) -> list[Update]:
        """The last update of each actor.

        Raises:
            ContextLost, DeviceStopped: A device was lost.
        """

    @abc.abstractmethod
    async def take(self, number: int, batch: Batch, rates: Rates) -> Update:
        """Take a step of these sizes.

        Raises:
            ContextLost, DeviceStopped: A device was lost.
            Exception: What the model, the loss or the optimizer raised.
        """

    @abc.abstractmethod
    async def evaluate(self, step: int, batch: Batch, metrics: bytes) -> Measures:
        """Loss and metrics of a batch after that step; changes nothing.

        Args:
            step: The last step.
            batch: The samples.
            metrics: See :func:`.measured`.

        Raises:
            ContextLost, DeviceStopped: A device was lost.
            Exception: What the model, the loss or a metric raised.
        """

    @abc.abstractmethod
    async def load(self, kept: Kept) -> object:
        """Give all this state.

        Raises:
            RuntimeError: It is of another model.
        """

    @abc.abstractmethod
    async def keep(self) -> Kept:
        """The state of all, in host memory, for :meth:`agree` and :meth:`load`."""

    @abc.abstractmethod
    async def state(self) -> State:
        """The state of the whole model, in host memory, as one device would have it."""

    @abc.abstractmethod
    async def groups(self) -> list[Groups]:
        """The optimizers as they were before the first update; for a model in stages, that of each stage.

        Raises:
            ContextLost, DeviceStopped: A device was lost.
        """

    @abc.abstractmethod
    async def flops(self, batch: Batch) -> float:
        """Operations that a sample of this batch costs, forward and backward; changes nothing."""

    async def _without_stopped(self) -> None:
        """Wait until all devices and actors are ready; go on without devices that have stopped for good."""
        ready = await asyncio.gather(*(_ready(*one) for one in zip(self.devices, self.actors, strict=True)))
        stopped = [device for device, error in zip(self.devices, ready, strict=True) if error is not None]
        if len(stopped) == len(self.devices):
            raise next(error for error in ready if error is not None)
        if stopped:
            for device in stopped:
                _log.warning("training goes on without %s, which has stopped", device.name)
            await self.change([device for device in self.devices if device not in stopped])
            await self._without_stopped()

    async def _end(self, actors: Iterable[ResidentRef[A]]) -> None:
        await asyncio.gather(*map(_stopped, actors))


async def _ready(device: Device, actor: ResidentRef[Any]) -> DeviceStopped | None:
    try:
        await device.ready()
        await actor.ready()
    except DeviceStopped as error:
        return error
    return None


async def _stopped(actor: ResidentRef[Any]) -> None:
    with contextlib.suppress(AskTimeout, ContextLost, DeviceStopped):  # it goes with its device
        await actor.stop_and_wait(timeout=STOPPING)
