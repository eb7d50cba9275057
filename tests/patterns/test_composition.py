"""A cascade of batchers over replica pools behind fair share: one request passes all of them, and ends once in each."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from batching_lab import no_internal_error, outcome, turns

import callboard as cb

LIMIT = 30.0


class Replica:
    """A model of batches. Numbers below ``sure_below`` are answered with certainty; a test may hold or break it."""

    def __init__(self, name: str, sure_below: int) -> None:
        self.name, self.sure_below = name, sure_below
        self.batches: list[list[int]] = []
        self.losses = 0
        self.go = asyncio.Event()
        self.go.set()
        self.cancelled = 0

    async def __call__(self, items: list[int]) -> list[tuple[str, float]]:
        self.batches.append(items)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await asyncio.sleep(0)
        if self.losses:
            self.losses -= 1
            raise cb.ContextPoisoned("lost")
        return [(f"{self.name[:-1]} {item}", float(item < self.sure_below)) for item in items]


class Stack:
    """All the layers, and the replicas at the bottom."""

    def __init__(self, **options: Any) -> None:
        self.small = [Replica(f"small{n}", 50) for n in range(2)]
        self.large = [Replica(f"large{n}", 1000) for n in range(2)]
        shared: dict[str, Any] = {"idempotent": True, "ejection": None, "policy": "round_robin"}
        self.pools = [cb.ModelReplicaPool[Any, Any](each, **shared) for each in (self.small, self.large)]
        batching = {"max_batch": 4, "max_concurrent_batches": 2, "batches": cb.BatchOptions(dispatch="idle")}
        self.cascade = cb.InferenceCascade[int, str](
            [cb.CascadeStage(pool.submit, threshold=0.5, batching=batching) for pool in self.pools]
        )
        self.front = cb.FairShareScheduler[int, Any](
            self.cascade.submit, tenants={"a": 3, "b": 1}, max_in_flight=16, **options
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stack"]:
        small, large = self.pools
        with no_internal_error():
            async with asyncio.timeout(LIMIT), small, large, self.cascade, self.front:
                yield self


async def test_each_request_ends_once_in_its_own_value() -> None:
    async with Stack().running() as stack:
        stack.small[0].losses = stack.large[1].losses = 1
        found = await asyncio.gather(*(stack.front.submit(n, tenant="ab"[n % 2]) for n in range(100)))
        assert [reply.response for reply in found] == [f"{'small' if n < 50 else 'large'} {n}" for n in range(100)]
        small, large = (pool.stats() for pool in stack.pools)
        stages = stack.cascade.stats().stages
        assert [stage.answered for stage in stages] == [50, 50]
        assert [stage.batching.completed for stage in stages] == [100, 50]
        assert [pool.completed for pool in (small, large)] == [stage.batching.batches for stage in stages]
        assert (small.repeated, large.repeated) == (1, 1)
        assert stack.front.stats().completed == stack.cascade.stats().completed == 100
        runs = Counter(item for replica in stack.small for batch in replica.batches for item in batch)
        assert set(runs) == set(range(100))
        assert max(runs.values()) == 2  # of the batch that was lost
        assert max(len(batch) for replica in stack.small for batch in replica.batches) == 4


async def test_a_caller_that_leaves_leaves_all_layers() -> None:
    async with Stack().running() as stack:
        for replica in stack.small:
            replica.go.clear()
        running = [asyncio.create_task(stack.front.submit(n, tenant="a")) for n in range(8)]
        await turns()
        waiting = asyncio.create_task(stack.front.submit(8, tenant="b"))
        await turns()
        for task in (running[0], waiting):
            task.cancel()
            assert isinstance(await outcome(task), asyncio.CancelledError)
        await turns()
        assert stack.front.stats().cancelled == 2
        for replica in stack.small:
            replica.go.set()
        assert [(await task).response for task in running[1:]] == [f"small {n}" for n in range(1, 8)]
    items = [item for replica in stack.small for batch in replica.batches for item in batch]
    assert sorted(items) == list(range(8))


async def test_shares_hold_in_front_of_the_batches() -> None:
    order: list[str] = []
    async with Stack().running() as stack:
        for replica in stack.small:
            replica.go.clear()

        async def ask(tenant: str) -> None:
            await stack.front.submit(1, tenant=tenant)
            order.append(tenant)

        tasks = [asyncio.create_task(ask(tenant)) for tenant in ("b" * 60 + "a" * 60)]
        await turns()
        for replica in stack.small:
            replica.go.set()
        await asyncio.gather(*tasks)
    both = Counter(order[16:76])  # behind those that were let in first
    assert both["a"] == pytest.approx(45, abs=4)


async def test_an_end_from_the_front_ends_all() -> None:
    async with Stack().running() as stack:
        for replica in (*stack.small, *stack.large):
            replica.go.clear()
        tasks = [asyncio.create_task(stack.front.submit(n, tenant="a")) for n in range(30)]
        await turns()
        await stack.front.stop()
        assert {type(await outcome(task)) for task in tasks} == {cb.ServerStopped}
        await turns()
        assert stack.cascade.stats().running == stack.cascade.stats().queued == 0
        for replica in (*stack.small, *stack.large):
            replica.go.set()
    for server in (stack.front, stack.cascade, *stack.pools):
        stats: Any = server.stats()  # type: ignore[attr-defined]
        assert (stats.queued, stats.running) == (0, 0)
        ends = (stats.completed, stats.failed, stats.cancelled, stats.expired, stats.rejected, stats.stopped)
        assert sum(ends) == stats.submitted
