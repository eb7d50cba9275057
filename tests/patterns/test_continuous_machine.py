"""Any schedule of submissions, cancellations, slow readers, failures, losses and stops: sequences in steps end once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from machine_lab import Call, RequestMachine, machine_settings

import callboard as cb


class Bad(Exception):
    """A step failed because of the request of this number."""


class StepMachine(RequestMachine):
    """Sequences count from 0 to below their items; the rules answer the steps, and read the streams."""

    streams = True
    errors = (*RequestMachine.errors, cb.BadBatchResult, cb.ItemTooLarge, cb.Quarantined, cb.SlowReader, Bad)

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        preemption=st.sampled_from(["for_room", "for_priority"]),
        budget=st.sampled_from([None, 5.0, 12.0]),
        admitted=st.sampled_from([None, 3.0]),
        ageing=st.sampled_from([None, 0.01]),
    )
    def make(self, overflow: Any, preemption: Any, budget: Any, admitted: Any, ageing: Any) -> None:
        self.open: set[int] = set()
        self.blamed: dict[int, Any] = {}
        self.server = cb.ContinuousBatchingServer[Any, int](
            self.step,
            close=self.closed,
            cost=lambda item: item[1],
            max_batch=3,
            max_batch_cost=budget,
            part_cost=1,
            max_admitted_cost=admitted,
            preemption=preemption,
            queue=cb.QueueOptions(ageing=ageing, overflow=overflow, block_timeout=0.5),
            max_queue=5,
            clock=self.clock,
        )
        self.budget = budget
        self.run(self.server.start())

    async def step(self, slots: list[Any]) -> Any:
        assert 0 < len(slots) <= 3
        assert len({slot.number for slot in slots}) == len(slots)
        for slot in slots:
            assert slot.item[0] not in self.gone, "a step ran a sequence that had ended"
            assert slot.fresh == (slot.state is None)
            assert slot.fresh or slot.number in self.open, "it ran after it was closed"
            self.open.add(slot.number)
            slot.state = slot.state or "state"
        if self.budget is not None:
            assert sum(slot.cost for slot in slots) <= self.budget, "beyond the budget"
        bad = next((slot.item for slot in slots if slot.item[3] == len(slot.parts)), None)
        found = await self.answered(slots)
        if bad is not None:
            raise Bad(bad[0])
        return found

    def closed(self, slot: Any) -> None:
        self.open.discard(slot.number)

    async def request(self, number: int, parts: int, cost: int, streamed: bool, bad: Any, **options: Any) -> None:
        item = (number, cost, parts, bad)
        try:
            if streamed:
                stream = self.server.stream(item, buffer=2, patience=0.3, **options)
                async with contextlib.aclosing(self.read(stream)) as r:
                    found = [part async for part in r]
            else:
                found = await self.server.submit(item, **options)
        except Bad as e:
            self.blamed[number] = e.args
            raise
        assert found == list(range(parts)), "other parts"
        assert bad is None or bad >= parts, "it cannot be done"

    async def read(self, stream: Any) -> AsyncIterator[int]:
        async with contextlib.aclosing(stream):
            async for part in stream:
                yield part
                if part % 2:
                    await self.pause()

    async def pause(self) -> None:
        """A reader does something else, until time passes."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.clock.call_later(0.004, lambda: over.done() or over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()

    @rule(
        n=st.integers(1, 4),
        parts=st.integers(0, 6),
        cost=st.integers(1, 3),
        streamed=st.booleans(),
        bad=st.sampled_from([None, None, None, 0, 1, 3]),
        priority=st.integers(0, 2),
        timeout=st.sampled_from([None, None, 0.005, 0.05]),
    )
    def submit(self, n: int, parts: int, cost: int, streamed: bool, bad: Any, **options: Any) -> None:
        """Some requests, the last of which may make steps fail."""
        *good, last = self.numbers(n)
        works = [self.request(number, parts, cost, streamed, None, **options) for number in good]
        self.launch([*works, self.request(last, parts, cost, streamed, bad, **options)])

    @precondition(lambda self: self.calls)
    @rule(
        how=st.sampled_from(["value"] * 6 + ["raise", "lose", "short", "one"]),
        times=st.sampled_from([1, 1, 4]),
    )
    def answer(self, how: str, times: int) -> None:
        for _ in range(times):
            if not self.calls or self.calls[0].gate.done():
                return
            gate, slots = self.calls[0].gate, self.calls[0].item
            values = [self.part(slot) for slot in slots]
            if how == "raise":
                self.do(gate.set_exception, ValueError("no"))
            elif how == "lose":
                self.do(gate.set_exception, cb.ContextPoisoned("lost"))
            elif how == "short":
                self.do(gate.set_result, values[1:])
            elif how == "one":
                self.do(gate.set_result, [ValueError("this one"), *values[1:]])
            else:
                self.do(gate.set_result, values)

    def value_of(self, call: Call) -> Any:
        return [self.part(slot) for slot in call.item]

    def part(self, slot: Any) -> Any:
        n, end = len(slot.parts), slot.item[2]
        if n == end:
            return cb.DONE
        return cb.Last(n) if n + 1 == end and slot.number % 2 else n

    @invariant()
    def counts(self) -> None:
        if self.server is None:
            return
        stats = self.server.stats()
        assert stats.running <= 3 + len(self.calls)
        assert stats.submitted == len(self.tasks)
        assert stats.queued + stats.blocked + stats.running <= len(self.tasks) - len(self.gone)
        if self.budget is not None and not self.calls:
            assert stats.batch_cost <= self.budget + 3

    def stop(self) -> None:
        super().stop()
        for _ in range(4):  # readers finish what they have
            self.advance(0.004)

    def check(self) -> None:
        assert not self.open, "a sequence that was never closed"
        assert all(by == (number,) for number, by in self.blamed.items()), "another's failure"
        assert self.server.stats().batch_cost == 0


TestSteps = StepMachine.TestCase
TestSteps.settings = machine_settings(60)
