"""Sequences with state: order, one worker each, bounds, idle time, and cleanup after a failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from batching_lab import no_internal_error, outcome, turns
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from machine_lab import Call, RequestMachine, machine_settings

import callboard as cb
from callboard.actors import ManualClock


class Sums:
    """Adds up the items of each sequence, in a list by its slot; a gate holds its batches back."""

    def __init__(self, *, free: bool = True) -> None:
        self.totals: dict[int, list[int]] = {}
        self.batches: list[list[int]] = []
        self.closed: list[Any] = []
        self.go = asyncio.Event()
        self.error: Exception | None = None
        if free:
            self.go.set()

    async def __call__(self, items: list[int], slots: list[cb.SequenceSlot]) -> list[Any]:
        self.batches.append(list(items))
        await self.go.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        found: list[Any] = []
        for item, slot in zip(items, slots, strict=True):
            assert slot.start == (slot.state is None)
            if slot.start:
                self.totals[slot.number] = []
                slot.state = slot.sequence
            assert slot.state == slot.sequence
            self.totals[slot.number].append(item)
            found.append(ValueError("negative") if item < 0 else sum(self.totals[slot.number]))
        return found


@asynccontextmanager
async def summing(workers: Any, clock: Any = None, **options: Any) -> AsyncIterator[Any]:
    server = cb.SequenceBatchingServer[int, int](workers, clock=clock or ManualClock(), **options)
    await server.start()
    try:
        with no_internal_error():
            yield server
    finally:
        await server.stop()


async def test_requests_of_a_sequence_run_in_order_without_waiting_for_answers() -> None:
    sums = Sums()
    async with summing(sums, close=lambda slot: sums.closed.append(slot.sequence)) as server:
        works = [
            server.submit(n, sequence=name, start=n == 1, end=n == 4) for n in range(1, 5) for name in ("a", "b", "c")
        ]
        found = await asyncio.gather(*works)
        assert found == [1, 1, 1, 3, 3, 3, 6, 6, 6, 10, 10, 10]
        assert sums.batches == [[n, n, n] for n in range(1, 5)]
        await turns()
        assert sorted(sums.closed) == ["a", "b", "c"]
        stats = server.stats()
    assert (stats.completed, stats.batches, stats.sequences, stats.batch_size.max) == (12, 4, 0, 3)


async def test_a_sequence_stays_on_its_worker() -> None:
    workers = [Sums(), Sums()]
    async with summing(workers, max_sequences=2) as server:
        for _ in range(3):
            start = not workers[0].batches
            await asyncio.gather(*(server.submit(1, sequence=n, start=start) for n in range(4)))
        assert [len(worker.totals) for worker in workers] == [2, 2]
        assert await asyncio.gather(*(server.submit(0, sequence=n) for n in range(4))) == [3] * 4


async def test_further_sequences_wait_for_a_place() -> None:
    sums = Sums()
    async with summing(sums, max_sequences=1) as server:
        first = await server.submit(1, sequence="a", start=True)
        waiting = asyncio.create_task(server.submit(5, sequence="b", start=True))
        await turns()
        stats = server.stats()
        assert (first, stats.sequences, stats.backlog, stats.queued) == (1, 1, 1, 1)
        assert await server.submit(1, sequence="a", end=True) == 2
        assert await waiting == 5


async def test_sequences_that_are_not_there() -> None:
    clock, sums = ManualClock(), Sums()
    async with summing(sums, clock, idle_timeout=10.0, close=lambda slot: sums.closed.append(slot.sequence)) as server:
        await server.submit(1, sequence="idle", start=True)
        await server.submit(1, sequence="ended", start=True, end=True)
        await turns()
        clock.advance(5.0)
        await server.submit(1, sequence="idle")
        await turns()
        clock.advance(9.0)
        await turns()
        assert sums.closed == ["ended"]
        clock.advance(1.0)
        await turns()
        assert sums.closed == ["ended", "idle"]
        for name, reason in (("idle", "idle"), ("ended", "ended"), ("never", "unknown")):
            error = await outcome(server.submit(1, sequence=name))
            assert isinstance(error, cb.SequenceLost)
            assert (error.sequence, error.reason) == (name, reason)
            assert "start it again with start=True" in str(error)
        stats = server.stats()
        assert (stats.idled, stats.rejected) == (1, 3)
        with pytest.raises(TypeError, match="must say to which sequence"):
            await server.submit(1)
    assert clock.pending == 0


async def test_a_failed_batch_loses_its_sequences_and_a_lost_context_all_of_the_worker() -> None:
    sums, other = Sums(), Sums()
    async with summing([sums, other], max_batch=2) as server:
        for name in "abcdef":
            await server.submit(1, sequence=name, start=True)
        sums.go.clear()
        sums.error = RuntimeError("broken")
        tasks = [asyncio.create_task(server.submit(1, sequence=name)) for name in "aacce"]
        await turns()
        sums.go.set()
        errors = [await outcome(task) for task in tasks]
        assert [type(each) for each in errors] == [RuntimeError, cb.SequenceLost] * 2 + [int]
        assert errors[1].reason == "failed"
        assert await server.submit(1, sequence="a", start=True) == 1
        sums.error = cb.ContextPoisoned("lost")
        assert isinstance(await outcome(server.submit(1, sequence="a")), cb.ContextPoisoned)
        assert (await outcome(server.submit(1, sequence="e"))).reason == "failed"
        assert await server.submit(1, sequence="b") == 2
        assert server.stats().lost == 4


async def test_an_item_that_fails_leaves_its_sequence() -> None:
    async with summing(Sums()) as server:
        await server.submit(1, sequence="a", start=True)
        assert isinstance(await outcome(server.submit(-1, sequence="a")), ValueError)
        assert await server.submit(3, sequence="a") == 3


async def test_a_sequence_that_is_started_again() -> None:
    sums = Sums(free=False)
    async with summing(sums) as server:
        former = [asyncio.create_task(server.submit(n, sequence="a", start=n == 1)) for n in (1, 2)]
        await turns()
        anew = asyncio.create_task(server.submit(7, sequence="a", start=True))
        await turns()
        error = await outcome(former[1])
        assert (type(error), error.reason) == (cb.SequenceLost, "restarted")
        sums.go.set()
        assert (await former[0], await anew) == (1, 7)
        assert await server.submit(1, sequence="a") == 8
        assert server.stats().sequences == 1


async def test_a_full_queue() -> None:
    sums = Sums(free=False)
    async with summing(sums, max_queue=1) as server:
        tasks = [asyncio.create_task(server.submit(1, sequence="a", start=not n)) for n in range(1)]
        await turns()
        tasks.append(asyncio.create_task(server.submit(1, sequence="a")))
        await turns()
        with pytest.raises(cb.QueueFull):
            await server.submit(1, sequence="a")
        sums.go.set()
        assert [await task for task in tasks] == [1, 2]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"max_batch": 0}, "max_batch must be at least 1"),
        ({"max_sequences": 0}, "max_sequences must be at least 1"),
        ({"idle_timeout": 0}, "idle_timeout must be positive"),
        ({"workers": []}, "workers must be at least 1"),
    ],
)
def test_settings_that_are_refused(options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cb.SequenceBatchingServer(**{"workers": Sums(), **options})


class SequenceMachine(RequestMachine):
    """Any schedule: each request ends once, and the requests of a sequence run in the order of their submission."""

    errors = (*RequestMachine.errors, cb.SequenceLost, cb.BadBatchResult)

    @initialize(workers=st.integers(1, 2), places=st.integers(1, 2), max_batch=st.integers(1, 2))
    def make(self, workers: int, places: int, max_batch: int) -> None:
        self.open: set[int] = set()
        self.max_batch = max_batch
        self.server = cb.SequenceBatchingServer[int, int](
            [self.worker] * workers,
            max_batch=max_batch,
            max_sequences=places,
            idle_timeout=0.05,
            max_queue=5,
            close=self.closed,
            clock=self.clock,
        )
        self.run(self.server.start())

    async def worker(self, items: list[int], slots: list[Any]) -> Any:
        assert 0 < len(items) <= self.max_batch
        assert len({id(slot) for slot in slots}) == len(slots), "two requests of a sequence in one batch"
        assert not self.gone.intersection(items), "a request ran after its end"
        for item, slot in zip(items, slots, strict=True):
            assert slot.start == (slot.state is None)
            assert slot.start or id(slot) in self.open, "a sequence ran after its end"
            self.open.add(id(slot))
            assert slot.start or slot.state < item, "out of order"
            slot.state = item
        return await self.answered(items)

    def closed(self, slot: Any) -> None:
        self.open.discard(id(slot))

    async def request(self, number: int, **options: Any) -> None:
        assert await self.server.submit(number, **options) == 2 * number

    def value_of(self, call: Call) -> Any:
        return [2 * item for item in call.item]

    @rule(
        n=st.integers(1, 3),
        sequence=st.sampled_from("abc"),
        start=st.booleans(),
        end=st.sampled_from([True, False, False]),
        timeout=st.sampled_from([None, None, 0.005]),
    )
    def submit(self, n: int, start: bool, end: bool, **options: Any) -> None:
        """Some requests of one sequence; the first may start it, and the last may end it."""
        first, *_, last = [*self.numbers(n), *self.numbers(n)]
        self.launch(
            [
                self.request(number, start=start and number == first, end=end and number == last, **options)
                for number in self.numbers(n)
            ]
        )

    @precondition(lambda self: self.calls)
    @rule(how=st.sampled_from(["value"] * 5 + ["raise", "lose", "short", "one"]), last=st.booleans())
    def answer(self, how: str, last: bool) -> None:
        call = self.calls[-1 if last else 0]
        values: list[Any] = [2 * item for item in call.item]
        if how in ("raise", "lose"):
            self.do(call.gate.set_exception, ValueError("no") if how == "raise" else cb.ContextPoisoned("lost"))
        elif how == "short":
            self.do(call.gate.set_result, values[1:])
        else:
            self.do(call.gate.set_result, [ValueError("this one"), *values[1:]] if how == "one" else values)

    def check(self) -> None:
        assert not self.open, "a sequence that was never closed"
        assert self.server.stats().backlog == 0


TestSequences = SequenceMachine.TestCase
TestSequences.settings = machine_settings(60)
