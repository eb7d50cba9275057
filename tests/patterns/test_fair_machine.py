"""Any schedule of submissions, cancellations, failures, losses and stops: each request of each tenant ends once."""

import asyncio
from typing import Any

from batching_lab import turns
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.errors import DeadlineExceeded, QueueFull, ServerStopped
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.fairshare.settings import Tenant

ENDS = (ValueError, cb.ContextPoisoned, QueueFull, DeadlineExceeded, ServerStopped)
TENANTS: dict[Any, Tenant] = {
    "a": Tenant(weight=3, max_queue=2),
    "b": Tenant(max_in_flight=1, hard=True),
    "g": Tenant(max_in_flight=1),
    ("g", "x"): Tenant(rate=10, burst=1, hard=True),
}


class Call:
    """One run of the function."""

    def __init__(self, item: int) -> None:
        self.item = item
        self.gate = asyncio.get_running_loop().create_future()


class SchedulerMachine(RuleBasedStateMachine):
    """A scheduler in virtual time, whose function is answered by the rules; items are the numbers of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.ended: dict[int, int] = {}  # number of the request: how often it has ended
        self.tasks: dict[int, asyncio.Task[int]] = {}
        self.gone: set[int] = set()  # ended otherwise than in a value
        self.calls: list[Call] = []
        self.runs: dict[int, int] = {}
        self.stopping: asyncio.Task[Any] | None = None
        self.scheduler: FairShareScheduler[int, int] | None = None

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_newest_of_largest"]),
        slots=st.integers(1, 3),
        idempotent=st.booleans(),
        charge=st.sampled_from([None, "seconds"]),
    )
    def make(self, overflow: Any, slots: int, idempotent: bool, charge: Any) -> None:
        self.slots, self.idempotent = slots, idempotent
        self.scheduler = FairShareScheduler(
            self.model,
            tenants=TENANTS,
            max_in_flight=slots,
            max_queue=6,
            overflow=overflow,
            block_timeout=0.5,
            idempotent=idempotent,
            charge=charge,
            clock=self.clock,
        )
        self.run(self.scheduler.start())

    async def model(self, item: int) -> Any:
        assert item not in self.gone, "an item ran after its end"
        self.runs[item] = self.runs.get(item, 0) + 1
        assert self.runs[item] <= 1 + self.idempotent
        call = Call(item)
        self.calls.append(call)
        try:
            return await call.gate
        finally:
            self.calls.remove(call)

    def run(self, work: Any) -> Any:
        async def go() -> Any:
            result = await work
            await turns(15)
            return result

        return self.loop.run_until_complete(go())

    async def request(self, number: int, **options: Any) -> int:
        assert self.scheduler is not None
        try:
            value = await self.scheduler.submit(number, **options)
        except (*ENDS, asyncio.CancelledError):
            self.gone.add(number)
            raise
        else:
            assert value == 2 * number, "another request's value"
            return value
        finally:
            self.ended[number] = self.ended.get(number, 0) + 1

    @rule(
        tenant=st.sampled_from(["a", "b", ("g", "x"), ("g", "y"), "other"]),
        n=st.integers(1, 3),
        priority=st.integers(0, 1),
        cost=st.integers(0, 3),
        timeout=st.sampled_from([None, None, 0.005, 0.05]),
    )
    def submit(self, tenant: Any, n: int, priority: int, cost: int, timeout: float | None) -> None:
        async def go() -> None:
            for _ in range(n):
                number = len(self.tasks)
                work = self.request(number, tenant=tenant, priority=priority, cost=cost, timeout=timeout)
                self.tasks[number] = asyncio.create_task(work)

        self.run(go())

    @precondition(lambda self: any(not task.done() for task in self.tasks.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from([task for task in self.tasks.values() if not task.done()]))

        async def go() -> None:
            task.cancel()

        self.run(go())

    @precondition(lambda self: self.calls)
    @rule(how=st.sampled_from(["value", "value", "value", "raise", "lose"]), data=st.data())
    def answer(self, how: str, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.calls))

        async def go() -> None:
            if how == "value":
                call.gate.set_result(2 * call.item)
            else:
                call.gate.set_exception(ValueError("no") if how == "raise" else cb.ContextPoisoned("lost"))

        self.run(go())

    @rule(seconds=st.sampled_from([0.005, 0.1, 0.6]))
    def wait(self, seconds: float) -> None:
        async def go() -> None:
            self.clock.advance(seconds)

        self.run(go())

    @rule(tenant=st.sampled_from(["a", "b", "g"]), weight=st.sampled_from([1, 5]), hard=st.booleans())
    def change(self, tenant: str, weight: float, hard: bool) -> None:
        async def go() -> None:
            assert self.scheduler is not None
            self.scheduler.set(tenant, weight=weight, hard=hard)

        self.run(go())

    @precondition(lambda self: self.stopping is None and len(self.tasks) > 8)
    @rule(how=st.sampled_from(["stop", "drain"]))
    def end(self, how: str) -> None:
        async def go() -> None:
            assert self.scheduler is not None
            work = self.scheduler.stop() if how == "stop" else self.scheduler.drain(0.05)
            self.stopping = asyncio.create_task(work)

        self.run(go())

    @invariant()
    def counts(self) -> None:
        if self.scheduler is None:
            return
        stats = self.scheduler.stats()
        ends = (stats.completed, stats.failed, stats.cancelled, stats.expired)
        assert sum(ends) + stats.rejected + stats.dropped + stats.stopped == len(self.ended)
        assert stats.submitted == len(self.tasks)
        assert stats.queued + stats.blocked + stats.running == len(self.tasks) - len(self.ended)
        assert len(self.calls) == stats.in_flight <= self.slots
        assert all(tenant.queued >= 0 and tenant.running >= 0 for tenant in stats.tenants.values())

    def teardown(self) -> None:
        async def go() -> None:
            assert self.scheduler is not None
            await self.scheduler.stop()
            await asyncio.wait(self.tasks.values()) if self.tasks else None

        try:
            if self.scheduler is not None:
                self.run(go())
                self.counts()
                assert self.ended == dict.fromkeys(self.tasks, 1)
                assert self.scheduler.stats().in_flight == 0
                assert not self.calls
                for task in self.tasks.values():
                    assert task.cancelled() or task.exception() is None or isinstance(task.exception(), ENDS)
                assert self.clock.pending == 0
        finally:
            self.loop.close()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
