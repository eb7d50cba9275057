"""Any schedule of submissions, cancellations, failures, losses and stops of a router: each request ends once."""

import asyncio
from typing import Any

import numpy as np
from batching_lab import turns
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import callboard as cb
from callboard.actors import ManualClock

ENDS = (ValueError, cb.ContextPoisoned, cb.BadGate, cb.BadExpertResult, cb.QueueFull, cb.DeadlineExceeded)
ENDS = (*ENDS, cb.ServerStopped)
EXPERTS = 3


class Call:
    """A call of the gate or of an expert that the rules answer."""

    def __init__(self, rows: np.ndarray, answer: Any) -> None:
        self.rows = rows
        self.answer = answer
        self.gate = asyncio.get_running_loop().create_future()


class RouterMachine(RuleBasedStateMachine):
    """A router in virtual time. Tokens are the number of their request, and each expert doubles them."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.router: cb.MoeRouter | None = None

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        concurrent=st.integers(1, 2),
        policy=st.sampled_from(["fail", "renormalise"]),
        capacity=st.sampled_from(["dropless", "reroute"]),
        tokens=st.sampled_from([None, 8.0]),
        shared=st.booleans(),
    )
    def make(self, overflow: Any, concurrent: int, policy: Any, capacity: Any, tokens: Any, shared: bool) -> None:
        self.ended: dict[int, int] = {}
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.gone: set[int] = set()
        self.calls: list[Call] = []
        self.stopping: list[asyncio.Task[Any]] = []
        self.factor = 3 if shared else 2
        self.router = cb.MoeRouter(
            self.gate,
            [self.expert] * EXPERTS,
            shared=[self.shared] if shared else [],
            capacity=capacity,
            capacity_factor=1.5,
            on_expert_error=policy,
            max_concurrent=concurrent,
            max_queue=4,
            max_queue_tokens=tokens,
            overflow=overflow,
            block_timeout=0.5,
            clock=self.clock,
        )
        self.run(self.router.start())

    async def called(self, rows: np.ndarray, answer: Any) -> Any:
        assert len(rows)
        assert not self.gone.intersection(rows[:, 0].tolist()), "a request went on after its end"
        call = Call(rows, answer)
        self.calls.append(call)
        try:
            return await call.gate
        finally:
            self.calls.remove(call)

    async def gate(self, x: np.ndarray) -> Any:
        logits = np.random.default_rng(int(x[0, 0])).standard_normal((len(x), EXPERTS))
        return await self.called(x, logits)

    async def expert(self, rows: np.ndarray) -> Any:
        return await self.called(rows, 2 * rows)

    async def shared(self, rows: np.ndarray) -> Any:
        return await self.called(rows, rows)

    def run(self, work: Any) -> Any:
        async def go() -> Any:
            result = await work
            await turns(12)
            return result

        return self.loop.run_until_complete(go())

    async def request(self, number: int, tokens: int, **options: Any) -> Any:
        assert self.router is not None
        try:
            found = await self.router.submit(np.full((tokens, 2), float(number)), **options)
        except (*ENDS, asyncio.CancelledError):
            self.gone.add(number)
            raise
        else:
            assert np.allclose(found.output, self.factor * number), "another request's value"
            assert found.load.sum() == 2 * tokens - found.dropped
            return found
        finally:
            self.ended[number] = self.ended.get(number, 0) + 1

    # -- what callers do -----------------------------------------------------------------------------------------------

    @rule(
        n=st.integers(1, 3), tokens=st.integers(1, 4), priority=st.integers(0, 2), timeout=st.sampled_from([None, 0.01])
    )
    def submit(self, n: int, tokens: int, priority: int, timeout: float | None) -> None:
        async def go() -> None:
            for _ in range(n):
                number = len(self.tasks) + 1
                work = self.request(number, tokens, priority=priority, timeout=timeout)
                self.tasks[number] = asyncio.create_task(work)

        self.run(go())

    @precondition(lambda self: any(not task.done() for task in self.tasks.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([number for number, task in self.tasks.items() if not task.done()]))

        async def go() -> None:
            self.tasks[number].cancel()

        self.run(go())

    # -- what gate and experts do --------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(
        how=st.sampled_from(["value", "value", "value", "value", "raise", "lose", "short", "nan"]),
        last=st.booleans(),
        all_=st.booleans(),
    )
    def answer(self, how: str, last: bool, all_: bool) -> None:
        async def go() -> None:
            for call in list(self.calls) if all_ else [self.calls[-1 if last else 0]]:
                if call.gate.done():
                    continue
                if how == "raise":
                    call.gate.set_exception(ValueError("no"))
                elif how == "lose":
                    call.gate.set_exception(cb.ContextPoisoned("lost"))
                elif how == "short":
                    call.gate.set_result(call.answer[1:])
                elif how == "nan" and call.answer.shape[1] == EXPERTS:
                    call.gate.set_result(call.answer * np.nan)
                else:
                    call.gate.set_result(call.answer)

        self.run(go())

    @rule(seconds=st.sampled_from([0.004, 0.5]))
    def advance(self, seconds: float) -> None:
        async def go() -> None:
            self.clock.advance(seconds)

        self.run(go())

    @precondition(lambda self: len(self.tasks) > 8)
    @rule(now=st.booleans())
    def end(self, now: bool) -> None:
        async def go() -> None:
            assert self.router is not None
            work: Any = self.router.stop() if now else self.router.drain(timeout=0.2)
            self.stopping.append(asyncio.create_task(work))

        self.run(go())

    # -- what must hold ------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if self.router is not None:
            self.run(self.router.stop())
            for task in self.stopping:
                self.run(asyncio.wait_for(task, 5.0))
            assert all(task.done() for task in self.tasks.values()), "a request without an end"
            assert self.ended.keys() == self.tasks.keys()
            assert set(self.ended.values()) <= {1}
            wrong = [task.exception() for task in self.tasks.values() if not task.cancelled() and task.exception()]
            assert all(isinstance(error, ENDS) for error in wrong), wrong
            stats = self.router.stats()
            assert (stats.queued, stats.blocked, stats.running, stats.queued_cost) == (0, 0, 0, 0)
            assert stats.submitted == len(self.ended)
            assert stats.completed == sum(not task.cancelled() and not task.exception() for task in self.tasks.values())
            assert sum(stats.load) == 2 * stats.tokens - stats.choices_dropped
            assert self.clock.pending == 0
            assert not self.calls
        self.loop.close()


TestRouter = RouterMachine.TestCase
TestRouter.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
