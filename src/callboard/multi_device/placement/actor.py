"""``PlacementActor``: places work on open devices; a thin layer over :class:`.PlacementBook`."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from callboard.actors.clock import Clock, LoopClock
from callboard.core.errors import AccelError
from callboard.device.client.handle import Device
from callboard.device.client.line.status import MemoryFigures
from callboard.device.client.line.unanswered import Unanswered
from callboard.device.supervision.actor import DeviceActor
from callboard.device.supervision.lifecycle import State
from callboard.device.supervision.watch import Lost, Recovered
from callboard.multi_device.members import check_members
from callboard.multi_device.placement.book import Explanation, PlacementBook, Reservation
from callboard.multi_device.placement.hints import Candidate, PlacementHints
from callboard.multi_device.placement.policies import Chooser, PlacementPolicy, chooser_of
from callboard.multi_device.topology import P2pTopology

__all__ = ["DeviceChoice", "PlacementActor"]

ANY = PlacementHints()
LEASE = 10.0
"""Default seconds that a reservation lasts."""


class DeviceChoice:
    """A chosen device, and the resources reserved there until :meth:`release`, or until the lease ends.

    ``with placement.pick(memory_bytes=1 << 30) as choice:`` releases it at the end of the block.

    Attributes:
        device: The device.
        device_id: Id of the device: its UUID.
        load: Ops in flight there and choices not released, this one included, when it was chosen.
    """

    def __init__(self, actor: "PlacementActor", device: Device, reservation: Reservation) -> None:
        self.device = device
        self.device_id = device.uuid
        self.load = reservation.candidate.load
        self._actor = actor
        self._reservation = reservation

    @property
    def active(self) -> bool:
        """True if anything is reserved for it."""
        return self._reservation.active

    def release(self) -> None:
        """Release the reservation; does nothing the second time."""
        self._actor._release(self._reservation)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<DeviceChoice {self.device.name}, load {self.load}>"


class PlacementActor:
    """Chooses, of several open devices, the one for each piece of work. Belongs to one event loop.

    ::

        async with cb.PlacementActor([gpu0, gpu1], policy="least_loaded") as placement:
            with placement.pick(memory_bytes=2 << 30) as choice:
                model = choice.device.actor_of(cb.Props(Model))

    A choice counts as load from the moment it is made, so a burst spreads over the devices before any of its work has
    begun. Devices whose context is being rebuilt are skipped. Each device reports changes in the use of its memory; the
    use of other processes is queried after choices that reserve memory are made or end. Nothing is polled.

    Args:
        devices: Open devices of this loop.
        policy: A :class:`.PlacementPolicy`, or a function of the hints and the :class:`.Candidate` objects that can
            take the work, which returns one of them.
        links: Direct peer access between devices: a :class:`.P2pTopology`, or for each UUID the UUIDs of its peers.
            None: no peer access is assumed.
        clock: Source of the time; for tests.

    Raises:
        ValueError: No such policy, or a device twice.
    """

    def __init__(
        self,
        devices: Iterable[Device],
        *,
        policy: PlacementPolicy | str | Chooser = PlacementPolicy.LEAST_LOADED,
        links: P2pTopology | Mapping[str, Iterable[str]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._book = PlacementBook(chooser_of(policy))
        linked = links.neighbours if isinstance(links, P2pTopology) else links or {}
        self._book.links = {device: frozenset(others) for device, others in linked.items()}
        self._devices: dict[str, Device] = {}
        self._seen: list[tuple[Candidate, Unanswered, DeviceActor]] = []
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._given = list(devices)
        self._clock = clock or LoopClock()

    async def __aenter__(self) -> Self:
        try:
            for device in self._given:
                await self.add(device)
        except BaseException:  # a cancellation, too
            await self.stop()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    # -- devices -------------------------------------------------------------------------------------------------------

    @property
    def devices(self) -> list[Device]:
        """The devices, in the order in which they were added."""
        return list(self._devices.values())

    async def add(self, device: Device) -> None:
        """Place work on this device, too, once it has reported its memory.

        Raises:
            TypeError: Not a device.
            ValueError: It was added already, or belongs to another loop.
            DeviceStopped, BackendUnavailable: It is of no use.
            AskTimeout: It does not answer.
        """
        check_members("placement", [device])
        if device.uuid in self._devices:
            raise ValueError(f"device {device.name} ({device.uuid}) is placed on already")
        await device.ready()
        candidate = Candidate(device.uuid, device.backend)
        await _refresh(candidate, device)
        self._book.add(candidate)
        self._seen.append((candidate, device._port.unanswered, device._actor))
        self._devices[device.uuid] = device
        self._changed[device.uuid] = asyncio.Event()
        self._watching[device.uuid] = asyncio.create_task(self._watch(candidate, device), name=f"placing {device.name}")

    async def remove(self, device: Device) -> None:
        """Stop placing work on this device.

        Existing reservations stay with their holders. Does nothing if the device was not added.
        """
        self._book.remove(device.uuid)
        self._seen = [seen for seen in self._seen if seen[0].id != device.uuid]
        self._devices.pop(device.uuid, None)
        task = self._watching.pop(device.uuid, None)
        if task is not None:
            await _end([task])

    async def stop(self) -> None:
        """Place no more; the devices stay open."""
        for uuid in list(self._devices):
            self._book.remove(uuid)
        self._seen.clear()
        self._devices.clear()
        tasks = list(self._watching.values())
        self._watching.clear()
        await _end(tasks)

    # -- choices -------------------------------------------------------------------------------------------------------

    def pick(self, hints: PlacementHints = ANY, *, lease: float | None = LEASE) -> DeviceChoice:
        """Choose a device.

        Args:
            hints: Requirements of the work.
            lease: Seconds until the reservation ends by itself: long enough for the work to have its memory. None: it
                ends with :meth:`DeviceChoice.release`.

        Raises:
            NoEligibleDevice: No device can take it; the text names the reason for each of them.
            ValueError: ``lease`` is below 0, or a policy of the caller's returned none of the candidates.
        """
        _check(hints)
        self._look()
        return self._choice(self._book.pick(hints, self._clock.time(), lease))

    def gang(
        self, needs: Sequence[PlacementHints], *, lease: float | None = LEASE, linked: bool = False
    ) -> list[DeviceChoice]:
        """Choose as many devices as there are needs, each only once: all, or none. The best linked ones are preferred.

        Args:
            needs: Requirements of each piece of work.
            lease: See :meth:`pick`.
            linked: Accept only devices that are all linked to each other.

        Raises:
            NoEligibleDevice: There are not enough; nothing is reserved.
        """
        for hints in needs:
            _check(hints)
        self._look()
        return [self._choice(r) for r in self._book.gang(needs, self._clock.time(), lease, linked)]

    def explain(self, hints: PlacementHints = ANY) -> Explanation:
        """The device :meth:`pick` would choose now, and why it would not choose the others."""
        _check(hints)
        self._look()
        return self._book.explain(hints, self._clock.time())

    def candidates(self) -> list[Candidate]:
        """The devices in the policy's current view."""
        self._look()
        self._book.expire(self._clock.time())
        return list(self._book.candidates.values())

    # -- what the devices say ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        ready = State.READY
        for candidate, unanswered, actor in self._seen:  # devices may be many: as few calls as can be
            candidate.in_flight = len(unanswered.entries)
            state = actor.state
            candidate.ready = state is ready
            if state is not ready:
                candidate.stopped = state is State.STOPPED

    def _choice(self, reservation: Reservation) -> DeviceChoice:
        if reservation.hints.memory_bytes:
            self._changed[reservation.candidate.id].set()
        device = self._devices[reservation.candidate.id]
        if device._port.recorded is not None:
            device._port.recorded.log.chosen()
        return DeviceChoice(self, device, reservation)

    def _release(self, reservation: Reservation) -> None:
        self._book.release(reservation)
        changed = self._changed.get(reservation.candidate.id)
        if changed is not None and reservation.hints.memory_bytes:
            changed.set()

    async def _watch(self, candidate: Candidate, device: Device) -> None:
        changed = self._changed[candidate.id]

        def told(figures: MemoryFigures) -> None:
            candidate.free_bytes = figures.free_bytes + figures.cached_bytes
            candidate.total_bytes = figures.total_bytes

        watched = 0
        remove: Callable[[], Awaitable[None]] | None = None
        try:
            async with asyncio.TaskGroup() as group:
                events = group.create_task(_set_at_recovery(device, changed))
                while not events.done():
                    with contextlib.suppress(AccelError):  # it is being rebuilt, or stops: its recovery asks again
                        if device.generation != watched:
                            generation = device.generation
                            remove = await device.watch_memory(told)
                            watched = generation
                        else:
                            await _refresh(candidate, device)
                    await changed.wait()
                    changed.clear()
        finally:
            if remove is not None:
                with contextlib.suppress(AccelError):
                    await remove()


async def _set_at_recovery(device: Device, changed: asyncio.Event) -> None:
    async for event in device.events():
        if isinstance(event, Lost | Recovered):
            changed.set()
    changed.set()


async def _refresh(candidate: Candidate, device: Device) -> None:
    stats = await device.stats()
    candidate.compute_cap = stats.compute_capability
    candidate.free_bytes = stats.free_bytes + stats.cached_bytes
    candidate.total_bytes = stats.total_bytes


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _check(hints: Any) -> None:
    if not isinstance(hints, PlacementHints):
        raise TypeError(
            f"the hints are {hints!r:.200}; pass a cb.PlacementHints, such as PlacementHints(backend='cuda')"
        )
