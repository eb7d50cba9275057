"""``Seats``: the replicas of a pool over their lives: made, watched, drained, replaced, closed."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from callboard.actors.errors import AccelError, printable, returned
from callboard.patterns.replicas.member import Member, Phase
from callboard.patterns.replicas.replica import Replica, Seat
from callboard.patterns.replicas.router import Router
from callboard.patterns.requests.calling import Executor
from callboard.patterns.requests.errors import ServerStopped

__all__ = ["Given", "Make", "Seats"]

Given = Replica | Callable[[Any], Any]
Make = Callable[[str], Given | Awaitable[Given]]

_log = logging.getLogger(__name__)


class Seats:
    """Keeps the callables of a router's members. Used on the pool's loop only.

    Args:
        pool: Name of the pool, for errors.
        router: Gets the members.
        make: Makes a replica, given its name; None: there are only those that are given.
        max_ongoing: Requests that each may run at once.
        executor: The executor that calls plain functions.
        changed: Called when a replica may take requests again, or never will.
    """

    def __init__(
        self,
        pool: str,
        router: Router,
        make: Make | None,
        max_ongoing: int,
        executor: Executor,
        changed: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._router = router
        self._make = make
        self._max_ongoing = max_ongoing
        self._executor: Executor = executor
        self._changed = changed
        self._seats: dict[Member, Seat] = {}
        self._count = 0  # names given
        self._watching: dict[Member, asyncio.Task[None]] = {}
        self._idle: dict[Member, list[asyncio.Future[None]]] = {}
        self._one = asyncio.Lock()
        self._closed = False

    def __getitem__(self, member: Member) -> Seat:
        return self._seats[member]

    def add(self, given: Given, name: str | None = None) -> None:
        """Another replica.

        Raises:
            ValueError: Another has its name.
            TypeError: It cannot be called.
        """
        replica = given if isinstance(given, Replica) else Replica(given)
        if name is None:
            name = replica.name or self._next_name()
        if any(member.name == name for member in self._router.members):
            raise ValueError(f"{self._pool}: two replicas are named {name!r}; give each its own name")
        members = self._router.members
        member = Member(name, members[-1].number + 1 if members else 0, self._max_ongoing)
        self._seats[member] = Seat(member, replica, self._executor)
        self._router.add(member)
        self._changed()

    def runs_on(self) -> list[Any]:
        """The functions and the devices of all replicas."""
        return [each for seat in self._seats.values() for each in seat.runs_on]

    # -- availability --------------------------------------------------------------------------------------------------

    def check(self, member: Member) -> bool:
        """True if its actor or device is ready; if not, it gets no requests until it is."""
        seat = self._seats.get(member)
        if seat is None or not seat.watched:
            return True
        state = seat.state
        if state is Phase.READY:
            return True
        if member.phase is Phase.DRAINING:
            return False
        member.enter(state)
        if state is Phase.STOPPED:
            self._changed()
        elif member not in self._watching:
            task = asyncio.get_running_loop().create_task(
                self._watch(member, seat), name=f"{self._pool}: {member.name}"
            )
            self._watching[member] = task
        return False

    async def _watch(self, member: Member, seat: Seat) -> None:
        try:
            await seat.back()
            phase = Phase.READY
        except AccelError as e:
            about = {"server": self._pool, "replica": member.name}
            _log.warning("%s: replica %s has stopped: %s", self._pool, member.name, printable(e), extra=about)
            phase = Phase.STOPPED
        finally:
            if self._watching.get(member) is asyncio.current_task():
                del self._watching[member]
        if member.phase is Phase.AWAY:
            member.faults = 0
            member.enter(phase)
        self._changed()

    def ended(self, member: Member) -> None:
        """A run on it has ended."""
        if not member.ongoing and member in self._idle:
            for future in self._idle.pop(member):
                if not future.done():
                    future.set_result(None)

    # -- for users -----------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Seat:
        """The replica of this name.

        Raises:
            KeyError: There is no replica of this name.
        """
        for member, seat in self._seats.items():
            if member.name == name:
                return seat
        names = ", ".join(member.name for member in self._seats)
        raise KeyError(f"{self._pool} has no replica {name!r}; there are {names}")

    def drained(self, seat: Seat) -> "asyncio.Future[None]":
        """Give it no more requests; the future is done when it runs none. One that has stopped stays so."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        member = seat.member
        if member.phase is not Phase.STOPPED:
            member.enter(Phase.DRAINING)
        if member.ongoing:
            self._idle.setdefault(member, []).append(future)
        else:
            future.set_result(None)
        return future

    def resume(self, seat: Seat) -> None:
        """It takes requests again."""
        if seat.member.phase is Phase.DRAINING:
            seat.member.enter(Phase.READY)
            self._changed()

    async def scale(self, n: int) -> None:
        """Have ``n`` replicas: make more, or drain and close the last ones.

        Raises:
            ServerStopped: The pool has stopped meanwhile.
        """
        async with self._one:
            while len(self._seats) < n:
                name = self._next_name()
                self.add(await self._made(name), name)
                if self._closed:
                    await self.close()
                    raise ServerStopped(f"{self._pool} stopped while replica {name} was made")
            gone = list(self._seats.values())[n:]
            waits: Sequence[asyncio.Future[None]] = [self.drained(seat) for seat in gone]
            for seat, wait in zip(gone, waits, strict=True):
                await wait
                self._forget(seat)
                await self._close(seat)

    async def restart(self, seat: Seat, idle: Callable[["asyncio.Future[None]"], Awaitable[None]]) -> None:
        """Replace it by another, in its place; ``idle`` waits until it runs nothing, or makes it so."""
        async with self._one:
            if self._make is None:
                raise ValueError(f"{self._pool}: to restart a replica, it needs `make=`, which makes one")
            await idle(self.drained(seat))
            seat.member.enter(Phase.DRAINING)  # also one that had stopped: requests wait for it from now on
            try:
                await self._close(seat)
                self._unwatch(seat.member)
                given = await self._made(seat.member.name)
                seat.sit(given if isinstance(given, Replica) else Replica(given))
            except BaseException:  # a cancellation, too
                seat.member.enter(Phase.STOPPED)
                self._changed()
                raise
            if self._closed:
                await self._close(seat)
                raise ServerStopped(f"{self._pool} stopped while replica {seat.member.name} was made")
            seat.member.forget()
            self._changed()

    async def close(self) -> None:
        """The pool ends: all replicas are closed, each once."""
        self._closed = True
        for task in self._watching.values():
            task.cancel()
        while self._seats:
            await self._close(self._seats.popitem()[1])

    async def _made(self, name: str) -> Given:
        if self._make is None:
            raise ValueError(f"{self._pool}: to have more replicas, it needs `make=`, which makes one")
        found = self._make(name)
        made = await found if inspect.isawaitable(found) else found
        if not (isinstance(made, Replica) or callable(made)):
            raise returned("make", made, "a function of an item, or a cb.Replica")
        return made

    def _forget(self, seat: Seat) -> None:
        del self._seats[seat.member]
        self._router.remove(seat.member)
        self._unwatch(seat.member)

    def _unwatch(self, member: Member) -> None:
        watching = self._watching.pop(member, None)
        if watching is not None:
            watching.cancel()

    async def _close(self, seat: Seat) -> None:
        try:
            await seat.close()
        except Exception:  # an exception of the caller's hook: the replica is removed all the same
            about = {"server": self._pool, "replica": seat.member.name}
            _log.exception("%s: closing replica %s", self._pool, seat.member.name, extra=about)

    def _next_name(self) -> str:
        self._count += 1
        return f"replica-{self._count - 1}"
