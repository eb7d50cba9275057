"""Any schedule of submissions, cancellations, failures, losses and stops of a router: each request ends once."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from machine_lab import Call, RequestMachine, machine_settings

import callboard as cb

EXPERTS = 3


class RouterMachine(RequestMachine):
    """A router. Tokens are the number of their request and 1, and each expert doubles them."""

    errors = (*RequestMachine.errors, cb.BadGate, cb.BadExpertResult)

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        concurrent=st.integers(1, 2),
        policy=st.sampled_from(["fail", "renormalise"]),
        capacity=st.sampled_from(["dropless", "reroute"]),
        tokens=st.sampled_from([None, 8.0]),
        shared=st.booleans(),
    )
    def make(self, overflow: Any, concurrent: int, policy: Any, capacity: Any, tokens: Any, shared: bool) -> None:
        self.factor = 3 if shared else 2
        self.server = cb.MoeRouter(
            self.gate,
            [self.expert] * EXPERTS,
            shared=[self.shared] if shared else [],
            capacity=capacity,
            capacity_factor=1.5,
            on_expert_error=policy,
            max_concurrent=concurrent,
            max_queue=4,
            queue=cb.QueueOptions(max_cost=tokens, overflow=overflow, block_timeout=0.5),
            clock=self.clock,
        )
        self.run(self.server.start())

    async def called(self, rows: np.ndarray, answer: Any) -> Any:
        assert len(rows)
        assert not self.gone.intersection((rows[:, 0] - 1).tolist()), "a request went on after its end"
        return await self.answered(rows, answer)

    async def gate(self, x: np.ndarray) -> Any:
        logits = np.random.default_rng(int(x[0, 0])).standard_normal((len(x), EXPERTS))
        return await self.called(x, logits)

    async def expert(self, rows: np.ndarray) -> Any:
        return await self.called(rows, 2 * rows)

    async def shared(self, rows: np.ndarray) -> Any:
        return await self.called(rows, rows)

    async def request(self, number: int, tokens: int, **options: Any) -> None:
        found = await self.server.submit(np.full((tokens, 2), number + 1.0), **options)
        assert np.allclose(found.output, self.factor * (number + 1)), "another request's value"
        assert found.load.sum() == 2 * tokens - found.dropped

    def value_of(self, call: Call) -> Any:
        return call.answer

    # -- what callers do -----------------------------------------------------------------------------------------------

    @rule(
        n=st.integers(1, 3), tokens=st.integers(1, 4), priority=st.integers(0, 2), timeout=st.sampled_from([None, 0.01])
    )
    def submit(self, n: int, tokens: int, **options: Any) -> None:
        self.launch([self.request(number, tokens, **options) for number in self.numbers(n)])

    # -- what gate and experts do --------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(
        how=st.sampled_from(["value", "value", "value", "value", "raise", "lose", "short", "nan"]),
        last=st.booleans(),
        all_=st.booleans(),
    )
    def answer(self, how: str, last: bool, all_: bool) -> None:
        for call in list(self.calls) if all_ else [self.calls[-1 if last else 0]]:
            if call.gate.done():
                continue
            if how in ("raise", "lose"):
                self.do(call.gate.set_exception, ValueError("no") if how == "raise" else cb.ContextPoisoned("lost"))
            elif how == "short":
                self.do(call.gate.set_result, call.answer[1:])
            else:
                spoiled = how == "nan" and call.answer.shape[1] == EXPERTS
                self.do(call.gate.set_result, call.answer * np.nan if spoiled else call.answer)

    def check(self) -> None:
        stats = self.server.stats()
        assert stats.queued_cost == 0
        assert sum(stats.load) == 2 * stats.tokens - stats.choices_dropped


TestRouter = RouterMachine.TestCase
TestRouter.settings = machine_settings(60)
