"""``SharedGpuStateCoordinator``: leases of a state that several agents share."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from callboard.actors.clock import Cancellable, Clock, LoopClock
from callboard.actors.errors import AccelError
from callboard.actors.refs import ActorRef
from callboard.agents.state.deadlocks import ALL, find_cycle
from callboard.agents.state.errors import DeadlockRefused, LeaseLost, LeaseTimeout, StateLost
from callboard.agents.state.leases import Lease, LeaseTable, Request
from callboard.agents.state.regions import region_of
from callboard.agents.state.values import SharedValue, StateView

__all__ = ["CoordinatorStats", "SharedGpuStateCoordinator", "WriteToken"]

FOREVER = 1e9


@dataclass(frozen=True, slots=True)
class WriteToken:
    """A lease, as its holder has it. Each write checks it: one that has ended writes nothing.

    Attributes:
        number: Fencing number: later leases have larger ones.
        agent: Its holder.
        write: True for a writer's, False for a reader's.
    """

    number: int
    agent: Hashable
    write: bool


@dataclass(frozen=True, slots=True)
class CoordinatorStats:
    """Figures of a coordinator.

    Attributes:
        holders: Agents that hold leases now.
        waiting: Requests that wait.
        granted: Leases since the start.
        expired: Leases that ended by their time, or with their holders.
        refused: Requests that were refused because of a deadlock.
        version: Writes since the state was attached.
        lost: Times that the state was lost with a context.
    """

    holders: tuple[Hashable, ...]
    waiting: int
    granted: int
    expired: int
    refused: int
    version: int
    lost: int


class SharedGpuStateCoordinator:
    """Lets agents read and write a state in turns: an array of a device or of the host, a dict of them, or any object.

    ::

        shared = cb.SharedGpuStateCoordinator(gpu.zeros((1024, 64)), device=gpu)
        async with shared.writing(region=slice(0, 64)) as token:
            shared.write(token, rows)

    Leases are granted in order; readers of a region share it, writers have it alone. An agent does not conflict with
    itself: a reader may acquire a write lease, and gets it when the other readers have released theirs.

    A lease ends when it is released, after ``ttl`` seconds, or with its holder: a task that ends, or an actor that
    stops. A write with the token of a lease that has ended is refused. Writes are enqueued by this object on the
    caller's thread, so on a device a reader's ops come after those of the writer before it, on whatever stream.

    A lost context costs the writes since the last copy to the host: one is made after every ``backup_every`` write
    leases, and by :meth:`backup`. Leases of that time end with :class:`StateLost`.

    Args:
        state: The state; None: :meth:`attach_state` gives it later.
        device: The device of a ref, for copies.
        ttl: Seconds of a lease, unless it is renewed.
        backup_every: Write leases between two copies of a ref to the host; None for none.
        clock: Tells the time; for tests.
    """

    def __init__(
        self,
        state: Any = None,
        *,
        device: Any = None,
        ttl: float = 30.0,
        backup_every: int | None = 16,
        clock: Clock | None = None,
    ) -> None:
        if not (ttl > 0 and math.isfinite(ttl)):
            raise ValueError(f"ttl is {ttl}; it must be a positive number of seconds")
        if backup_every is not None and backup_every < 1:
            raise ValueError(f"backup_every is {backup_every}; it must be at least 1, or None")
        self._clock = clock or LoopClock()
        self._ttl = ttl
        self._backup_every = backup_every
        self._table = LeaseTable()
        self._shared: SharedValue | None = None
        self._device = device
        self._timer: Cancellable | None = None
        self._watched: set[Hashable] = set()
        self._watchers: set[asyncio.Task[Any]] = set()
        self._lost: dict[int, StateLost] = {}
        self._granted = self._expired = self._refused = self._losses = self._written = 0
        if state is not None:
            self.attach_state(state)

    # -- leases --------------------------------------------------------------------------------------------------------

    async def acquire_write(
        self, agent: Hashable = None, *, region: slice | str | None = None, timeout: float | None = None
    ) -> WriteToken:
        """A lease to write.

        Args:
            agent: Who holds it: an actor's ref, a task or any name; None: the current task. If it is an actor or a
                task, the lease ends with it.
            region: A slice of the first axis, a key of the dict, or None for all.
            timeout: Seconds to wait.

        Raises:
            DeadlockRefused: Agents wait for each other, and this one is the youngest.
            LeaseTimeout: It was not granted in time.
        """
        return await self._acquire(agent, region, timeout, write=True)

    async def acquire_read(
        self, agent: Hashable = None, *, region: slice | str | None = None, timeout: float | None = None
    ) -> WriteToken:
        """A lease to read, beside other readers. Arguments and errors as for :meth:`acquire_write`."""
        return await self._acquire(agent, region, timeout, write=False)

    def try_acquire_write(self, agent: Hashable, *, region: slice | str | None = None) -> WriteToken | None:
        """A lease to write, if there is one at once."""
        request = Request(agent, region_of(region, self._length), True, None)
        self._expire()
        lease = self._table.try_grant(request, self._clock.time() + self._ttl)
        if lease is None:
            return None
        self._grant()  # it may let an earlier request of this agent pass
        return self._token(lease)

    async def _acquire(self, agent: Hashable, region: Any, timeout: float | None, *, write: bool) -> WriteToken:
        if agent is None:
            agent = asyncio.current_task()
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}; it must be positive, or None for no limit")
        request = Request(agent, None if region is None else region_of(region, self._length), write, None)
        now = self._clock.time()
        lease = self._table.try_grant(request, now + self._ttl)
        if lease is not None:
            self._grant()
            return self._token(lease)
        request.slot = asyncio.get_running_loop().create_future()
        key = self._table.enqueue(request)
        ALL.add(self)
        timer = None if timeout is None else self._clock.call_later(timeout, self._time_out, request, timeout)
        try:
            self._expire()
            self._grant()
            if not request.slot.done():
                self._watch_holders()
                self._refuse_deadlock(agent)
                self._set_timer()
            granted: Lease = await request.slot
            return self._token(granted)
        except BaseException:  # a cancel, too
            self._table.withdraw(key)
            if request.slot.done() and not request.slot.cancelled() and request.slot.exception() is None:
                self._table.remove(request.slot.result().number)  # granted to a caller that has left
            self._grant()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if not self._table.waiting:
                ALL.discard(self)

    def renew(self, token: WriteToken) -> None:
        """Begin the time of a lease again.

        Raises:
            LeaseLost: It has ended.
        """
        self._lease(token).until = self._clock.time() + self._ttl

    def release(self, token: WriteToken) -> None:
        """End a lease; nothing if it has ended."""
        lease = self._table.remove(token.number)
        self._lost.pop(token.number, None)
        if lease is None:
            return
        if self._table.waiting:
            self._grant()
        if lease.write:
            self._written += 1
            if self._backup_every is not None and self._written % self._backup_every == 0:
                self._back_up_later()

    release_write = release

    @asynccontextmanager
    async def writing(self, agent: Hashable = None, **options: Any) -> AsyncIterator[WriteToken]:
        """``async with`` a lease of :meth:`acquire_write`."""
        token = await self.acquire_write(agent, **options)
        try:
            yield token
        finally:
            self.release(token)

    @asynccontextmanager
    async def reading(self, agent: Hashable = None, **options: Any) -> AsyncIterator[WriteToken]:
        """``async with`` a lease of :meth:`acquire_read`."""
        token = await self.acquire_read(agent, **options)
        try:
            yield token
        finally:
            self.release(token)

    # -- the state -----------------------------------------------------------------------------------------------------

    def attach_state(self, state: Any) -> None:
        """Give it the state, or another one; leases that are held stay.

        Args:
            state: A :class:`GpuRef`, a NumPy array, a dict of arrays, or another object.
        """
        self._shared = SharedValue(state, self._device)

    def read(self, token: WriteToken) -> Any:
        """The value of the token's region: of an array a view, which must not be written to.

        Raises:
            LeaseLost: The lease has ended.
            StateLost: The state was lost with a context since the lease was granted.
        """
        lease = self._lease(token)
        return self._value().part(lease.region)

    def write(self, token: WriteToken, value: Any) -> int:
        """Write to the token's region; returns the new version. Raises as :meth:`read`; nothing is written then."""
        lease = self._lease(token, write=True)
        shared = self._value()
        shared.replace(lease.region, value)
        return shared.version

    def apply(self, token: WriteToken, function: Callable[[Any], Any]) -> Any:
        """Call a function that writes to the token's region in place: ``lambda x: gpu.blas.scal(x, alpha=0.5)``.

        Args:
            token: A writer's.
            function: Gets the array or ref of the region. It may enqueue ops; it must not await, nor keep what it gets.

        Returns:
            What it returns. Raises as :meth:`read`; it is not called then.
        """
        lease = self._lease(token, write=True)
        return self._value().apply(lease.region, function)

    def snapshot(self) -> StateView:
        """The state as it is now, without a lease: it does not wait for writers, and sees each write whole.

        The next write copies what the snapshot shares, if the snapshot is still in use.

        Raises:
            StateLost: The state was lost, and there is no copy of it.
        """
        return self._value().snapshot()

    async def compare_and_swap(self, version: int, value: Any, agent: Hashable = None) -> bool:
        """Replace the state if its version is this one; False if it is not."""
        async with self.writing(agent) as token:
            if self.version != version:
                return False
            self.write(token, value)
            return True

    async def backup(self) -> int:
        """Copy a ref to the host now, to which a loss of its context goes back; returns its version."""
        return await self._value().keep()

    @property
    def version(self) -> int:
        """Number of writes since the state was attached; a restored state counts as written."""
        return self._value().version

    def stats(self) -> CoordinatorStats:
        """Figures since the start."""
        holders = tuple(dict.fromkeys(lease.agent for lease in self._table.leases.values()))
        version = 0 if self._shared is None else self._shared.version
        waiting = len(self._table.waiting)
        return CoordinatorStats(holders, waiting, self._granted, self._expired, self._refused, version, self._losses)

    # -- within --------------------------------------------------------------------------------------------------------

    @property
    def _length(self) -> int | None:
        return None if self._shared is None else self._shared.length

    def _token(self, lease: Lease) -> WriteToken:
        self._granted += 1
        return WriteToken(lease.number, lease.agent, lease.write)

    def _lease(self, token: WriteToken, *, write: bool = False) -> Lease:
        lease = self._table.leases.get(token.number)
        if lease is None or lease.until <= self._clock.time():
            self._expire()
            raise self._lost.get(token.number) or LeaseLost(
                f"lease {token.number} of {_name(token.agent)} has ended: released, or older than {self._ttl:g} s; "
                "acquire another one, and renew() it in long work"
            )
        if write and not lease.write:
            raise LeaseLost(f"lease {token.number} of {_name(token.agent)} is a reader's; acquire_write to write")
        return lease

    def _value(self) -> SharedValue:
        shared = self._shared
        if shared is None:
            raise ValueError("there is no state: attach_state(state)")
        lost = shared.restore()
        if lost is not None:
            self._losses += 1
            for number in list(self._table.leases):
                self._lost[number] = lost
                self._table.remove(number)
            self._grant()
            if lost.restored is None:
                self._shared = None
            raise lost
        return shared

    def _expire(self) -> None:
        ended = self._table.expired(self._clock.time())
        for lease in ended:
            self._table.remove(lease.number)
        self._expired += len(ended)
        if ended:
            self._grant()

    def _end_agent(self, agent: Hashable) -> None:
        """An agent has ended: its leases end, too."""
        self._watched.discard(agent)
        for number in [n for n, lease in self._table.leases.items() if lease.agent == agent]:
            self._table.remove(number)
            self._expired += 1
        self._grant()

    def _grant(self) -> None:
        if not self._table.waiting:
            return
        for request, lease in self._table.grant_waiting(self._clock.time() + self._ttl):
            if request.slot.done():  # cancelled at this moment
                self._table.remove(lease.number)
            else:
                request.slot.set_result(lease)
        if self._table.waiting:
            self._watch_holders()

    def _watch_holders(self) -> None:
        """Notice the end of those that others wait for: only then it matters."""
        for lease in list(self._table.leases.values()):
            agent: Any = lease.agent
            if agent in self._watched:
                continue
            if isinstance(agent, asyncio.Task):
                self._watched.add(agent)
                agent.add_done_callback(self._end_agent)
            elif isinstance(agent, ActorRef):
                self._watched.add(agent)
                watcher = asyncio.get_running_loop().create_task(self._watch(agent))
                self._watchers.add(watcher)
                watcher.add_done_callback(self._watchers.discard)

    async def _watch(self, agent: ActorRef[Any]) -> None:
        await agent.stopped(timeout=FOREVER)
        self._end_agent(agent)

    def _set_timer(self) -> None:
        if self._timer is not None or not self._table.waiting or not self._table.leases:
            return
        first = min(lease.until for lease in self._table.leases.values())
        self._timer = self._clock.call_later(max(0.0, first - self._clock.time()), self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._expire()
        self._set_timer()

    def _time_out(self, request: Request, seconds: float) -> None:
        if not request.slot.done():
            holders = ", ".join(sorted({_name(lease.agent) for lease in self._table.leases.values()}))
            request.slot.set_exception(
                LeaseTimeout(f"{_name(request.agent)} had no lease within {seconds:g} s; held by: {holders}")
            )

    # -- deadlocks -----------------------------------------------------------------------------------------------------

    def waits_of(self, agent: Hashable) -> dict[int, set[Hashable]]:
        """The requests of an agent that wait, with the agents that each waits for; for the search of deadlocks."""
        return {
            key: self._table.blockers(key) for key, request in self._table.waiting.items() if request.agent == agent
        }

    def _refuse_deadlock(self, agent: Hashable) -> None:
        cycle = find_cycle(agent)
        if cycle is None:
            return
        youngest = max(cycle, key=self._age)
        path = " -> ".join(map(_name, (*cycle, cycle[0])))
        error = DeadlockRefused(
            f"deadlock: {path}; each waits for the next. {_name(youngest)} began last and is refused: let it release "
            "what it holds, and try again",
            tuple(cycle),
        )
        for coordinator in list(ALL):
            if coordinator._refuse(youngest, error):
                return

    def _refuse(self, agent: Hashable, error: DeadlockRefused) -> bool:
        for request in self._table.waiting.values():
            if request.agent == agent and not request.slot.done():
                self._refused += 1
                request.slot.set_exception(error)
                return True
        return False

    @staticmethod
    def _age(agent: Hashable) -> float:
        """When the oldest lease of an agent was granted, over all coordinators: larger is younger."""
        oldest = math.inf
        for coordinator in list(ALL):
            for lease in coordinator._table.leases.values():
                if lease.agent == agent:
                    oldest = min(oldest, lease.age)
        return oldest

    def _back_up_later(self) -> None:
        if self._shared is None or any(task.get_name() == "backup" for task in self._watchers):
            return
        task = asyncio.get_running_loop().create_task(self._back_up(), name="backup")
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)

    async def _back_up(self) -> None:
        shared = self._shared
        if shared is not None:
            with suppress(AccelError):  # of a lost context: the next access says so
                await shared.keep()


def _name(agent: Hashable) -> str:
    if isinstance(agent, asyncio.Task):
        return agent.get_name()
    return agent.path if isinstance(agent, ActorRef) else str(agent)
