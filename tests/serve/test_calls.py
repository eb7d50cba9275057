"""``CallServer``: each request ends once, whatever is submitted, cancelled, raised, expired or stopped."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from serve_lab import TIMEOUT

from callboard.actors import ManualClock
from callboard.patterns.requests.errors import DeadlineExceeded, QueueFull, ServerStopped
from callboard.serve.calls import CallServer

TURNS = 12


class Lives(RuleBasedStateMachine):
    """Random lives of a server in virtual time."""

    @initialize(concurrency=st.integers(1, 3), max_queue=st.integers(1, 4))
    def begin(self, concurrency: int, max_queue: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.gates: dict[int, asyncio.Future[Any]] = {}
        self.futures: dict[int, asyncio.Future[Any]] = {}
        self.refused = self.submitted = 0
        self.stopped = False
        self.concurrency, self.max_queue = concurrency, max_queue
        self.server = CallServer(self.call, concurrency=concurrency, max_queue=max_queue, clock=self.clock)
        self.loop.run_until_complete(self.server.start())

    async def call(self, number: int) -> Any:
        gate = self.gates[number] = self.loop.create_future()
        try:
            return await gate
        finally:
            del self.gates[number]

    def turn(self) -> None:
        async def turns() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    @rule(timeout=st.sampled_from([None, 1.0, 5.0]), priority=st.integers(-2, 2))
    def submit(self, timeout: float | None, priority: int) -> None:
        number = self.submitted
        self.submitted += 1

        async def enter() -> None:
            self.futures[number] = self.server.submit_nowait((number,), timeout=timeout, priority=priority)

        try:
            self.loop.run_until_complete(enter())
        except (QueueFull, ServerStopped):
            self.refused += 1
        self.turn()

    @precondition(lambda self: self.gates)
    @rule(data=st.data(), error=st.sampled_from([None, ValueError("raised")]))
    def answer(self, data: st.DataObject, error: Exception | None) -> None:
        number = data.draw(st.sampled_from(sorted(self.gates)))
        gate = self.gates[number]
        if error is None:
            gate.set_result(number)
        else:
            gate.set_exception(error)
        self.turn()
        found = self.futures[number]
        assert found.exception() is error if error else found.result() == number

    @precondition(lambda self: self.futures)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        future = self.futures[data.draw(st.sampled_from(sorted(self.futures)))]
        future.cancel()
        self.turn()

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(self.advance(seconds))
        self.turn()

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def stop(self) -> None:
        self.loop.run_until_complete(asyncio.wait_for(self.server.stop(), TIMEOUT))
        self.stopped = True
        self.turn()
        assert not self.gates
        assert all(future.done() for future in self.futures.values())

    @invariant()
    def every_request_is_counted_once(self) -> None:
        if not hasattr(self, "server"):
            return
        stats = self.server.stats()
        open_ = sum(not future.done() for future in self.futures.values())
        assert stats.submitted == self.submitted
        assert stats.queued + stats.running == open_
        assert stats.rejected == self.refused
        assert stats.running == len(self.gates) <= self.concurrency
        assert stats.queued <= self.max_queue
        assert stats.running == self.concurrency or not stats.queued  # no place is idle while a request waits
        ends = [future for future in self.futures.values() if future.done()]
        cancelled = sum(future.cancelled() for future in ends)
        errors = [future.exception() for future in ends if not future.cancelled()]
        assert stats.cancelled == cancelled
        assert stats.completed == errors.count(None)
        assert stats.expired == sum(isinstance(error, DeadlineExceeded) for error in errors)
        assert stats.stopped == sum(isinstance(error, ServerStopped) for error in errors)
        assert stats.failed == sum(isinstance(error, ValueError) for error in errors)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.server.stop())
            self.turn()
            self.loop.close()


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


async def test_a_call_on_a_thread_keeps_its_place_until_it_ends() -> None:
    begun, go = threading.Semaphore(0), threading.Event()
    running: list[int] = []

    def model(n: int) -> int:
        running.append(n)
        begun.release()
        assert go.wait(TIMEOUT)
        return n

    async with CallServer(model) as server:
        first = server.submit_nowait((1,))
        assert await asyncio.to_thread(begun.acquire, timeout=TIMEOUT)
        first.cancel()
        second = server.submit_nowait((2,))
        await asyncio.sleep(0)
        assert running == [1]
        go.set()
        assert await asyncio.wait_for(second, TIMEOUT) == 2
    assert running == [1, 2]
    assert server.stats().cancelled == 1


@pytest.mark.parametrize("executor", ["loop", "thread"])
async def test_a_request_that_is_cancelled_at_once_is_not_run(executor: Any) -> None:
    calls: list[int] = []
    async with CallServer(calls.append, executor=executor) as server:
        server.submit_nowait((1,)).cancel()
        await server.submit((2,))
    assert calls == [2]


async def test_a_full_queue_tells_of_the_time_that_calls_take() -> None:
    clock = ManualClock()
    gates: list[asyncio.Future[None]] = []

    async def model() -> None:
        gates.append(asyncio.get_running_loop().create_future())
        await gates[-1]

    server = await CallServer(model, max_queue=1, clock=clock).start()
    first = server.submit_nowait(())
    await asyncio.sleep(0)
    clock.advance(4.0)
    gates[0].set_result(None)
    await first
    await asyncio.sleep(0)  # its place is free
    waiting = [server.submit_nowait(()) for _ in range(2)]
    with pytest.raises(QueueFull) as e:
        server.submit_nowait(())
    assert e.value.retry_after == 4.0
    await server.stop()
    assert all(isinstance(each.exception(), ServerStopped) for each in waiting)
