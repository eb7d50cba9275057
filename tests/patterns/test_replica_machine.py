"""Any schedule of submissions, cancellations, failures, hedges, restarts and stops: each request ends once."""

import asyncio
import contextlib
from typing import Any

from batching_lab import turns
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from machine_lab import Call, RequestMachine, machine_settings
from pool_lab import no_broken_callback

import callboard as cb
from callboard.patterns.replicas.ejection import Ejection
from callboard.patterns.replicas.hedging import Hedging
from callboard.patterns.replicas.server import ModelReplicaPool

LIMIT = 2


class PoolMachine(RequestMachine):
    """A pool, whose replicas are answered by the rules; items are the numbers of requests."""

    errors = (*RequestMachine.errors, OSError, cb.NoReplica)

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(no_broken_callback(self.loop))

    @initialize(
        policy=st.sampled_from(["round_robin", "least_outstanding", "p2c", "consistent_hash"]),
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        again=st.sampled_from(["never", "idempotent", "hedged"]),
        n=st.integers(1, 3),
    )
    def make(self, policy: Any, overflow: Any, again: str, n: int) -> None:
        self.again = again
        self.runs: dict[int, int] = {}  # by request
        self.server = ModelReplicaPool[int, int](
            n,
            make=self.replica,
            policy=policy,
            key=lambda item: item % 3,
            max_ongoing=LIMIT,
            max_queue=4,
            queue=cb.QueueOptions(overflow=overflow, block_timeout=0.5),
            idempotent=again != "never",
            attempts=3,
            hedging=Hedging(samples=1, budget=1.0, quantile=0.5) if again == "hedged" else None,
            ejection=Ejection(errors=2, samples=2, backoff=0.1),
            clock=self.clock,
        )
        self.run(self.server.start())

    def replica(self, name: str) -> Any:
        running: list[int] = []  # of this one: a restarted one's calls may linger for an iteration

        async def run(item: int) -> int:
            assert item not in self.gone, "an item ran after its end"
            self.runs[item] = self.runs.get(item, 0) + 1
            assert self.again != "never" or self.runs[item] == 1, "an item ran twice without leave"
            assert len(running) < LIMIT, "more than max_ongoing"
            running.append(item)
            try:
                return int(await self.answered(item))
            finally:
                running.remove(item)

        return run

    def value_of(self, call: Call) -> Any:
        return 2 * call.item

    # -- what callers do -----------------------------------------------------------------------------------------------

    @rule(n=st.integers(1, 4), priority=st.integers(0, 2), timeout=st.sampled_from([None, None, 0.005, 0.05]))
    def submit(self, n: int, **options: Any) -> None:
        self.launch([self.doubled(number, **options) for number in self.numbers(n)])

    # -- what replicas do ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(how=st.sampled_from(["value", "value", "value", "item", "fault", "lose"]), last=st.booleans())
    def answer(self, how: str, last: bool) -> None:
        call = self.calls[-1 if last else 0]
        if how == "value":
            self.do(call.gate.set_result, 2 * call.item)
        else:
            errors = {"item": ValueError("no"), "fault": OSError("broken"), "lose": cb.ContextPoisoned("lost")}
            self.do(call.gate.set_exception, errors[how])

    # -- what the operator does ----------------------------------------------------------------------------------------

    @rule(what=st.sampled_from(["drain", "resume", "restart"]), data=st.data())
    def one(self, what: str, data: st.DataObject) -> None:
        names = [each.name for each in self.server.stats().replicas]
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        if what == "drain":
            self.start_beside(self.server.drain_replica(name, timeout=0.2))
        elif what == "resume":
            with contextlib.suppress(KeyError):  # the pool has stopped
                self.server.resume(name)
            self.run(asyncio.sleep(0))
        else:
            self.start_beside(self.server.restart(name, timeout=0.2))

    @rule(n=st.integers(1, 4))
    def scale(self, n: int) -> None:
        self.start_beside(self.server.scale(n))

    # -- what must hold ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        for _ in range(20):  # what operators have begun ends
            self.advance(0.1)
        for replica in self.server.stats().replicas:
            with contextlib.suppress(KeyError):
                self.server.resume(replica.name)
        super().settle()

    def stop(self) -> None:
        self.run(self.server.stop())
        for other in self.beside:
            self.run(self.over(other))

    def check(self) -> None:
        stats = self.server.stats()
        assert stats.hedges_won <= stats.hedged
        assert all(each.ongoing == 0 for each in stats.replicas)

    def teardown(self) -> None:
        super().teardown()
        self.stack.close()

    async def over(self, other: asyncio.Task[Any]) -> None:
        """Wait for what an operator has begun; it may have been overtaken by the end of the pool, or by another."""
        self.clock.advance(1.0)
        await turns()
        assert other.done(), other
        with contextlib.suppress(cb.ServerStopped, KeyError):
            await other


TestPool = PoolMachine.TestCase
TestPool.settings = machine_settings(100)
