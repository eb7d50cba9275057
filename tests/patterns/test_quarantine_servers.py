"""``quarantine=`` of servers: a request of death in a batch, or on a replica, and the effect on its neighbours."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from batching_lab import outcome, turns
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from machine_lab import Call, RequestMachine, machine_settings

import callboard as cb
from callboard.actors import ManualClock
from callboard.core.errors import Suspect

BAD = "bad"
KINDS = ["batching", "pool"]


class Context:
    """A context that each call with a bad item kills; a call takes a few iterations of the loop."""

    def __init__(self, name: str = "gpu") -> None:
        self.name = name
        self.generation = 0
        self.runs: Counter[str] = Counter()
        self.together: list[list[str]] = []
        self._running: list[tuple[list[str], asyncio.Future[Any]]] = []

    async def batch(self, items: list[str]) -> list[str]:
        self.runs.update(items)
        self.together.append(items)
        over = asyncio.get_running_loop().create_future()
        self._running.append((items, over))
        if any(item.startswith(BAD) for item in items):
            asyncio.get_running_loop().call_later(0, self.lose)
        else:
            asyncio.get_running_loop().call_soon(self.answer, over)
        await over
        return [item.upper() for item in items]

    async def one(self, item: str) -> str:
        return (await self.batch([item]))[0]

    def answer(self, over: "asyncio.Future[Any]") -> None:
        self._running = [each for each in self._running if each[1] is not over]
        if not over.done():
            over.set_result(None)

    def lose(self) -> None:
        """All calls in flight fail."""
        lost, self._running = self._running, []
        for items, over in lost:
            error = cb.ContextPoisoned("lost", [Suspect(self.name, "op", item, "a.py:1") for item in items])
            error.device, error.generation = self.name, self.generation
            if not over.done():
                over.set_exception(error)
        self.generation += bool(lost)


def server_of(kind: str, context: Context, quarantine: Any, **options: Any) -> Any:
    clock = options.pop("clock", None) or ManualClock()
    if kind == "batching":
        return cb.DynamicBatchingServer(context.batch, max_batch=4, quarantine=quarantine, clock=clock, **options)
    replicas = [cb.Replica(context.one, name=name) for name in ("r0", "r1")]
    return cb.ModelReplicaPool(replicas, max_ongoing=4, ejection=None, quarantine=quarantine, clock=clock, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spare", [False, True])
async def test_a_request_of_death_costs_three_contexts(kind: str, spare: bool) -> None:
    context, other = Context(), Context("spare")
    elsewhere = (other.batch if kind == "batching" else other.one) if spare else None
    clock = ManualClock()
    quarantine = cb.Quarantine[Any](None, spare=elsewhere, hold=60.0, clock=clock, item_key=lambda item: item)
    server = server_of(kind, context, quarantine)
    async with server:
        good = [f"n{n}" for n in range(6)]
        tasks = {item: asyncio.create_task(server.submit(item)) for item in (*good[:3], BAD, *good[3:])}
        found = {item: await outcome(task) for item, task in tasks.items()}
        assert [found[item] for item in good] == [item.upper() for item in good]
        error = found[BAD]
        assert isinstance(error, cb.Quarantined)
        assert error.key == BAD
        assert context.generation == (2 if spare else 3)
        assert other.generation == int(spare)
        assert context.runs[BAD] + other.runs[BAD] == 3
        assert all(context.runs[item] + other.runs[item] <= 2 for item in good)
        assert (other if spare else context).together[-1] == [BAD] or not spare
        with pytest.raises(cb.Quarantined):  # without a call
            await server.submit(BAD)
        assert context.runs[BAD] + other.runs[BAD] == 3
        assert await server.submit("after") == "AFTER"
        stats = server.stats()
        assert (stats.completed, stats.failed, stats.submitted) == (7, 2, 9)
        assert quarantine.stats().held == {BAD: 60.0}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_key_of_the_caller_and_one_of_its_own(kind: str) -> None:
    context = Context()
    server = server_of(kind, context, cb.Quarantine[Any](None, clock=ManualClock()), name="server")
    async with server:
        with cb.request_key("user 7"), pytest.raises(cb.Quarantined, match="'user 7'"):
            await server.submit(BAD)
        with pytest.raises(cb.Quarantined, match=r"'server/[0-9a-f]{16}'"):
            await server.submit(BAD)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_caller_that_leaves_and_an_end(kind: str) -> None:
    context = Context()
    quarantine = cb.Quarantine[Any](None, clock=ManualClock(), item_key=lambda item: item)
    server = server_of(kind, context, quarantine)
    async with server:
        task = asyncio.create_task(server.submit("a"))
        await asyncio.sleep(0)
        task.cancel()
        assert isinstance(await outcome(task), asyncio.CancelledError)
        await turns()
        assert await server.submit("b") == "B"
        await turns()
        assert quarantine.stats().running == quarantine.stats().waiting == 0
        late = asyncio.create_task(server.submit(BAD))
        await turns(3)
        await server.stop()
        assert isinstance(await outcome(late), cb.ServerStopped)
        await turns()
    assert server.stats().submitted == 3
    assert quarantine.stats().running == quarantine.stats().waiting == 0


def test_a_key_of_items_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="item_key is 5, which cannot be called"):
        cb.Quarantine(None, item_key=5)  # type: ignore[arg-type]


async def test_a_key_that_is_none() -> None:
    wrong: Any = lambda item: 5
    async with server_of("batching", Context(), cb.Quarantine[Any](None, item_key=wrong)) as server:
        with pytest.raises(TypeError, match="it must be a str"):
            await server.submit("a")
        assert server.stats().rejected == 1


class WardMachine(RequestMachine):
    """Any schedule of requests, good and bad, cancellations and losses: each ends once, and turns are given back."""

    errors = (*RequestMachine.errors, cb.Quarantined)

    @initialize(
        kind=st.sampled_from(KINDS),
        overflow=st.sampled_from(["reject", "block", "drop_oldest"]),
        concurrent=st.integers(1, 2),
    )
    def make(self, kind: str, overflow: Any, concurrent: int) -> None:
        self.quarantine = cb.Quarantine[Any](
            None, hold=0.2, wait=0.4, max_waiting=4, item_key=lambda item: f"key {item % 5}", clock=self.clock
        )
        shared: dict[str, Any] = {
            "quarantine": self.quarantine,
            "max_queue": 4,
            "queue": cb.QueueOptions(overflow=overflow, block_timeout=0.5),
            "clock": self.clock,
        }
        if kind == "batching":
            self.server = cb.DynamicBatchingServer[int, int](
                self.answered, max_batch=3, max_concurrent_batches=concurrent, **shared
            )
        else:
            self.server = cb.ModelReplicaPool([self.replica] * 2, max_ongoing=concurrent, ejection=None, **shared)
        self.generation = 0
        self.run(self.server.start())

    async def replica(self, item: int) -> Any:
        return (await self.answered([item]))[0]

    async def request(self, number: int, **options: Any) -> None:
        assert await self.server.submit(number, **options) == 2 * number

    def value_of(self, call: Call) -> Any:
        return [2 * item for item in call.item]

    @rule(n=st.integers(1, 3), timeout=st.sampled_from([None, None, 0.005]))
    def submit(self, n: int, **options: Any) -> None:
        self.launch([self.request(number, **options) for number in self.numbers(n)])

    @precondition(lambda self: self.calls)
    @rule(how=st.sampled_from(["value"] * 3 + ["raise"]), last=st.booleans())
    def answer(self, how: str, last: bool) -> None:
        call = self.calls[-1 if last else 0]
        if how == "raise":
            self.do(call.gate.set_exception, ValueError("no"))
        else:
            self.do(call.gate.set_result, [2 * item for item in call.item])

    @precondition(lambda self: self.calls)
    @rule()
    def lose(self) -> None:
        def work() -> None:
            keys = [f"key {item % 5}" for call in self.calls for item in call.item]
            for call in list(self.calls):
                error = cb.ContextPoisoned("lost", [Suspect("gpu", "op", key, "a.py:1") for key in keys])
                error.device, error.generation = "gpu", self.generation
                if not call.gate.done():
                    call.gate.set_exception(error)
            self.generation += 1

        self.do(work)

    def stop(self) -> None:
        super().stop()
        self.run(asyncio.sleep(0))

    def check(self) -> None:
        stats = self.quarantine.stats()
        assert (stats.running, stats.waiting, stats.abandoned) == (0, 0, 0)


TestWard = WardMachine.TestCase
TestWard.settings = machine_settings(60)
