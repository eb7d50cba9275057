"""The fair scheduler in virtual time: tenants, slots, charges, failures and the end."""

import asyncio
import functools
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from batching_lab import outcome, turns

import callboard as cb
from callboard.actors import ManualClock
from callboard.actors.errors import AskTimeout
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.fairshare.settings import Tenant, UnknownTenant
from callboard.patterns.requests.errors import DeadlineExceeded, ItemTooLarge, QueueFull, ServerStopped


class Model:
    """A function that answers when the test says so; ``items`` are those that it was given."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._gates: list[asyncio.Future[Any]] = []

    async def __call__(self, item: Any) -> Any:
        self.items.append(item)
        gate = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        found = await gate
        if isinstance(found, BaseException):
            raise found
        return f"<{item}>" if found is None else found

    @property
    def waiting(self) -> int:
        return sum(not gate.done() for gate in self._gates)

    async def release(self, outcome: Any = None) -> None:
        """Answer the oldest call."""
        next(gate for gate in self._gates if not gate.done()).set_result(outcome)
        await turns()

    async def release_all(self) -> None:
        while self.waiting:
            await self.release()


@asynccontextmanager
async def lab(model: Any, clock: ManualClock, **options: Any) -> AsyncIterator[FairShareScheduler[Any, Any]]:
    """A scheduler in virtual time; stopped at the end, whatever the test left."""
    scheduler: FairShareScheduler[Any, Any] = FairShareScheduler(model, clock=clock, **options)
    await scheduler.start()
    try:
        yield scheduler
    finally:
        await scheduler.stop()


async def test_alone_in_a_few_lines() -> None:
    async def double(item: int) -> int:
        return 2 * item

    async with FairShareScheduler(double, max_in_flight=4) as scheduler:
        found = await asyncio.gather(*(scheduler.submit(n, tenant=n % 3) for n in range(100)))
    assert found == [2 * n for n in range(100)]
    stats = scheduler.stats()
    assert (stats.submitted, stats.completed, stats.total_dispatched) == (100, 100, 100)
    assert (stats.queued, stats.running, stats.in_flight, stats.served) == (0, 0, 0, 100)


async def test_tenants_share_by_weight(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, tenants={"a": 1, "b": Tenant(3)}) as scheduler:
        for n in range(40):
            for tenant in "ab":
                scheduler.submit_nowait((tenant, n), tenant=tenant)
        await turns()
        for _ in range(40):
            await model.release()
        assert Counter(tenant for tenant, _ in model.items[:40]) == {"a": 10, "b": 30}
        stats = scheduler.stats()
        assert stats.tenants["a"].share == pytest.approx(0.25, abs=0.02)
        assert stats.tenants["b"].weight == 3
        assert stats.tenants["b"].running + stats.tenants["a"].running == stats.in_flight == 1
        assert stats.jain == pytest.approx(1, abs=0.01)
        assert stats.tenants["a"].queued == 40 - stats.tenants["a"].started
        assert abs(stats.tenants["a"].lag) <= 1
        assert scheduler.set("a", weight=3) == Tenant(3)
        start = Counter(tenant for tenant, _ in model.items)
        for _ in range(16):
            await model.release()
        more = Counter(tenant for tenant, _ in model.items) - start
        assert more["a"] == pytest.approx(8, abs=1)


async def test_closed_loop_tenants_share_by_weight_too(clock: ManualClock) -> None:
    """One client each, which submits its next request when it gets an answer: the turn waits for it."""
    model = Model()

    async def client(scheduler: FairShareScheduler[Any, Any], tenant: str) -> None:
        while True:
            await scheduler.submit(tenant, tenant=tenant)

    async with lab(model, clock, tenants={"a": 1, "b": 3}) as scheduler:
        clients = [asyncio.create_task(client(scheduler, tenant)) for tenant in "ab"]
        await turns()
        for _ in range(80):
            await model.release()
        for each in clients:
            each.cancel()
        counts = Counter(model.items)
        assert counts["b"] == pytest.approx(60, abs=2)


async def test_slots_run_at_once(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_in_flight=3) as scheduler:
        futures = [scheduler.submit_nowait(n, tenant=n) for n in range(5)]
        await turns()
        assert model.waiting == 3
        await model.release()
        assert model.waiting == 3
        await model.release_all()
        assert [await future for future in futures] == [f"<{n}>" for n in range(5)]


async def test_charges_are_seconds(clock: ManualClock) -> None:
    """Costs are not declared and differ ten to one: device time is shared equally."""
    used: Counter[str] = Counter()

    async def work(item: tuple[str, int]) -> None:
        tenant, milliseconds = item
        used[tenant] += milliseconds
        done = asyncio.get_running_loop().create_future()
        clock.call_later(milliseconds / 1000, done.set_result, None)
        await done

    async with lab(work, clock, charge="seconds", cost=lambda item: 0.001) as scheduler:
        for _ in range(200):
            scheduler.submit_nowait(("short", 1), tenant="short")
            scheduler.submit_nowait(("long", 10), tenant="long")
        await turns()
        while scheduler.stats().tenants["short"].queued:
            clock.advance(0.001)
            await turns(8)
        assert used["long"] / used.total() == pytest.approx(0.5, abs=0.02 + 10 / used.total())
        served = scheduler.stats().tenants["long"]
        assert served.served == pytest.approx(used["long"] / 1000, abs=0.011)


async def test_charges_are_what_a_function_says(clock: ManualClock) -> None:
    model = Model()

    def tokens(item: str, value: str, seconds: float) -> float:
        if value == "wrong":
            return float("nan")
        return len(value)

    async with lab(model, clock, charge=tokens) as scheduler:
        futures = [scheduler.submit_nowait(item, tenant="a") for item in ("abc", "x", "y", "z")]
        await turns()
        await model.release()
        await model.release("wrong")
        await model.release(KeyError("no"))
        assert scheduler.stats().tenants["a"].served == len("<abc>") + 1 + 1 + 1
        await model.release()
        assert await futures[0] == "<abc>"
        assert "charge is nan, but must be a finite number" in str(await outcome(futures[1]))
        assert isinstance(await outcome(futures[2]), KeyError)
        assert await futures[3] == "<z>"


async def test_groups_unknown_tenants_and_other_refusals(clock: ManualClock) -> None:
    tenants = {"acme": Tenant(max_in_flight=1, hard=True), ("acme", "bob"): 1, "solo": Tenant(max_queue_cost=5)}
    model = Model()
    async with lab(model, clock, tenants=tenants, default=None, max_in_flight=3) as scheduler:
        scheduler.submit_nowait(1, tenant=("acme", "bob"))
        scheduler.submit_nowait(2, tenant=("acme", "bob"))
        with pytest.raises(UnknownTenant, match="there is no tenant 'eve'"):
            await scheduler.submit(3, tenant="eve")
        with pytest.raises(UnknownTenant):
            scheduler.submit_nowait(3)
        with pytest.raises(ItemTooLarge):
            scheduler.submit_nowait(3, tenant="solo", cost=6)
        with pytest.raises(TypeError, match=r"tenant is \['solo'\]; it must be hashable"):
            scheduler.submit_nowait(3, tenant=["solo"])
        with pytest.raises(UnknownTenant):
            scheduler.set("eve", weight=2)
        with pytest.raises(ValueError, match="weight must be"):
            scheduler.set("solo", weight=-2)
        await turns()
        assert model.items == [1]  # its group's cap
        assert scheduler.set("acme", hard=False) == Tenant(max_in_flight=1)
        await turns()
        assert model.items == [1, 2]
        stats = scheduler.stats()
        assert (stats.rejected, stats.failed, stats.submitted) == (3, 1, 6)
        assert set(stats.tenants) == {("acme", "bob"), "solo"}


async def test_a_hard_rate_wakes_by_a_timer(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, tenants={"a": Tenant(rate=2, burst=1, hard=True)}, max_in_flight=9) as scheduler:
        futures = [scheduler.submit_nowait(n, tenant="a") for n in range(4)]
        await turns()
        assert model.items == [0, 1]
        clock.advance(0.49)
        await turns()
        assert model.items == [0, 1]
        clock.advance(0.02)
        await turns()
        assert model.items == [0, 1, 2]
        assert clock.pending == 1
        futures[3].cancel()
        clock.advance(5.0)
        await turns()
        assert (model.items, clock.pending) == ([0, 1, 2], 0)


async def test_deadlines_and_cancellations(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as scheduler:
        futures = [scheduler.submit_nowait(n, tenant=n, timeout=timeout) for n, timeout in enumerate([1, 1, 3, None])]
        await turns()
        futures[3].cancel()
        clock.advance(2.0)
        await turns()
        errors = [await outcome(future) for future in futures[:2]]
        assert [(type(error), error.stage) for error in errors] == [
            (DeadlineExceeded, "run"),
            (DeadlineExceeded, "queue"),
        ]
        assert model.items == [0, 2]  # the call is cancelled, and its slot is the next one's
        assert scheduler.stats().in_flight == 1
        await model.release()
        assert await futures[2] == "<2>"
        stats = scheduler.stats()
        assert (stats.expired, stats.cancelled, stats.completed, stats.in_flight) == (2, 1, 1, 0)


async def test_what_has_expired_is_not_run_though_its_timer_is_late(clock: ManualClock) -> None:
    """A loop that was busy: a slot is free before the timer of the deadline has fired."""
    model = Model()
    async with lab(model, clock) as scheduler:
        scheduler.submit_nowait(0, tenant="a")
        await turns()
        late = scheduler.submit_nowait(1, tenant="a", timeout=1)
        scheduler.submit_nowait(2, tenant="a")
        clock._now += 2.0
        await model.release()
        assert model.items == [0, 2]
        assert isinstance(await outcome(late), DeadlineExceeded)
        await model.release_all()


async def test_blocked_callers_wait_for_their_tenants_room(clock: ManualClock) -> None:
    model = Model()
    options = {"tenants": {"a": Tenant(max_queue=1)}, "overflow": "block", "block_timeout": 1.0}
    async with lab(model, clock, **options) as scheduler:
        tasks = [asyncio.create_task(scheduler.submit(n, tenant="a")) for n in range(4)]
        await turns()
        with pytest.raises(QueueFull, match="tenant 'a' is full"):
            scheduler.submit_nowait(9, tenant="a")
        assert (scheduler.stats().blocked, scheduler.stats().tenants["a"].blocked) == (2, 2)
        await model.release()
        assert scheduler.stats().blocked == 1
        clock.advance(1.0)
        await turns()
        error = await outcome(tasks[3])
        assert isinstance(error, QueueFull)
        assert error.retry_after is not None
        await model.release_all()
        assert [await task for task in tasks[:3]] == ["<0>", "<1>", "<2>"]


async def test_a_flood_loses_its_newest(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_queue=4, overflow="drop_newest_of_largest") as scheduler:
        flood = [scheduler.submit_nowait(n, tenant="flood") for n in range(4)]
        await turns()
        flood.append(scheduler.submit_nowait(4, tenant="flood"))
        quiet = scheduler.submit_nowait("q", tenant="quiet")
        assert isinstance(await outcome(flood[4]), QueueFull)
        assert scheduler.stats().dropped == 1
        await model.release_all()
        assert await quiet == "<q>"


async def test_one_failure_is_one_requests(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as scheduler:
        futures = [scheduler.submit_nowait(n, tenant="a") for n in range(2)]
        await turns()
        await model.release(ValueError("no"))
        await model.release()
        assert isinstance(await outcome(futures[0]), ValueError)
        assert await futures[1] == "<1>"


async def test_a_lost_context_is_tried_again_and_charged_once(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as scheduler:
        lost, other = (scheduler.submit_nowait(n, tenant="a") for n in range(2))
        await turns()
        await model.release(cb.ContextPoisoned("first"))
        assert scheduler.stats().repeated == 1
        await model.release(cb.ContextPoisoned("second"))
        await model.release(cb.ContextPoisoned("third"))
        assert model.items == [0, 0, 0, 1]
        assert isinstance(await outcome(lost), cb.Quarantined)
        assert scheduler.stats().served == 2
        await model.release()
        assert await other == "<1>"


async def test_without_leave_nothing_runs_twice(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, idempotent=False) as scheduler:
        lost = scheduler.submit_nowait(0)
        await turns()
        await model.release(cb.ContextPoisoned("first"))
        assert isinstance(await outcome(lost), cb.ContextPoisoned)
        assert model.items == [0]


async def test_stop_ends_all_and_drain_finishes_all(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as scheduler:
        futures = [scheduler.submit_nowait(n, tenant=n) for n in range(3)]
        await turns()
        await scheduler.stop()
        assert [type(await outcome(future)) for future in futures] == [ServerStopped] * 3
        assert scheduler.stats().in_flight == 0
        with pytest.raises(ServerStopped, match="has stopped"):
            scheduler.submit_nowait(4)
    model = Model()
    async with lab(model, clock) as scheduler:
        futures = [scheduler.submit_nowait(n, tenant=n) for n in range(3)]
        draining = asyncio.create_task(scheduler.drain())
        await turns()
        await model.release_all()
        assert await draining
        assert [await future for future in futures] == ["<0>", "<1>", "<2>"]


def test_threads_ask() -> None:
    """Plain functions run on threads; other threads ask."""
    ran: list[str] = []

    def work(item: int) -> int:
        ran.append(threading.current_thread().name)
        return 2 * item

    async def main() -> list[int]:
        async with FairShareScheduler(work, max_in_flight=2, tenants={"a": 1}, default=None) as scheduler:
            asks = [
                asyncio.to_thread(scheduler.ask, 1, 30.0, tenant="a"),
                asyncio.wrap_future(scheduler.submit_threadsafe(2, tenant="a")),
                asyncio.to_thread(lambda: asyncio.run(scheduler.submit(3, tenant="a"))),
            ]
            return list(await asyncio.gather(*asks))

    assert asyncio.run(main()) == [2, 4, 6]
    assert all(name.startswith("callboard-server") for name in ran)


async def test_an_ask_that_takes_too_long_is_cancelled() -> None:
    model = Model()
    async with FairShareScheduler(model) as scheduler:
        with pytest.raises(AskTimeout):
            await asyncio.to_thread(scheduler.ask, 1, 0.01, tenant="a")
        await turns()
        stats = scheduler.stats()
        assert (stats.submitted, stats.queued, stats.running) == (stats.cancelled, 0, 0)  # or it was late to come here
        await model.release_all()


async def test_ops_of_a_device_and_methods_of_a_resident_actor() -> None:
    class Scale(cb.ResidentActor):
        def times(self, x: np.ndarray) -> np.ndarray:
            return 3 * x

    async with cb.device("cpu", isolation="thread") as gpu:

        async def product(item: np.ndarray) -> np.ndarray:
            found: np.ndarray = await gpu.blas.gemm(gpu.put(item), gpu.put(item)).get()
            return found

        async with FairShareScheduler(product) as scheduler:
            assert np.allclose(await scheduler.submit(2 * np.eye(3), tenant="a"), 4 * np.eye(3))
        model = gpu.actor_of(cb.Props(Scale))
        call: Any = functools.partial(model.call, Scale.times)
        async with FairShareScheduler[Any, Any](call) as scheduler:
            assert np.allclose(await scheduler.submit(np.ones(2), tenant="a"), 3)


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"max_in_flight": 0}, "max_in_flight must be at least 1, but is 0"),
        ({"max_queue": 0}, "max_queue must be at least 1, but is 0"),
        ({"block_timeout": 0}, "block_timeout must be positive"),
        ({"charge": "tokens"}, "charge must be"),
        ({"overflow": "drop"}, "drop"),
        ({"tenants": {"a": -1}}, "weight must be a positive number"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FairShareScheduler(len, **wrong)


async def test_a_limit_that_keeps_batches_small_is_told(caplog: pytest.LogCaptureFixture) -> None:
    server = cb.DynamicBatchingServer[int, int](list, max_batch=8, name="embed")
    FairShareScheduler(functools.partial(server.submit), max_in_flight=8)
    FairShareScheduler(list, max_in_flight=1)
    assert not caplog.records
    FairShareScheduler(functools.partial(server.submit, priority=1), max_in_flight=7, name="front")
    assert [each.getMessage() for each in caplog.records] == [
        "front: at most 7 requests are in flight, so no batch of embed reaches its max_batch, which is 8"
    ]
