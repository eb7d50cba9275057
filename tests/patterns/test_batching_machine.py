"""Any schedule of submissions, cancellations, failures, losses and stops: each request ends once."""

import asyncio
from typing import Any

from batching_lab import no_internal_error, turns
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.errors import BadBatchResult, DeadlineExceeded, QueueFull, ServerStopped

ENDS = (ValueError, cb.ContextPoisoned, BadBatchResult, QueueFull, DeadlineExceeded, ServerStopped)
POISON = 13


class Call:
    """One run of the batch function."""

    def __init__(self, items: list[int]) -> None:
        self.items = items
        self.gate = asyncio.get_running_loop().create_future()


class ServerMachine(RuleBasedStateMachine):
    """A server in virtual time, whose batch function is answered by the rules; items are the numbers of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.no_error = no_internal_error()
        self.no_error.__enter__()
        self.clock = ManualClock()
        self.server: DynamicBatchingServer[int, int] | None = None

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        dispatch=st.sampled_from(["adaptive", "idle", "window"]),
        concurrent=st.integers(1, 2),
        on_error=st.sampled_from(["fail", "bisect", None]),
        max_queue_cost=st.sampled_from([None, 8.0]),
        bucketed=st.booleans(),
    )
    def make(
        self, overflow: Any, dispatch: Any, concurrent: int, on_error: Any, max_queue_cost: Any, bucketed: bool
    ) -> None:
        self.idempotent = on_error is not None
        self.in_order = concurrent == 1
        self.bucketed = bucketed
        self.ended: dict[int, int] = {}  # number of the request: how often it has ended
        self.tasks: dict[int, asyncio.Task[int]] = {}
        self.priorities: dict[int, int] = {}
        self.gone: set[int] = set()  # cancelled, and told so
        self.calls: list[Call] = []
        self.first_runs: list[int] = []
        self.stopping: list[asyncio.Task[Any]] = []
        self.server = DynamicBatchingServer(
            self.model,
            max_batch=3,
            max_wait=0.010,
            dispatch=dispatch,
            bucket=(lambda item: item % 2) if bucketed else None,
            max_queue=5,
            max_queue_cost=max_queue_cost,
            overflow=overflow,
            block_timeout=0.5,
            max_concurrent_batches=concurrent,
            idempotent=self.idempotent,
            on_error=on_error or "fail",
            clock=self.clock,
        )
        self.run(self.server.start())

    async def model(self, items: list[int]) -> Any:
        assert 0 < len(items) <= 3
        assert not self.gone.intersection(items), "an item ran after its cancellation"
        seen = set(self.first_runs)
        assert self.idempotent or not seen.intersection(items), "an item ran twice without leave"
        self.first_runs += [item for item in items if item not in seen]
        call = Call(items)
        self.calls.append(call)
        try:
            return await call.gate
        finally:
            self.calls.remove(call)

    def run(self, work: Any) -> Any:
        async def go() -> Any:
            result = await work
            await turns(12)
            return result

        return self.loop.run_until_complete(go())

    async def request(self, number: int, **options: Any) -> int:
        assert self.server is not None
        try:
            value = await self.server.submit(number, **options)
        except (*ENDS, asyncio.CancelledError):
            self.gone.add(number)
            raise
        else:
            assert value == 2 * number, "another request's value"
            return value
        finally:
            self.ended[number] = self.ended.get(number, 0) + 1

    # -- what callers do -----------------------------------------------------------------------------------------------

    @rule(
        n=st.integers(1, 4),
        priority=st.integers(0, 2),
        cost=st.integers(1, 3),
        timeout=st.sampled_from([None, None, 0.005, 0.05]),
    )
    def submit(self, n: int, priority: int, cost: int, timeout: float | None) -> None:
        async def go() -> None:
            for _ in range(n):
                number = len(self.tasks)
                self.priorities[number] = priority
                work = self.request(number, priority=priority, cost=cost, timeout=timeout)
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

    # -- what the function does ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(how=st.sampled_from(["value", "value", "value", "raise", "lose", "short", "items"]), last=st.booleans())
    def answer(self, how: str, last: bool) -> None:
        call = self.calls[-1 if last else 0]

        async def go() -> None:
            if call.gate.done():
                return
            values: list[Any] = [2 * item for item in call.items]
            if how == "raise" or (how == "value" and POISON in call.items):
                call.gate.set_exception(ValueError("no"))
            elif how == "lose":
                call.gate.set_exception(cb.ContextPoisoned("lost"))
            elif how == "short":
                call.gate.set_result(values[1:])
            else:
                if how == "items":
                    values[0] = ValueError("this one")
                call.gate.set_result(values)

        self.run(go())

    @rule(seconds=st.sampled_from([0.001, 0.004, 0.010, 0.5]))
    def advance(self, seconds: float) -> None:
        async def go() -> None:
            self.clock.advance(seconds)

        self.run(go())

    @rule()
    def flush(self) -> None:
        async def go() -> None:
            assert self.server is not None
            self.server.flush_now()

        self.run(go())

    @precondition(lambda self: len(self.tasks) > 8)
    @rule(now=st.booleans())
    def end(self, now: bool) -> None:
        async def go() -> None:
            assert self.server is not None
            work: Any = self.server.stop() if now else self.server.drain(timeout=0.2)
            self.stopping.append(asyncio.create_task(work))

        self.run(go())

    # -- what must hold ------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if self.server is not None:
            self.run(self.server.stop())
            for task in self.stopping:
                self.run(asyncio.wait_for(task, 5.0))
            assert all(task.done() for task in self.tasks.values()), "a request without an end"
            assert self.ended.keys() == self.tasks.keys()
            assert set(self.ended.values()) <= {1}
            wrong = {n: task.exception() for n, task in self.tasks.items() if not task.cancelled() and task.exception()}
            assert all(isinstance(error, ENDS) for error in wrong.values()), wrong
            stats = self.server.stats()
            assert (stats.queued, stats.blocked, stats.running) == (0, 0, 0)
            assert stats.submitted == len(self.ended)
            assert stats.completed == sum(not task.cancelled() and not task.exception() for task in self.tasks.values())
            assert self.clock.pending == 0
            if self.in_order:
                self.check_order()
        self.loop.close()
        self.no_error.__exit__(None, None, None)

    def check_order(self) -> None:
        """Within a priority and a bucket, requests run in the order of their submission."""
        lanes: dict[tuple[int, int], list[int]] = {}
        for number in self.first_runs:
            lanes.setdefault((self.priorities[number], number % 2 if self.bucketed else 0), []).append(number)
        for lane in lanes.values():
            assert lane == sorted(lane)


TestServer = ServerMachine.TestCase
TestServer.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
