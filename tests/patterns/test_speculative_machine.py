"""Any schedule of submissions, cancellations, failures, losses and stops: each request ends once, in its own tokens."""

import asyncio
from typing import Any

from batching_lab import turns
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from speculative_lab import VOCABULARY, TableModel, plain

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.errors import BadBatchResult, DeadlineExceeded, QueueFull, ServerStopped

ENDS = (ValueError, cb.ContextPoisoned, BadBatchResult, QueueFull, DeadlineExceeded, ServerStopped)


class DecoderMachine(RuleBasedStateMachine):
    """A decoder in virtual time, whose target and draft are let go by the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.server: cb.SpeculativeDecoder | None = None

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        adaptive=st.booleans(),
        draft=st.sampled_from(["function", "model", "n-gram", "none"]),
    )
    def make(self, overflow: Any, adaptive: bool, draft: str) -> None:
        self.target = TableModel()
        self.small = TableModel(noise=0.3)
        self.ended: dict[int, int] = {}  # number of the request: how often it has ended
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.gates: list[asyncio.Future[str]] = []
        self.stopping: list[asyncio.Task[Any]] = []
        drafts: dict[str, Any] = {
            "function": self.propose,
            "model": cb.ModelDraft(self.small),
            "n-gram": cb.NGramDraft(),
            "none": None,
        }
        self.server = cb.SpeculativeDecoder(
            cb.Model(self.forward, self.target.begin),
            drafts[draft],
            k=3,
            adaptive=adaptive,
            max_total_tokens=16,
            max_batch=2,
            max_queue=4,
            max_queue_cost=9,
            overflow=overflow,
            block_timeout=0.5,
            clock=self.clock,
        )
        self.run(self.server.start())

    async def gate(self) -> str:
        gate = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        try:
            return await gate
        finally:
            self.gates.remove(gate)

    async def forward(self, *given: Any) -> Any:
        how = await self.gate()
        if how == "raise":
            raise ValueError("no")
        if how == "lose":
            raise cb.ContextPoisoned("lost")
        return [] if how == "short" else await self.target.forward(*given)

    async def propose(self, prefix: list[int], k: int) -> Any:
        how = await self.gate()
        if how == "raise":
            raise ValueError("no")
        return [99] if how == "short" else plain(self.target, prefix, k)[len(prefix) :]

    def run(self, work: Any) -> Any:
        async def go() -> Any:
            result = await work
            await turns(12)
            return result

        return self.loop.run_until_complete(go())

    async def request(self, number: int, new: int, streamed: bool, **options: Any) -> None:
        assert self.server is not None
        prefix = [number % VOCABULARY] * (1 + number % 3)
        request = cb.Decode(prefix, max_new_tokens=new)
        try:
            if streamed:
                del options["cost"]
                tokens = [*prefix, *[token async for token in self.server.stream(request, **options)]]
            else:
                tokens = (await self.server.submit(request, **options)).tokens
            assert tokens == plain(self.target, prefix, new), "other tokens"
        finally:
            self.ended[number] = self.ended.get(number, 0) + 1

    # -- what callers do -----------------------------------------------------------------------------------------------

    @rule(
        n=st.integers(1, 4),
        new=st.integers(1, 9),
        priority=st.integers(0, 2),
        cost=st.integers(1, 3),
        streamed=st.booleans(),
        timeout=st.sampled_from([None, None, 0.005, 0.05]),
    )
    def submit(self, n: int, new: int, streamed: bool, **options: Any) -> None:
        async def go() -> None:
            for _ in range(n):
                number = len(self.tasks)
                self.tasks[number] = asyncio.create_task(self.request(number, new, streamed, **options))
                await asyncio.sleep(0)  # a task that never ran has no end to count

        self.run(go())

    @precondition(lambda self: any(not task.done() for task in self.tasks.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        open_ = [number for number, task in self.tasks.items() if not task.done()]
        number = data.draw(st.sampled_from(open_))

        async def go() -> None:
            self.tasks[number].cancel()

        self.run(go())

    # -- what models do ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.gates)
    @rule(how=st.sampled_from(["value", "value", "value", "value", "raise", "lose", "short"]))
    def answer(self, how: str) -> None:
        async def go() -> None:
            if not self.gates[0].done():
                self.gates[0].set_result(how)

        self.run(go())

    @precondition(lambda self: self.gates)
    @rule(times=st.integers(2, 20))
    def answer_many(self, times: int) -> None:
        for _ in range(times):
            if self.gates:
                self.answer("value")

    @rule(seconds=st.sampled_from([0.001, 0.004, 0.010, 0.5]))
    def advance(self, seconds: float) -> None:
        async def go() -> None:
            self.clock.advance(seconds)

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
            assert self.ended == dict.fromkeys(self.tasks, 1)
            wrong = {n: task.exception() for n, task in self.tasks.items() if not task.cancelled() and task.exception()}
            assert all(isinstance(error, ENDS) for error in wrong.values()), wrong
            stats = self.server.stats()
            assert (stats.queued, stats.blocked, stats.running) == (0, 0, 0)
            assert stats.submitted == len(self.ended)
            assert stats.completed == sum(not task.cancelled() and not task.exception() for task in self.tasks.values())
            assert self.target.opened == self.target.closed
            assert self.small.opened == self.small.closed
            assert self.clock.pending == 0
        self.loop.close()


TestDecoder = DecoderMachine.TestCase
TestDecoder.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
