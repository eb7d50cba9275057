"""Any schedule of submissions, cancellations, failures, losses and stops: each request of each tenant ends once."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from machine_lab import Call, RequestMachine, machine_settings

import callboard as cb
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.fairshare.settings import Tenant

TENANTS: dict[Any, Tenant] = {
    "a": Tenant(weight=3, max_queue=2),
    "b": Tenant(max_in_flight=1, hard=True),
    "g": Tenant(max_in_flight=1),
    ("g", "x"): Tenant(rate=10, burst=1, hard=True),
}


class SchedulerMachine(RequestMachine):
    """A scheduler, whose function is answered by the rules; items are the numbers of requests."""

    limited = 0.05
    errors = (*RequestMachine.errors, cb.Quarantined)

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_newest_of_largest"]),
        slots=st.integers(1, 3),
        idempotent=st.booleans(),
        charge=st.sampled_from([None, "seconds"]),
    )
    def make(self, overflow: Any, slots: int, idempotent: bool, charge: Any) -> None:
        self.slots, self.idempotent = slots, idempotent
        self.runs: dict[int, int] = {}
        self.server = FairShareScheduler[int, int](
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
        self.run(self.server.start())

    async def model(self, item: int) -> Any:
        assert item not in self.gone, "an item ran after its end"
        self.runs[item] = self.runs.get(item, 0) + 1
        assert self.runs[item] <= (6 if self.idempotent else 1)
        while (found := await self.answered(item)) == "step":
            await self.server.yield_slot(1)
        return found

    def value_of(self, call: Call) -> Any:
        return 2 * call.item

    @rule(
        tenant=st.sampled_from(["a", "b", ("g", "x"), ("g", "y"), "other"]),
        n=st.integers(1, 3),
        priority=st.integers(0, 1),
        cost=st.integers(0, 3),
        timeout=st.sampled_from([None, None, 0.005, 0.05]),
    )
    def submit(self, n: int, **options: Any) -> None:
        self.launch([self.doubled(number, **options) for number in self.numbers(n)])

    @precondition(lambda self: self.calls)
    @rule(how=st.sampled_from(["value", "value", "value", "step", "step", "raise", "lose"]), data=st.data())
    def answer(self, how: str, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.calls))
        if how in ("value", "step"):
            self.do(call.gate.set_result, 2 * call.item if how == "value" else how)
        else:
            self.do(call.gate.set_exception, ValueError("no") if how == "raise" else cb.ContextPoisoned("lost"))

    @rule(tenant=st.sampled_from(["a", "b", "g"]), weight=st.sampled_from([1, 5]), hard=st.booleans())
    def change(self, tenant: str, weight: float, hard: bool) -> None:
        self.do(lambda: self.server.set(tenant, weight=weight, hard=hard))

    @invariant()
    def counts(self) -> None:
        if self.server is None:
            return
        stats = self.server.stats()
        ends = (stats.completed, stats.failed, stats.cancelled, stats.expired)
        assert sum(ends) + stats.rejected + stats.dropped + stats.stopped == len(self.ended)
        assert stats.submitted == len(self.tasks)
        assert stats.queued + stats.blocked + stats.running == len(self.tasks) - len(self.ended)
        assert len(self.calls) <= stats.in_flight <= self.slots  # a suspect may wait for its turn
        assert all(tenant.queued >= 0 and tenant.running >= 0 for tenant in stats.tenants.values())

    def check(self) -> None:
        assert self.server.stats().in_flight == 0


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = machine_settings(50, 30)
