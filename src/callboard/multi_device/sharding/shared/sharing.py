"""``Sharing``: a region's part in a shared table: the shards that it owns, calls to and from other applications."""

import asyncio
import contextlib
import functools
import inspect
import logging
import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from callboard.actors import ActorStopped, MailboxFull
from callboard.core.errors import BackendUnavailable, ContextLost
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import Plain, ProtocolError
from callboard.device.protocol.residents.code import dumps, loads
from callboard.device.protocol.residents.exceptions import described
from callboard.device.protocol.sharing import (
    Bounced,
    CloseShard,
    EntityAnswer,
    EntityCall,
    Grant,
    Join,
    Offer,
    Owners,
    OwnersSettled,
    Released,
)
from callboard.device.supervision.generations import generations_after
from callboard.multi_device.sharding.entity import Entity, Waiting
from callboard.multi_device.sharding.errors import RegionStopped
from callboard.multi_device.sharding.shared.member import Keeper, Membership
from callboard.multi_device.sharding.table import ShardTable

if TYPE_CHECKING:
    from callboard.multi_device.sharding.region import PlacementShardingAdapter

__all__ = ["Sharing"]

log = logging.getLogger("callboard.regions")

MOST = 32 << 20
"""Bytes of the arguments, or of the result, of a call of an entity that another application owns."""

Held = tuple[str, int]
"""Device and fence of a shard."""


class Outgoing:
    """A call to the owner in another application, without an answer."""

    __slots__ = ("answer", "call", "sent")

    def __init__(self, answer: "asyncio.Future[Any]", call: EntityCall) -> None:
        self.answer = answer
        self.call = call
        self.sent = False


