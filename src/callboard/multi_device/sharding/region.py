"""``PlacementShardingAdapter``: entities spread over devices, each a resident actor on one of them."""

import asyncio
import contextlib
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Self, TypeVar

from callboard.actors import ActorStopped, MailboxFull, Props
from callboard.actors.clock import Cancellable, Clock, LoopClock
from callboard.actors.errors import returned
from callboard.actors.handles import Handle
from callboard.device.client.handle import Device
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.supervision.generations import next_generation
from callboard.device.supervision.watch import Stopped
from callboard.multi_device.members import check_members
from callboard.multi_device.sharding.entity import Entity, EntityRef, Waiting
from callboard.multi_device.sharding.errors import RegionStopped
from callboard.multi_device.sharding.shared.member import Keeper
from callboard.multi_device.sharding.shared.sharing import Sharing
from callboard.multi_device.sharding.table import Move, ShardTable, check_weights, shard_of

__all__ = ["PlacementShardingAdapter"]

A = TypeVar("A", bound=ResidentActor)

_log = logging.getLogger(__name__)

HANDOFFS = 16
"""Shards that are handed over at the same time, so that a change does not stop all entities at once."""
REMEMBERED = 1 << 16
"""Entities whose shard is cached."""


class PlacementShardingAdapter(Handle, Generic[A]):
    """A region of entities: an actor for each id, on the device that owns the id's shard, started by its first call.

    ::

        async with cb.PlacementShardingAdapter("carts", [gpu0, gpu1], lambda id: cb.Props(Cart, id)) as carts:
            await carts.entity("17").call(Cart.add, "book")

    When a device is added, leaves or gives up, shards are handed over (:class:`.ShardTable`): calls that an entity has
    accepted are finished on the old device; later ones wait and are executed on the new one, in order. An actor's state
    in memory is not moved; an entity that must keep it loads and stores it itself (``setup``, its methods). After a
    lost context the device creates its entities' actors again, as for any resident actor.

    Belongs to one event loop. An entity has one actor at a time: late answers of a previous one are dropped. But a
    previous actor that hangs, or whose machine is cut off, may still write to an external store. For this case an actor
    has a *fence*, a number greater than that of every earlier actor of the entity: ``max(fence, ctx.generation)``, the
    fence that its Props were made with, and the generation of its context. A store that refuses smaller numbers than it
    has seen rejects the late writer.

    Args:
        region_id: Name of the region; the actors' names begin with it.
        devices: Open devices of this loop.
        entity: Returns the :class:`~callboard.Props` of an entity's actor, by its id; or by id and fence, if it takes
            two arguments.
        shards: Into how many groups ids are hashed; at least ten per device, and the same for as long as anything is
            stored by shard.
        weights: Weights by UUID; a device owns shards in proportion to its weight, 1 by default.
        passivate_after: Seconds without a call after which an entity's actor is stopped; None: never.
        max_entities: Actors at most; beyond that the least recently used idle one is stopped.
        max_waiting: Calls of one entity that may wait while its shard is handed over.
        handoff_timeout: Seconds that calls in flight get to end before a handover stops their actor; they then fail
            with ``ActorStopped``.
        shared: A :class:`cb.Cluster <callboard.Cluster>` or :class:`cb.Node <callboard.Node>` that holds the table of
            this region for all applications that name it: they reach the same entity by one id, on any of their devices
            (:doc:`/guides/many-devices`). None: the entities belong to this application.
        clock: Source of the time; for tests.

    Raises:
        BackendUnavailable: On entering: the holder of a shared table cannot be reached.
        ValueError: A ``region_id`` with ``/``, a number that is too small, or a weight that is not positive; on
            entering, two devices of one UUID.
    """

    def __init__(
        self,
        region_id: str,
        devices: Iterable[Device],
        entity: Callable[[str], Props[A]] | Callable[[str, int], Props[A]],
        *,
        shards: int = 256,
        weights: Mapping[str, float] | None = None,
        passivate_after: float | None = None,
        max_entities: int | None = None,
        max_waiting: int = 1000,
        handoff_timeout: float = 10.0,
        shared: Keeper | None = None,
        clock: Clock | None = None,
    ) -> None:
        if "/" in region_id:
            raise ValueError(f"region_id is {region_id!r}; the actors' names begin with it, so pass a text without '/'")
        for name, value in (("max_entities", max_entities), ("max_waiting", max_waiting)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, but is {value}")
        for name, seconds in (("passivate_after", passivate_after), ("handoff_timeout", handoff_timeout)):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name} must be more than 0 seconds, but is {seconds}")
        if shared is not None and (isinstance(shared, type) or not hasattr(shared, "locate")):
            raise TypeError(f"shared is {shared!r:.200}; pass a cb.Cluster or a cb.Node")
        check_weights(weights or {})
        self.region_id = region_id
        self._given = list(devices)
        self._make: Callable[[str, int], Props[A]] = _of_two(entity)
        self._weights = dict(weights or {})
        self._passivate_after = passivate_after
        self._max_entities = max_entities
        self._max_waiting = max_waiting
        self._handoff_timeout = handoff_timeout
        self._clock = clock or LoopClock()
        self._table = ShardTable.empty(shards)
        self._owners: list[str | None] = list(self._table.owners)  # follows the table, shard by shard
        self._devices: dict[str, Device] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._entities: OrderedDict[str, Entity[A]] = OrderedDict()  # least recently used first
        self._moving: set[int] = set()
        self._shards: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._sweep: Cancellable | None = None
        self._stopped = False
        self._started = 0
        self._sharing = None if shared is None else Sharing(self, shared)

    async def __aenter__(self) -> Self:
        try:
            for device in self._given:
                self._enter(device)
            await self._changed()
        except BaseException:  # a cancellation, too
            await self.stop()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    # -- entities ------------------------------------------------------------------------------------------------------

    def entity(self, id: str) -> EntityRef[A]:
        """The address of an entity; nothing is started.

        Raises:
            TypeError: The id is not a text.
        """
        if not isinstance(id, str):
            raise TypeError(
                f"region {self.region_id}: the id of an entity is a str, and {id!r} is not; pass str(...) of it"
            )
        return EntityRef(self, id)

    def owner(self, id: str) -> str | None:
        """UUID of the device that owns an entity's shard now; None if there is no device."""
        return self._owners[self._shard(id)]

    @property
    def active(self) -> list[str]:
        """Ids of the entities that have an actor, or calls that wait for one; least recently used first."""
        return list(self._entities)

    @property
    def table(self) -> ShardTable:
        """The device of each shard, once all handovers are done."""
        return self._table

    # -- devices -------------------------------------------------------------------------------------------------------

    async def add(self, device: Device) -> None:
        """Spread the entities over this device, too; returns when its shards have been handed over.

        If the wait is cancelled, the handovers go on.

        Raises:
            TypeError: Not a device.
            ValueError: It was added already, or belongs to another loop.
            RegionStopped
        """
        if self._stopped:
            raise RegionStopped(f"region {self.region_id} has been stopped")
        self._enter(device)
        await self._changed()

    async def remove(self, device: Device) -> None:
        """Hand this device's shards over to the others; returns when that is done. Nothing if it is not there.

        If the wait is cancelled, the handovers go on.
        """
        if self._devices.pop(device.uuid, None) is not None:
            self._watching.pop(device.uuid).cancel()
            self._hold(device)
            await self._changed()

    async def stop(self) -> None:
        """Take no more calls, let those in flight end, and stop all actors. The devices stay open."""
        self._stopped = True
        if self._sweep is not None:
            self._sweep.cancel()
        for task in self._watching.values():
            task.cancel()
        if self._sharing is not None:
            await self._sharing.leave()
        async with self._changing:  # handovers end first
            entities = list(self._entities.values())
            self._entities.clear()
            for entity in entities:
                self._refuse_waiting(entity, RegionStopped(f"region {self.region_id} has been stopped"))
            await asyncio.gather(*(self._retire(entity) for entity in entities))
        await asyncio.gather(*self._watching.values(), *self._tasks, return_exceptions=True)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _shard(self, id: str) -> int:
        shard = self._shards.get(id)
        if shard is None:
            if len(self._shards) >= REMEMBERED:
                self._shards.clear()
            shard = self._shards[id] = shard_of(id, len(self._owners))
        return shard

    def _call(self, id: str, method: Any, args: Any, kwargs: Any) -> "asyncio.Future[Any]":
        shard = self._shard(id)
        sharing = self._sharing
        if self._stopped or (sharing is None and self._owners[shard] is None):
            why = "has been stopped" if self._stopped else "has no device"
            raise RegionStopped(f"region {self.region_id} {why}; entity {id!r} takes no calls")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = Waiting(method, args, kwargs, answer)
        if sharing is None or sharing.holds(id, shard):
            self._admit(id, shard, call)
        else:
            sharing.forward(id, shard, call)
        return answer

    def _admit(self, id: str, shard: int, call: Waiting) -> None:
        """Send a call to the entity's actor here, or have it wait.

        In a shared region an actor has one call at a time: what it has not begun goes to the next owner.
        """
        entity = self._entities.get(id)
        if entity is None:
            self._make_room()
            entity = self._entities[id] = Entity(id, shard)
        self._entities.move_to_end(id)
        entity.used = self._clock.time()
        if shard in self._moving or (self._sharing is not None and entity.answers):
            if len(entity.waiting) >= self._max_waiting:
                why = "is being handed over to another device" if shard in self._moving else "executes another call"
                raise MailboxFull(
                    f"{len(entity.waiting)} calls wait for entity {id!r} of region {self.region_id}, which {why} "
                    "(max_waiting)"
                )
            entity.waiting.append(call)
            return
        try:
            self._send(entity, call.method, call.args, call.kwargs, call.answer)
        except Exception:  # of the factory, or of the call
            if entity.actor is None and not entity.waiting:
                del self._entities[id]
            raise

    def _send(self, entity: Entity[A], method: Any, args: Any, kwargs: Any, answer: "asyncio.Future[Any]") -> None:
        actor = entity.actor
        if actor is None or actor.is_stopped:
            actor = entity.actor = self._start(entity)
        if isinstance(method, str):  # of another application
            method = getattr(actor._actor.cls, method)
        reply = actor.call(method, *args, **kwargs)
        entity.answers.add(answer)
        entity.idle.clear()
        answer.add_done_callback(lambda done: done.cancelled() and reply.cancel())
        self._spawn(self._answer(entity, reply, answer))

    async def _answer(self, entity: Entity[A], reply: Any, answer: "asyncio.Future[Any]") -> None:
        try:
            value = await reply
        except asyncio.CancelledError:  # of the reply, as its caller has left; or of this task, as the loop ends
            answer.cancel()
        except Exception as e:  # of the call, handed to its caller
            if not answer.done():
                answer.set_exception(e)
        else:
            if not answer.done():
                answer.set_result(value)
        finally:
            entity.answers.discard(answer)
            entity.used = self._clock.time()
            if not entity.answers:
                entity.idle.set()
                if self._sharing is not None:
                    self._flush(entity)

    def _start(self, entity: Entity[A]) -> Any:
        owner = self._owners[entity.shard]
        assert owner is not None
        self._started += 1
        self._arm()
        props = self._make(entity.id, next_generation())
        if not isinstance(props, Props):
            raise returned("entity", props, "a cb.Props of a resident actor")
        if self._sharing is not None and not isinstance(props._factory, type):
            raise TypeError(f"region {self.region_id} is shared; pass the class of its actors to cb.Props, no function")
        return self._devices[owner].actor_of(props, f"{self.region_id}-{self._started}")

    # -- actors that are not needed ------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        if self._max_entities is None or len(self._entities) < self._max_entities:
            return
        idle = next((e for e in self._entities.values() if self._can_leave(e)), None)
        if idle is not None:
            self._passivate(idle)

    def _can_leave(self, entity: Entity[A]) -> bool:
        return not entity.answers and not entity.waiting and entity.shard not in self._moving

    def _passivate(self, entity: Entity[A]) -> None:
        del self._entities[entity.id]
        if entity.actor is not None:
            entity.actor.stop()

    def _arm(self) -> None:
        """See that one timer runs, until the entity that was used least recently may have to leave."""
        if self._passivate_after is None or self._sweep is not None or not self._entities:
            return
        oldest = next(iter(self._entities.values()))
        due = oldest.used + self._passivate_after - self._clock.time()
        self._sweep = self._clock.call_later(max(due, self._passivate_after / 10), self._passivate_idle)

    def _passivate_idle(self) -> None:
        assert self._passivate_after is not None
        self._sweep = None
        limit = self._clock.time() - self._passivate_after
        for entity in list(self._entities.values()):
            if entity.used <= limit and self._can_leave(entity):
                self._passivate(entity)
        if not self._stopped:
            self._arm()

    # -- handing over --------------------------------------------------------------------------------------------------

    def _enter(self, device: Device) -> None:
        check_members(f"region {self.region_id}", [device])
        if device.uuid in self._devices:
            raise ValueError(f"device {device.name} ({device.uuid}) is in region {self.region_id} already")
        self._devices[device.uuid] = device
        self._watching[device.uuid] = asyncio.create_task(self._watch(device), name=f"region {self.region_id}")

    async def _watch(self, device: Device) -> None:
        async for event in device.events():
            if isinstance(event, Stopped) and self._devices.pop(device.uuid, None) is not None:
                self._watching.pop(device.uuid)
                _log.warning("region %s: device %s has stopped; its shards move", self.region_id, device.name)
                self._hold(device)
                self._spawn(self._rebalance())

    def _hold(self, device: Device) -> None:
        """Have calls of a leaving device's entities wait until its shards have another owner."""
        if self._sharing is not None:
            self._sharing.withdraw(device.uuid)
            return
        self._moving.update(shard for shard, owner in enumerate(self._owners) if owner == device.uuid)

    async def _changed(self) -> None:
        """Rebalance, in a task of its own: a caller that is cancelled leaves no shard half moved."""
        await asyncio.shield(self._spawn(self._rebalance()))

    async def _rebalance(self) -> None:
        if self._sharing is not None:
            await self._sharing.changed()
            return
        async with self._changing:
            table = self._table.over({uuid: self._weights.get(uuid, 1.0) for uuid in self._devices})
            moves, self._table = self._table.moves_to(table), table
            held = {entity.shard for entity in self._entities.values()}
            for move in moves:
                if move.shard in held:
                    self._moving.add(move.shard)
                else:
                    self._owners[move.shard] = move.target
                    self._moving.discard(move.shard)
            if not self._devices:
                self._owners = [None] * len(self._owners)
                await self._lose_all()
                return
            limit = asyncio.Semaphore(HANDOFFS)
            await asyncio.gather(*(self._hand_over(move, limit) for move in moves if move.shard in self._moving))
            for shard in [shard for shard in self._moving if self._owners[shard] in self._devices]:
                self._open(shard)  # its device had left, and is back

    async def _hand_over(self, move: Move, limit: asyncio.Semaphore) -> None:
        async with limit:
            here = [entity for entity in self._entities.values() if entity.shard == move.shard]
            await asyncio.gather(*(self._retire(entity) for entity in here))
            self._owners[move.shard] = move.target
            if move.target not in self._devices:
                return  # it has left meanwhile: the change that follows hands the shard on
            self._open(move.shard)

    def _open(self, shard: int) -> None:
        """Send the calls that wait; entities that were not called begin with their next call."""
        self._moving.discard(shard)
        for entity in [entity for entity in self._entities.values() if entity.shard == shard]:
            self._flush(entity)
            if entity.actor is None:
                del self._entities[entity.id]

    def _flush(self, entity: Entity[A]) -> None:
        while entity.waiting and not (self._sharing is not None and entity.answers):
            call = entity.waiting.popleft()
            if call.answer.done():  # its caller has left
                continue
            try:
                self._send(entity, call.method, call.args, call.kwargs, call.answer)
            except Exception as e:  # what `call` would have raised
                call.answer.set_exception(e)

    async def _retire(self, entity: Entity[A]) -> None:
        """Let an entity's calls in flight end, and stop its actor."""
        actor, entity.actor = entity.actor, None
        if actor is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._handoff_timeout):
                await entity.idle.wait()
        try:
            await actor.stop_and_wait(timeout=self._handoff_timeout)
        except TimeoutError:
            _log.warning("region %s: the actor of entity %r does not end", self.region_id, entity.id)
            late, entity.answers = entity.answers, set()
            entity.idle.set()
            for answer in late:  # its late answers may arrive after those of the next actor
                if not answer.done():
                    answer.set_exception(ActorStopped(f"the actor of entity {entity.id!r} does not end; it is left"))

    async def _lose_all(self) -> None:
        entities = list(self._entities.values())
        self._entities.clear()
        self._moving.clear()
        for entity in entities:
            self._refuse_waiting(entity, RegionStopped(f"region {self.region_id} has no device"))
        await asyncio.gather(*(self._retire(entity) for entity in entities))

    def _refuse_waiting(self, entity: Entity[A], error: RegionStopped) -> None:
        while entity.waiting:
            call = entity.waiting.popleft()
            if not call.answer.done():
                call.answer.set_exception(error)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _of_two(entity: Callable[..., Props[A]]) -> Callable[[str, int], Props[A]]:
    """The factory as one of id and fence."""
    if not callable(entity):
        raise TypeError(f"entity is {entity!r:.200}; pass a function of an id: lambda id: cb.Props(Cart, id)")
    try:
        inspect.signature(entity).bind("")
    except TypeError:
        return entity
    except ValueError:  # of a builtin
        pass
    return lambda key, fence: entity(key)
