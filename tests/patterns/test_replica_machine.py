"""Any schedule of submissions, cancellations, failures, hedges, restarts and stops: each request ends once."""

import asyncio
import contextlib
from typing import Any

from batching_lab import turns
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pool_lab import no_broken_callback

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.replicas.ejection import Ejection
from callboard.patterns.replicas.errors import NoReplica
from callboard.patterns.replicas.hedging import Hedging
from callboard.patterns.replicas.server import ModelReplicaPool

ENDS = (ValueError, OSError, cb.ContextPoisoned, NoReplica, cb.QueueFull, cb.DeadlineExceeded, cb.ServerStopped)
LIMIT = 2


class Call:
    """One run of an item on a replica."""

    def __init__(self, item: int) -> None:
        self.item = item
        self.gate = asyncio.get_running_loop().create_future()


class PoolMachine(RuleBasedStateMachine):
    """A pool in virtual time, whose replicas are answered by the rules; items are the numbers of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.pool: ModelReplicaPool[int, int] | None = None
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(no_broken_callback(self.loop))

    @initialize(
        policy=st.sampled_from(["round_robin", "least_outstanding", "p2c", "consistent_hash"]),
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        again=st.sampled_from(["never", "idempotent", "hedged"]),
        n=st.integers(1, 3),
    )
    def make(self, policy: Any, overflow: Any, again: str, n: int) -> None:
        self.again = again
        self.ended: dict[int, int] = {}  # number of the request: how often it has ended
        self.tasks: dict[int, asyncio.Task[int]] = {}
        self.gone: set[int] = set()  # ended otherwise than in a value, and told so
        self.calls: list[Call] = []
        self.on: dict[str, int] = {}  # runs by replica
        self.runs: dict[int, int] = {}  # by request
        self.others: list[asyncio.Task[Any]] = []
        self.pool = ModelReplicaPool(
            n,
            make=self.replica,
            policy=policy,
            key=lambda item: item % 3,
            max_ongoing=LIMIT,
            max_queue=4,
            overflow=overflow,
            block_timeout=0.5,
            idempotent=again != "never",
            attempts=3,
            hedging=Hedging(samples=1, budget=1.0, quantile=0.5) if again == "hedged" else None,
            ejection=Ejection(errors=2, samples=2, backoff=0.1),
            clock=self.clock,
        )
        self.run(self.pool.start())

    def replica(self, name: str) -> Any:
        running: list[Call] = []  # of this one: a restarted one's calls may linger for an iteration

        async def run(item: int) -> int:
            assert item not in self.gone, "an item ran after its end"
            self.runs[item] = self.runs.get(item, 0) + 1
            assert self.again != "never" or self.runs[item] == 1, "an item ran twice without leave"
            assert len(running) < LIMIT, "more than max_ongoing"
            call = Call(item)
            self.calls.append(call)
            running.append(call)
            try:
                return int(await call.gate)
            finally:
                self.calls.remove(call)
                running.remove(call)

        return run

    def run(self, work: Any) -> Any:
        async def go() -> Any:
            result = await work
            await turns(12)
            return result

        return self.loop.run_until_complete(go())

    async def request(self, number: int, **options: Any) -> int:
        assert self.pool is not None
        try:
            value = await self.pool.submit(number, **options)
        except (*ENDS, asyncio.CancelledError):
            self.gone.add(number)
            raise
        else:
            assert value == 2 * number, "another request's value"
            return value
        finally:
            self.ended[number] = self.ended.get(number, 0) + 1

    def beside(self, work: Any) -> None:
        async def go() -> None:
            self.others.append(asyncio.create_task(work))

        self.run(go())

    # -- what callers do -----------------------------------------------------------------------------------------------

    @rule(n=st.integers(1, 4), priority=st.integers(0, 2), timeout=st.sampled_from([None, None, 0.005, 0.05]))
    def submit(self, n: int, priority: int, timeout: float | None) -> None:
        async def go() -> None:
            for _ in range(n):
                number = len(self.tasks)
                work = self.request(number, priority=priority, timeout=timeout)
                self.tasks[number] = asyncio.create_task(work)

        self.run(go())

    @precondition(lambda self: any(not task.done() for task in self.tasks.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        open_ = [number for number, task in self.tasks.items() if not task.done()]
        number = data.draw(st.sampled_from(open_))

        async def go() -> None:
            self.tasks[number].cancel()

        self.run(go())

    # -- what replicas do ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(how=st.sampled_from(["value", "value", "value", "item", "fault", "lose"]), last=st.booleans())
    def answer(self, how: str, last: bool) -> None:
        call = self.calls[-1 if last else 0]

        async def go() -> None:
            if call.gate.done():
                return
            if how == "value":
                call.gate.set_result(2 * call.item)
            else:
                errors = {"item": ValueError("no"), "fault": OSError("broken"), "lose": cb.ContextPoisoned("lost")}
                call.gate.set_exception(errors[how])

        self.run(go())

    @rule(seconds=st.sampled_from([0.001, 0.010, 0.1, 0.5]))
    def advance(self, seconds: float) -> None:
        async def go() -> None:
            self.clock.advance(seconds)

        self.run(go())

    # -- what the operator does ----------------------------------------------------------------------------------------

    @rule(what=st.sampled_from(["drain", "resume", "restart"]), data=st.data())
    def one(self, what: str, data: st.DataObject) -> None:
        assert self.pool is not None
        names = [each.name for each in self.pool.stats().replicas]
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        if what == "drain":
            self.beside(self.pool.drain_replica(name, timeout=0.2))
        elif what == "resume":
            with contextlib.suppress(KeyError):  # the pool has stopped
                self.pool.resume(name)
            self.run(asyncio.sleep(0))
        else:
            self.beside(self.pool.restart(name, timeout=0.2))

    @rule(n=st.integers(1, 4))
    def scale(self, n: int) -> None:
        assert self.pool is not None
        self.beside(self.pool.scale(n))

    @precondition(lambda self: len(self.tasks) > 8)
    @rule(now=st.booleans())
    def end(self, now: bool) -> None:
        assert self.pool is not None
        self.beside(self.pool.stop() if now else self.pool.drain(timeout=0.2))

    # -- what must hold ------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if self.pool is not None:
            self.run(self.pool.stop())
            for other in self.others:
                self.run(self.over(other))
            assert all(task.done() for task in self.tasks.values()), "a request without an end"
            assert self.ended.keys() == self.tasks.keys()
            assert set(self.ended.values()) <= {1}
            wrong = {n: task.exception() for n, task in self.tasks.items() if not task.cancelled() and task.exception()}
            assert all(isinstance(error, ENDS) for error in wrong.values()), wrong
            stats = self.pool.stats()
            assert (stats.queued, stats.blocked, stats.running) == (0, 0, 0)
            assert stats.submitted == len(self.ended)
            assert stats.completed == sum(not task.cancelled() and not task.exception() for task in self.tasks.values())
            assert stats.hedges_won <= stats.hedged
            assert all(each.ongoing == 0 for each in stats.replicas)
            assert self.calls == []
            assert self.clock.pending == 0
        self.loop.run_until_complete(turns())
        self.loop.close()
        self.stack.close()

    async def over(self, other: asyncio.Task[Any]) -> None:
        """Wait for what an operator has begun; it may have been overtaken by the end of the pool, or by another."""
        self.clock.advance(1.0)
        await turns()
        assert other.done(), other
        with contextlib.suppress(cb.ServerStopped, KeyError):
            await other


TestPool = PoolMachine.TestCase
TestPool.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
