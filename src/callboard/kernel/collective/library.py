"""``CollectiveLibrary``: base of the backends' libraries of collectives: the worlds that a device belongs to."""

import abc
import threading
from typing import Any

from callboard.core.backend import AccelStream, Status
from callboard.core.errors import LibraryError, WorldLost
from callboard.core.library import Library, launches
from callboard.kernel.collective.messages import Join, Leave, Look, Offer

__all__ = ["JOINING", "READY", "CollectiveLibrary", "Member", "end_members"]

JOINING, READY = "joining", "ready"

_lock = threading.Lock()
_here: "dict[int, list[Member]]" = {}  # by world: those of this process that have not ended


class Member(abc.ABC):
    """This device as a rank of one world.

    Attributes:
        world, rank, size: Number of the world, rank of this device in it, and number of ranks.
        lost: The reason why it has ended here; None while it has not. Set once, before the backend lets go of anything.
        called: Number of the last call that was enqueued.
    """

    def __init__(self, world: int, rank: int, size: int) -> None:
        self.world = world
        self.rank = rank
        self.size = size
        self.lost: WorldLost | None = None
        self.called = 0
        with _lock:
            _here.setdefault(world, []).append(self)

    @abc.abstractmethod
    def offer(self) -> bytes:
        """The address of this rank, which the other ranks connect to."""

    @abc.abstractmethod
    def join(self, offers: tuple[bytes, ...], timeout: float) -> None:
        """Begin to connect; does not wait for the others."""

    @abc.abstractmethod
    def state(self) -> str:
        """:data:`JOINING`, :data:`READY`, or why it is neither."""

    @abc.abstractmethod
    def leave(self) -> None:
        """End it, now that :attr:`lost` is set: running work fails soon. Does not wait for that."""

    def end(self, error: WorldLost) -> None:
        """End it for a reason; nothing if it has ended. Any thread."""
        with _lock:
            if self.lost is not None:
                return
            self.lost = error
            others = _here[self.world]
            others.remove(self)
            if not others:
                del _here[self.world]
        self.leave()

    def begin(self, call: int, after: int) -> None:
        """Count a call that is about to be enqueued.

        Raises:
            WorldLost: The world has ended here, or a call before this one was not enqueued: the ranks would not run the
                same ones.
        """
        if self.lost is None and after != self.called:
            why = f"call {call} came behind call {self.called}, not {after}, which was refused"
            self.end(WorldLost(f"rank {self.rank}: {why}", self.rank))
        self.check()
        self.called = call

    def check(self) -> None:
        """Check that it has not ended.

        Raises:
            WorldLost: Another one each time, for each op.
        """
        lost = self.lost
        if lost is not None:
            raise WorldLost(str(lost), lost.rank, lost.formation)


class CollectiveLibrary(Library):
    """Keeps a :class:`Member` for each world. Subclasses make them, and run the parts."""

    name = "collective"

    def __init__(self, device: Any, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self._members: dict[int, Member] = {}

    @abc.abstractmethod
    def member(self, world: int, rank: int, size: int) -> Member:
        """A new member.

        Raises:
            BackendUnavailable: Something that it needs is missing.
        """

    def find(self, world: int) -> Member:
        """The member of a world.

        Raises:
            WorldLost: This context has none: it is younger than the world, or has left it.
        """
        member = self._members.get(world)
        if member is None:
            raise WorldLost(f"this context is not a rank of world {world}: it has left, or is younger than the world")
        return member

    @launches(Offer, captures=False)
    def offer(self, stream: AccelStream, plan: Offer, world: int) -> "Told":
        if world in self._members:
            raise LibraryError(f"world {world} has been offered", self.name)
        member = self.member(world, plan.rank, plan.size)
        told = member.offer()
        self._members[world] = member
        return Told(told)

    @launches(Join, captures=False)
    def join(self, stream: AccelStream, plan: Join, world: int) -> "Told":
        member = self.find(world)
        if len(plan.offers) != member.size:
            raise LibraryError(
                f"world {world} has {member.size} ranks; {len(plan.offers)} offers were given", self.name
            )
        member.join(plan.offers, plan.timeout)
        return Told(member.state())

    @launches(Look, captures=False)
    def look(self, stream: AccelStream, plan: Look, world: int) -> "Told":
        return Told(self.find(world).state())

    @launches(Leave, captures=False)
    def leave(self, stream: AccelStream, plan: Leave, world: int) -> "Told":
        member = self._members.pop(world, None)
        if member is not None:
            member.end(WorldLost(plan.reason or "the world was closed", plan.lost, plan.formation))
        return Told(member is not None)

    def close(self) -> None:
        for member in self._members.values():
            member.end(WorldLost(f"rank {member.rank}: its context ends", member.rank))
        self._members.clear()


def end_members(world: int, lost: int, reason: str, formation: int) -> None:
    """End the members of a world in this process, on any thread. :class:`Leave` follows on the serving thread.

    The serving thread may be blocked by a lost rank: a driver call that frees memory or loads a module waits for all
    kernels, and the kernel of a collective runs until its world ends.
    """
    with _lock:
        members = list(_here.get(world, ()))
    for member in members:
        member.end(WorldLost(reason, lost, formation))


class Told(Status):
    """An answer that is known at the launch."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def check(self, outcome: bytes) -> None:
        pass

    def answer(self) -> Any:
        return self._value
