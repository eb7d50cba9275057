"""Any schedule of submissions, cancellations, failures, losses and stops: each request ends once, in its own tokens."""

import contextlib
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from machine_lab import Call, RequestMachine, machine_settings
from speculative_lab import VOCABULARY, TableModel, TreeModel, plain

import callboard as cb


class DecoderMachine(RequestMachine):
    """A decoder, whose target and draft are let go by the rules."""

    streams = True
    errors = (*RequestMachine.errors, cb.BadBatchResult, cb.Quarantined)

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        adaptive=st.booleans(),
        draft=st.sampled_from(["function", "model", "n-gram", "suffixes", "none"]),
    )
    def make(self, overflow: Any, adaptive: bool, draft: str) -> None:
        self.target = TreeModel()
        self.small = TableModel(noise=0.3)
        drafts: dict[str, Any] = {
            "function": self.propose,
            "model": cb.ModelDraft(self.small),
            "n-gram": cb.NGramDraft(),
            "suffixes": cb.SuffixDraft(shared=True),
            "none": None,
        }
        self.server = cb.SpeculativeDecoder(
            cb.Model(self.forward, self.target.begin, self.forward_tree),
            drafts[draft],
            k=3,
            adaptive=adaptive,
            max_total_tokens=16,
            max_batch=2,
            max_queue=4,
            queue=cb.QueueOptions(max_cost=9, overflow=overflow, block_timeout=0.5),
            clock=self.clock,
        )
        self.run(self.server.start())

    async def forward(self, *given: Any) -> Any:
        return await self.passed(self.target.forward, *given)

    async def forward_tree(self, *given: Any) -> Any:
        return await self.passed(self.target.forward_tree, *given)

    async def passed(self, work: Any, *given: Any) -> Any:
        how = await self.answered(None)
        if how == "raise":
            raise ValueError("no")
        if how == "lose":
            raise cb.ContextPoisoned("lost")
        return [] if how == "short" else await work(*given)

    async def propose(self, prefix: list[int], k: int) -> Any:
        how = await self.answered(None)
        if how == "raise":
            raise ValueError("no")
        return [99] if how == "short" else plain(self.target, prefix, k)[len(prefix) :]

    async def request(self, number: int, new: int, streamed: bool, **options: Any) -> None:
        prefix = [number % VOCABULARY] * (1 + number % 3)
        request = cb.Decode(prefix, max_new_tokens=new)
        if streamed:
            async with contextlib.aclosing(self.server.stream(request, buffer=2, **options)) as stream:
                tokens = [*prefix, *[token async for token in stream]]
        else:
            tokens = (await self.server.submit(request, **options)).tokens
        assert tokens == plain(self.target, prefix, new), "other tokens"

    def value_of(self, call: Call) -> Any:
        return "value"

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
        self.launch([self.request(number, new, streamed, **options) for number in self.numbers(n)])

    # -- what models do ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(how=st.sampled_from(["value", "value", "value", "value", "raise", "lose", "short"]))
    def answer(self, how: str) -> None:
        self.do(self.calls[0].gate.set_result, how)

    @precondition(lambda self: self.calls)
    @rule(times=st.integers(2, 20))
    def answer_many(self, times: int) -> None:
        for _ in range(times):
            if self.calls:
                self.answer("value")

    def check(self) -> None:
        assert self.target.opened == self.target.closed
        assert self.small.opened == self.small.closed


TestDecoder = DecoderMachine.TestCase
TestDecoder.settings = machine_settings(40)
