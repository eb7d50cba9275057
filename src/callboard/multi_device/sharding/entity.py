"""``Entity``: an entity of a region, its actor, and the calls that wait for one. ``EntityRef``: its address."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar

from callboard.device.client.residents.ref import ResidentRef
from callboard.device.protocol.residents.actor import ResidentActor

if TYPE_CHECKING:
    from callboard.multi_device.sharding.region import PlacementShardingAdapter

__all__ = ["Entity", "EntityRef"]

A = TypeVar("A", bound=ResidentActor)
P = ParamSpec("P")
R = TypeVar("R")


class Waiting:
    """A call that waits for the entity's actor.

    Attributes:
        method: The method; its name, if another application has made the call.
        args, kwargs: Its arguments.
        answer: Its result.
        relayed: Id under which another application's call has arrived; 0 for a call of this application.
    """

    __slots__ = ("answer", "args", "kwargs", "method", "relayed")

    def __init__(self, method: Any, args: Any, kwargs: Any, answer: "asyncio.Future[Any]", relayed: int = 0) -> None:
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.answer = answer
        self.relayed = relayed


class Entity(Generic[A]):
    """An entity that has an actor, or will have one.

    Attributes:
        id: Id of the entity.
        shard: Shard of the entity.
        actor: Actor of the entity; None while its shard is being handed over.
        waiting: Calls that came meanwhile, in order.
        answers: Calls that its actor has not answered.
        used: When the last call came or ended, on the clock of the region.
        idle: Set while there is no call in flight.
    """

    __slots__ = ("actor", "answers", "id", "idle", "shard", "used", "waiting")

    def __init__(self, id: str, shard: int) -> None:
        self.id = id
        self.shard = shard
        self.actor: ResidentRef[A] | None = None
        self.waiting: deque[Waiting] = deque()
        self.answers: set[asyncio.Future[Any]] = set()
        self.used = 0.0
        self.idle = asyncio.Event()
        self.idle.set()


class EntityRef(Generic[A]):
    """The address of an entity. It stays the same wherever the entity is, and whether it has an actor or not.

    Attributes:
        id: Id of the entity.
    """

    __slots__ = ("_region", "id")

    def __init__(self, region: "PlacementShardingAdapter[A]", id: str) -> None:
        self._region = region
        self.id = id

    def call(self, method: Callable[Concatenate[A, P], R], /, *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[R]":
        """Call a method of the entity's actor, which is started if there is none.

        Calls of one entity are executed in the order in which they are made, also while it moves to another device.

        Returns:
            A future of the method's result; it fails with the error of the call, see
            :meth:`ResidentRef.call <callboard.ResidentRef.call>`.

        Raises:
            MailboxFull: Too many calls wait for the entity, or for its actor.
            RegionStopped: The region takes no more calls.
        """
        return self._region._call(self.id, method, args, kwargs)

    @property
    def device(self) -> str | None:
        """UUID of the device that owns the entity's shard; None if there is none."""
        return self._region.owner(self.id)

    def __getattr__(self, name: str) -> NoReturn:
        cure = "" if name.startswith("_") else f"; a method of its actor is called with entity.call(Class.{name}, ...)"
        raise AttributeError(f"an EntityRef has no attribute {name!r}{cure}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<EntityRef {self._region.region_id}/{self.id}>"