class Sharing:
    """What a region that shares its table does beyond one that does not.

    Args:
        region: The region.
        keeper: Where the table is held.
    """

    def __init__(self, region: "PlacementShardingAdapter[Any]", keeper: Keeper) -> None:
        self._region = region
        self._keeper = keeper
        self._mine: dict[int, Held] = {}
        self._draining: dict[int, Held] = {}
        self._out: dict[int, Outgoing] = {}
        self._counts: Counter[str] = Counter()  # of `_out`, by entity
        self._next = 0
        self._offers = 0
        self._settling: list[tuple[int, asyncio.Future[None]]] = []
        self._drains: set[asyncio.Task[None]] = set()
        self._expiring: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()
        self._membership: Membership | None = None

    async def changed(self) -> None:
        """Offer the region's devices, and wait until the shards have their owners.

        Raises:
            BackendUnavailable: The holder of the table does not answer.
        """
        self._offer()
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append((self._offers, settled))
        if self._membership is None:
            self._membership = Membership(self._region.region_id, self._keeper, self)
            try:
                await self._membership.enter()
            except BaseException:  # a cancel, too
                self._settling.clear()
                raise
        await settled

    def _offer(self) -> None:
        self._offers += 1
        self._send(Offer(self._weights(), self._offers))

    def _weights(self) -> dict[str, float]:
        region = self._region
        return {uuid: region._weights.get(uuid, 1.0) for uuid in region._devices}

    def withdraw(self, uuid: str) -> None:
        """Hand the shards of a device over that is not one of the region any more."""
        self._offer()
        self._drop([shard for shard, (device, _) in self._mine.items() if device == uuid], release=True)

    async def leave(self) -> None:
        """Hand everything over, let calls in flight end, and leave. The region takes no more calls."""
        membership, region = self._membership, self._region
        if membership is None:
            return
        stopped = RegionStopped(f"region {region.region_id} has been stopped")
        self._unsettle(stopped)
        self._offers += 1
        self._send(Offer({}, self._offers))
        self._drop(list(self._mine), release=True)
        if self._drains:
            await asyncio.wait(list(self._drains))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(region._handoff_timeout):
                while self._out and membership.connected:
                    self._answered.clear()
                    await self._answered.wait()
        self._fail(list(self._out.values()), stopped)
        await membership.leave()

    def _send(self, message: Plain) -> None:
        if self._membership is not None:
            self._membership.send(message)

    # -- calls to other applications -----------------------------------------------------------------------------------

    def holds(self, id: str, shard: int) -> bool:
        """True if the entity's next call is executed here: it is owned, and no earlier call is under way elsewhere."""
        owned = shard in self._mine and self._membership is not None and self._membership.owns
        return owned and not self._counts[id]

    def forward(self, id: str, shard: int, call: Waiting) -> None:
        """Send a call to the owner.

        Raises:
            TypeError: Arguments that the method does not take, or that cannot be sent to another application.
            ValueError: More than 32 MiB of them.
            MailboxFull: ``max_waiting`` calls of this entity have no answer.
            BackendUnavailable: The holder of the table has not answered for a minute.
        """
        region, membership = self._region, self._membership
        name = f"entity {id!r} of region {region.region_id}"
        if membership is None or membership.gave_up:
            raise BackendUnavailable(f"{name}: the process that holds the region's table does not answer")
        if self._counts[id] >= region._max_waiting:
            raise MailboxFull(f"{self._counts[id]} calls of {name} have no answer (max_waiting)")
        method = getattr(call.method, "__name__", None)
        if not callable(call.method) or isinstance(call.method, type) or not isinstance(method, str):
            raise TypeError(f"{name}: {call.method!r} is not a method; pass one, as in call(Cart.add, ...)")
        _check(name, call)
        arguments = _packed(f"an argument of {method} of {name}", (call.args, call.kwargs))
        self._next += 1
        out = Outgoing(call.answer, EntityCall(self._next, shard, id, method, arguments))
        self._out[self._next] = out
        self._counts[id] += 1
        self._post(out)

    def _post(self, out: Outgoing) -> None:
        if self._membership is not None and self._membership.connected:
            out.sent = True
            self._send(out.call)

    def _close(self, out: Outgoing) -> None:
        del self._out[out.call.id]
        self._counts[out.call.entity] -= 1
        if not self._counts[out.call.entity]:
            del self._counts[out.call.entity]
        self._answered.set()

    def _fail(self, outs: Iterable[Outgoing], error: Exception) -> None:
        for out in outs:
            self._close(out)
            if not out.answer.done():
                out.answer.set_exception(error)

    def _take_answer(self, message: EntityAnswer) -> None:
        out = self._out.get(message.id)
        if out is None:
            return
        self._close(out)
        if out.answer.done():  # its caller has left
            return
        if message.failure is not None:
            out.answer.set_exception(as_error(message.failure))
            return
        try:
            value = loads(message.value)
        except Exception as e:  # of a class that is not here
            out.answer.set_exception(e)
        else:
            out.answer.set_result(value)

    # -- calls from other applications ---------------------------------------------------------------------------------

    def _serve(self, call: EntityCall) -> None:
        held = self._mine.get(call.shard)
        if held is None or self._membership is None or not self._membership.owns:
            self._send(Bounced(call.id))
            return
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(functools.partial(self._reply, call))
        try:
            args, kwargs = loads(call.arguments)
            self._region._admit(call.entity, call.shard, Waiting(call.method, args, kwargs, answer, call.id))
        except Exception as e:  # of the arguments, the factory or the call
            if not answer.done():
                answer.set_exception(e)

    def _reply(self, call: EntityCall, answer: "asyncio.Future[Any]") -> None:
        try:
            value = answer.result()
            packed = _packed(f"the result of {call.method} of entity {call.entity!r}", value)
        except asyncio.CancelledError:
            stopped = ActorStopped(f"the actor of entity {call.entity!r} was stopped")
            self._send(EntityAnswer(call.id, b"", described(0, stopped)))
        except Exception as e:  # an answer, too
            self._send(EntityAnswer(call.id, b"", described(0, e.with_traceback(None))))
        else:
            self._send(EntityAnswer(call.id, packed))

    # -- shards --------------------------------------------------------------------------------------------------------

    def _drop(self, shards: Iterable[int], *, release: bool) -> None:
        """Stop owning shards. Calls that have not begun go to their next owner.

        Args:
            shards: Numbers.
            release: Hand them over. False: the lease has expired, and what is executed here does not count any more.
        """
        held = {shard: self._mine.pop(shard) for shard in shards}
        entities: dict[int, list[Entity[Any]]] = {shard: [] for shard in held}
        for entity in [entity for entity in self._region._entities.values() if entity.shard in held]:
            entities[entity.shard].append(entity)
            del self._region._entities[entity.id]
            self._pass_on(entity, release)
        for shard, there in entities.items():
            self._region._owners[shard] = None
            if release:
                self._draining[shard] = held[shard]
            if not there:
                self._drained(shard, held[shard], release)
                continue
            task = self._region._spawn(self._drain(shard, held[shard], there, release))
            for tasks in (self._drains,) if release else (self._drains, self._expiring):
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    def _pass_on(self, entity: Entity[Any], release: bool) -> None:
        waiting, entity.waiting = entity.waiting, deque()
        for call in waiting:
            if call.relayed:
                if release:
                    self._send(Bounced(call.relayed))
            elif self._region._stopped:
                call.answer.set_exception(RegionStopped(f"region {self._region.region_id} has been stopped"))
            elif not call.answer.done():
                try:
                    self.forward(entity.id, entity.shard, call)
                except Exception as e:  # what `call` would have raised
                    call.answer.set_exception(e)
        if not release:
            late, entity.answers = entity.answers, set()
            entity.idle.set()
            for answer in late:
                if not answer.done():
                    answer.set_exception(
                        ContextLost(
                            f"the lease of region {self._region.region_id} has expired during a call of entity "
                            f"{entity.id!r}, which may have been executed; another application may own the entity now"
                        )
                    )

    async def _drain(self, shard: int, held: Held, entities: list[Entity[Any]], release: bool) -> None:
        await asyncio.gather(*(self._region._retire(entity) for entity in entities))
        await asyncio.sleep(0)  # answers are sent before
        self._drained(shard, held, release)

    def _drained(self, shard: int, held: Held, release: bool) -> None:
        if release and self._draining.get(shard) == held:
            del self._draining[shard]
            self._send(Released(shard, held[1]))

    # -- events of the membership --------------------------------------------------------------------------------------

    def join(self, member: str) -> Join:
        """The first message of a connection."""
        region = self._region
        known = (0, 0) if self._membership is None else self._membership.known
        claims = {**self._draining, **self._mine}
        return Join(
            region=region.region_id,
            member=member,
            shards=len(region._owners),
            lease=self._keeper.lost_after,
            devices=self._weights(),
            claims=claims,
            clock=int(time.time() * 1000),
            number=self._offers,
            fence=known[0],
            ahead=known[1],
        )

    def joined(self) -> None:
        """Send the calls that waited for the connection, in their order."""
        for out in list(self._out.values()):
            if out.answer.done():
                self._close(out)
            elif not out.sent:
                self._post(out)

    def take(self, message: Plain) -> None:
        """A message of the holder."""
        if isinstance(message, EntityAnswer):
            self._take_answer(message)
        elif isinstance(message, EntityCall):
            self._serve(message)
        elif isinstance(message, Grant):
            self._granted(message)
        elif isinstance(message, CloseShard):
            held = self._mine.get(message.shard)
            if held is not None and held[1] == message.fence:
                self._drop([message.shard], release=True)
            elif message.shard not in self._draining:
                self._send(Released(message.shard, message.fence))
        elif isinstance(message, Owners):
            self._show(message)
        elif isinstance(message, OwnersSettled):
            for number, settled in self._settling:
                if number <= message.number and not settled.done():
                    settled.set_result(None)
            self._settling = [one for one in self._settling if not one[1].done()]
        else:
            raise ProtocolError(f"{type(message).__name__} from the holder of a region's table")

    def _granted(self, grant: Grant) -> None:
        generations_after(grant.fence)
        if self._region._stopped or grant.device not in self._region._devices:  # it has left meanwhile
            self._send(Released(grant.shard, grant.fence))
        else:
            self._mine[grant.shard] = grant.device, grant.fence
            self._region._owners[grant.shard] = grant.device

    def _show(self, message: Owners) -> None:
        owners = [None if at < 0 else message.devices[at] for at in message.shards]
        for shard, (device, _) in self._mine.items():
            owners[shard] = device
        self._region._owners = owners
        self._region._table = ShardTable(tuple(owners), self._region._table.version + 1)

    def cut(self, why: str) -> None:
        """The connection has ended: the outcome of calls that were sent is not known."""
        region = self._region.region_id
        lost = ContextLost(
            f"region {region}: the connection to the holder of its table was cut during this call, which may have been "
            f"executed: {why}"
        )
        self._fail([out for out in self._out.values() if out.sent], lost)
        for entity in self._region._entities.values():  # the holder has failed them
            entity.waiting = deque(call for call in entity.waiting if not call.relayed)

    def expired(self) -> None:
        """The lease has expired: other applications may own the shards now."""
        log.warning("region %s: the lease has expired; its entities move", self._region.region_id)
        self._draining.clear()
        self._drop(list(self._mine), release=False)

    async def stopped_all(self) -> None:
        """Wait until the actors of an expired lease have ended."""
        while self._expiring:
            await asyncio.wait(list(self._expiring))

    def given_up(self, why: str) -> None:
        """The holder has not answered for long: nothing waits for it any more."""
        self._fail(list(self._out.values()), BackendUnavailable(why))
        self._unsettle(BackendUnavailable(why))

    def _unsettle(self, error: Exception) -> None:
        waiting, self._settling = self._settling, []
        for _, settled in waiting:
            if not settled.done():
                settled.set_exception(error)


def _check(name: str, call: Waiting) -> None:
    """Raise ``TypeError`` if the method does not take the arguments."""
    try:
        signature = inspect.signature(call.method)
    except (TypeError, ValueError):  # of some compiled methods
        return
    try:
        signature.bind(None, *call.args, **call.kwargs)
    except TypeError as e:
        raise TypeError(f"{name}: {call.method.__name__}{signature}: {e}") from None


def _packed(what: str, value: Any) -> bytes:
    try:
        data = dumps(value)
    except Exception as e:  # of the value's own code, too
        raise TypeError(
            f"{what} cannot be sent to another application ({type(e).__name__}: {e}); use plain values and NumPy arrays"
        ) from e
    if len(data) > MOST:
        raise ValueError(f"{what} has {len(data)} bytes; at most {MOST} can be sent to another application")
    return data
