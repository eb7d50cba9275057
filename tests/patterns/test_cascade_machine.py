"""Any schedule of submissions, cancellations, failures, losses and stops of a cascade: each request ends once."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from machine_lab import Call, RequestMachine, machine_settings

import callboard as cb
from callboard.patterns.cascade.server import InferenceCascade
from callboard.patterns.cascade.stages import CascadeStage

SURE = [0.0, None, 1.0]
"""Confidence of each stage; that of None is in odd numbers only."""


class CascadeMachine(RequestMachine):
    """A cascade of three stages, whose functions are answered by the rules; items are the numbers of requests."""

    errors = (*RequestMachine.errors, cb.BadBatchResult)

    @initialize(
        policies=st.tuples(*[st.sampled_from(["escalate", "fallback", "fail"])] * 3),
        shadow=st.booleans(),
        ahead=st.booleans(),
        drift=st.booleans(),
    )
    def make(self, policies: Any, shadow: bool, ahead: bool, drift: bool) -> None:
        stages = [
            CascadeStage(self.stage(n), 0.5, timeout=2.0, on_error=policy, batching={"max_batch": 2, "max_queue": 3})
            for n, policy in enumerate(policies)
        ]
        self.server = InferenceCascade[Any, Any](
            stages, shadow=float(shadow), ahead=ahead, drift=cb.Drift(window=10) if drift else None, clock=self.clock
        )
        self.run(self.server.start())

    def stage(self, number: int) -> Callable[[list[int]], Any]:
        async def model(items: list[int]) -> Any:
            assert 0 < len(items) <= 2
            return await self.answered(items, number)

        return model

    def value_of(self, call: Call) -> Any:
        sure = SURE[call.answer]
        return [(10 * n, float(n % 2) if sure is None else sure) for n in call.item]

    async def request(self, number: int, timeout: float | None) -> None:
        reply = await self.server.submit(number, timeout=timeout)
        assert reply.response == 10 * number, "another request's value"

    # -- rules ---------------------------------------------------------------------------------------------------------

    @rule(n=st.integers(1, 3), timeout=st.sampled_from([None, None, 0.5, 5.0]))
    def submit(self, n: int, timeout: float | None) -> None:
        self.launch([self.request(number, timeout) for number in self.numbers(n)])

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from(["value", "value", "raise", "lose", "short"]))
    def answer(self, data: st.DataObject, how: str) -> None:
        call = data.draw(st.sampled_from(self.calls))
        if how in ("raise", "lose"):
            self.do(call.gate.set_exception, ValueError("no") if how == "raise" else cb.ContextPoisoned("lost"))
        else:
            self.do(call.gate.set_result, [] if how == "short" else self.value_of(call))

    @rule(seconds=st.sampled_from([0.6, 3.0]))
    def wait(self, seconds: float) -> None:
        self.do(self.clock.advance, seconds)

    @invariant()
    def counts(self) -> None:
        if self.server is not None:
            stats = self.server.stats()
            assert stats.submitted == len(self.tasks)
            assert stats.running == len(self.tasks) - len(self.ended)
            assert sum(each.answered for each in stats.stages) == stats.completed


TestCascade = CascadeMachine.TestCase
TestCascade.settings = machine_settings(40, steps=30)
