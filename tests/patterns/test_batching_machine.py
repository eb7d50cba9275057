"""Any schedule of submissions, cancellations, failures, losses and stops: each request ends once."""

import asyncio
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from machine_lab import Call, RequestMachine, machine_settings

import callboard as cb
from callboard.patterns.batching.server import DynamicBatchingServer

POISON = 13


class ServerMachine(RequestMachine):
    """A batching server, whose function is answered by the rules; items are the numbers of requests."""

    errors = (*RequestMachine.errors, cb.BadBatchResult)

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        dispatch=st.sampled_from(["adaptive", "idle", "window"]),
        concurrent=st.integers(1, 2),
        on_error=st.sampled_from(["fail", "bisect", "retry_single", None]),
        max_queue_cost=st.sampled_from([None, 8.0]),
        bucketed=st.booleans(),
        join=st.booleans(),
        order=st.sampled_from(["arrival", "deadline"]),
        preserve=st.booleans(),
        timeout_action=st.sampled_from(["reject", "delay"]),
    )
    def make(
        self,
        overflow: Any,
        dispatch: Any,
        concurrent: int,
        on_error: Any,
        max_queue_cost: Any,
        bucketed: bool,
        join: bool,
        order: Any,
        preserve: bool,
        timeout_action: Any,
    ) -> None:
        self.idempotent = on_error is not None
        self.in_order = concurrent == 1 and order == "arrival" and timeout_action == "reject"
        self.preserve = preserve
        self.bucketed = bucketed
        self.priorities: dict[int, int] = {}
        self.first_runs: list[int] = []
        self.server = DynamicBatchingServer[int, int](
            self.model,
            max_batch=3,
            max_wait=0.010,
            batches=cb.BatchOptions(
                dispatch=dispatch,
                join_buckets=join and bucketed,
                preserve_order=preserve,
                timeout_action=timeout_action,
            ),
            bucket=(lambda item: 1 + item % 2) if bucketed else None,
            max_queue=5,
            queue=cb.QueueOptions(max_cost=max_queue_cost, overflow=overflow, block_timeout=0.5, order=order),
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
        return await self.answered(items)

    def value_of(self, call: Call) -> Any:
        return [2 * item for item in call.item]

    # -- what callers do -----------------------------------------------------------------------------------------------

    @rule(
        n=st.integers(1, 4),
        priority=st.integers(0, 2),
        cost=st.integers(1, 3),
        timeout=st.sampled_from([None, None, 0.005, 0.05]),
    )
    def submit(self, n: int, priority: int, cost: int, timeout: float | None) -> None:
        self.priorities |= dict.fromkeys(self.numbers(n), priority)
        options = {"priority": priority, "cost": cost, "timeout": timeout}
        self.launch([self.doubled(number, **options) for number in self.numbers(n)])

    # -- what the function does ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(how=st.sampled_from(["value", "value", "value", "raise", "lose", "short", "items"]), last=st.booleans())
    def answer(self, how: str, last: bool) -> None:
        call = self.calls[-1 if last else 0]
        values: list[Any] = [2 * item for item in call.item]
        if how == "raise" or (how == "value" and POISON in call.item):
            self.do(call.gate.set_exception, ValueError("no"))
        elif how == "lose":
            self.do(call.gate.set_exception, cb.ContextPoisoned("lost"))
        elif how == "short":
            self.do(call.gate.set_result, values[1:])
        else:
            self.do(call.gate.set_result, [ValueError("this one"), *values[1:]] if how == "items" else values)

    @rule()
    def flush(self) -> None:
        self.do(self.server.flush_now)

    @staticmethod
    def ended_by_batch(task: "asyncio.Task[Any]") -> bool:
        other = (cb.QueueFull, cb.DeadlineExceeded, cb.ServerStopped)
        return not task.cancelled() and not isinstance(task.exception(), other)

    def check(self) -> None:
        """Within a priority and a bucket, requests run in the order of their submission."""
        if self.preserve:
            by_batches = [number for number in self.ended if self.ended_by_batch(self.tasks[number])]
            assert by_batches == sorted(by_batches)
        if not self.in_order:
            return
        lanes: dict[tuple[int, int], list[int]] = {}
        for number in self.first_runs:
            lanes.setdefault((self.priorities[number], number % 2 if self.bucketed else 0), []).append(number)
        for lane in lanes.values():
            assert lane == sorted(lane)


TestServer = ServerMachine.TestCase
TestServer.settings = machine_settings(100)
