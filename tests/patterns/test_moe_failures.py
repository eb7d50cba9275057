"""Gates and experts that fail, deadlines, cancellation, full queues, stopping: each request ends once."""

import asyncio
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from batching_lab import outcome, turns
from moe_lab import LIMIT, Block, Held, by_sign, lab

import callboard as cb
from callboard.actors import ManualClock

X = np.array([[1.0], [-1.0]])


def fails(rows: np.ndarray) -> Any:
    raise KeyError("no")


@pytest.mark.parametrize("executor", ["auto", "loop"])
@pytest.mark.parametrize(
    "gate, error, says",
    [
        (fails, KeyError, "no"),
        (lambda x: np.zeros((len(x), 3)), cb.BadGate, r"logits \[2, 3\], not \[2, 2\]"),
        (lambda x: np.zeros(2), cb.BadGate, r"logits \[2\], not"),
        (lambda x: np.array([[0, 1], [0, np.nan]]), cb.BadGate, "token 1 for expert 1 is nan"),
        (lambda x: "logits", cb.BadGate, r"logits \[\], not"),
        (lambda x: np.zeros((2, 2), complex), TypeError, "real numbers"),
    ],
)
async def test_a_gate_that_fails_fails_its_request_alone(gate: Any, error: Any, says: str, executor: Any) -> None:
    def gate_of(x: np.ndarray) -> Any:
        return gate(x) if x[0, 0] > 0 else by_sign(x)

    async with lab(gate_of, [lambda r: r] * 2, top_k=1, executor=executor) as router:
        bad, good = router.submit_nowait(X), router.submit_nowait(-X)
        with pytest.raises(error, match=says):
            await bad
        assert np.array_equal((await good).output, -X)
        assert (router.stats().failed, router.stats().completed) == (1, 1)


@pytest.mark.parametrize(
    "result, says",
    [
        (lambda r: r[1:], r"expert 0 was given 1 rows and returned \[0, 1\]"),
        (lambda r: r[0], r"expert 0 was given 1 rows and returned \[1\]"),
        (lambda r: None, "expert 0 must return an array"),
        (lambda r: np.ones((1, 2)), "expert 1 returned rows of 1, expert 0 of 2"),
    ],
)
async def test_an_expert_that_returns_something_else(result: Any, says: str) -> None:
    async with lab(by_sign, [result, lambda r: r], top_k=1) as router:
        with pytest.raises(cb.BadExpertResult, match=says):
            await router.submit(X)


async def test_the_error_of_an_expert_says_whose_it_is() -> None:
    async with lab(by_sign, [lambda r: r, fails]) as router:
        for _ in range(2):
            with pytest.raises(KeyError) as caught:
                await router.submit(X)
            assert caught.value.__notes__ == ["raised by expert 1"]
        assert router.stats().failed_calls == (0, 2)


async def test_of_several_errors_the_lowest_number_counts() -> None:
    held = Held(2)
    async with lab(by_sign, held.experts) as router:
        future = router.submit_nowait(X)
        await held.called(2)
        await held.release(1, ValueError("one"))
        assert not future.done()
        await held.release(0, ValueError("zero"))
        assert str(await outcome(future)) == "zero"


@pytest.mark.parametrize("bad", [fails, lambda r: r[:, 0]])
async def test_renormalised_over_the_rest(bad: Any) -> None:
    block = Block(4)
    x = block.tokens(40)
    experts = block.experts
    experts[2] = bad
    async with lab(block.gate, experts, top_k=2, on_expert_error="renormalise") as router:
        found = await router.submit(x)
        assert np.abs(found.output - block.dense(x, 2, without=(2,))).max() <= 1e-5
        assert found.failed == (2,)
        assert router.stats().failed_calls == (0, 0, 1, 0)


async def test_a_token_without_any_expert_left_fails_its_request() -> None:
    async with lab(by_sign, [lambda r: r, fails], top_k=1, on_expert_error="renormalise") as router:
        with pytest.raises(KeyError) as caught:
            await router.submit(X)
        assert caught.value.__notes__ == ["raised by expert 1", "token 1 has no other expert left"]
        assert (await router.submit(X[:1])).failed == ()


async def test_a_shared_expert_that_fails_fails_the_request() -> None:
    async with lab(by_sign, [lambda r: r] * 2, shared=[fails], on_expert_error="renormalise") as router:
        with pytest.raises(KeyError) as caught:
            await router.submit(X)
        assert caught.value.__notes__ == ["raised by shared expert 0"]


class Scale(cb.ResidentActor):
    def call(self, rows: np.ndarray) -> np.ndarray:
        return 2 * rows


async def test_an_expert_whose_actor_has_stopped_is_left_out() -> None:
    async with asyncio.timeout(LIMIT), cb.device("cpu", isolation="thread") as gpu:
        actors = [await gpu.actor_of(cb.Props(Scale), name=f"expert-{n}", wait=True) for n in range(2)]
        experts = [functools.partial(actor.call, Scale.call) for actor in actors]
        async with lab(by_sign, experts, on_expert_error="renormalise") as router:
            assert (await router.submit(X)).output.tolist() == (2 * X).tolist()
            actors[1].stop()
            found = await router.submit(X)
            assert found.output == pytest.approx(2 * X)
            assert found.failed == (1,)


# -- the contract of requests ------------------------------------------------------------------------------------------


async def test_deadlines_in_the_queue_and_while_experts_run() -> None:
    clock, held = ManualClock(), Held(1)
    async with lab(lambda x: x, held.experts, top_k=1, executor="loop", clock=clock) as router:
        running = router.submit_nowait(X, timeout=1.0)
        await turns()
        waiting = router.submit_nowait(X, timeout=0.5)
        clock.advance(0.6)
        late = await outcome(waiting)
        assert isinstance(late, cb.DeadlineExceeded)
        assert late.stage == "queue"
        clock.advance(0.6)
        late = await outcome(running)
        assert isinstance(late, cb.DeadlineExceeded)
        assert late.stage == "run"
        await held.release()
        assert held.started == 1
        assert router.stats().expired == 2
        assert router.stats().completed == 0


async def test_experts_are_not_called_for_a_request_that_has_ended() -> None:
    held, gate = Held(2), asyncio.get_running_loop().create_future()

    async def slow(x: np.ndarray) -> Any:
        return await gate

    async with lab(slow, held.experts) as router:
        future = router.submit_nowait(X)
        await turns()
        future.cancel()
        gate.set_result(by_sign(X))
        await turns()
        assert held.started == 0
        assert router.stats().cancelled == 1
        assert router.stats().running == 0


async def test_a_full_queue_counts_requests_and_tokens() -> None:
    held = Held(1)
    async with lab(
        lambda x: x, held.experts, top_k=1, max_queue=2, queue=cb.QueueOptions(max_cost=5), executor="loop"
    ) as router:
        running = router.submit_nowait(X)
        await turns()
        waiting = [router.submit_nowait(np.ones((4, 1)))]
        with pytest.raises(cb.QueueFull, match="4 of 5 cost"):
            router.submit_nowait(X)
        waiting.append(router.submit_nowait(X[:1]))
        with pytest.raises(cb.QueueFull, match="2 of 2 requests"):
            router.submit_nowait(np.ones((0, 1)))
        with pytest.raises(cb.ItemTooLarge, match="costs 6"):
            router.submit_nowait(np.ones((6, 1)))
        for _ in range(3):
            await held.release()
        await asyncio.gather(running, *waiting)
        assert router.stats().rejected == 3


async def test_blocked_requests_get_room_in_order_or_are_refused_in_time() -> None:
    clock, held = ManualClock(), Held(1)
    options: Any = {
        "max_queue": 1,
        "queue": cb.QueueOptions(overflow="block", block_timeout=1.0),
        "clock": clock,
        "executor": "loop",
    }
    async with lab(lambda x: x, held.experts, top_k=1, **options) as router:
        tasks = []
        for n in range(5):
            tasks.append(asyncio.create_task(router.submit(np.full((1, 1), float(n)))))
            await turns()
        assert (router.stats().running, router.stats().queued, router.stats().blocked) == (1, 1, 3)
        await held.release()  # 1 runs, 2 waits in the queue
        assert (router.stats().queued, router.stats().blocked) == (1, 2)
        tasks[2].cancel()
        await turns()
        assert (router.stats().queued, router.stats().blocked) == (1, 1)  # 3 has its place
        clock.advance(1.0)
        assert isinstance(await outcome(tasks[4]), cb.QueueFull)
        await held.release()
        await held.release()
        assert [(await tasks[n]).output.tolist() for n in (0, 1, 3)] == [[[0.0]], [[2.0]], [[6.0]]]
        assert router.stats().rejected == 1


async def test_a_dropped_request_is_told_when_to_come_back() -> None:
    clock, held = ManualClock(), Held(1)
    options: Any = {
        "max_queue": 1,
        "queue": cb.QueueOptions(overflow="drop_oldest"),
        "clock": clock,
        "executor": "loop",
    }
    async with lab(lambda x: x, held.experts, top_k=1, **options) as router:
        first = router.submit_nowait(X)
        await turns()
        clock.advance(0.5)
        await held.release()
        await first
        running = router.submit_nowait(X)
        await turns()
        dropped, waiting = router.submit_nowait(X), router.submit_nowait(X)
        error = await outcome(dropped)
        assert isinstance(error, cb.QueueFull)
        assert error.retry_after == 0.5
        await held.release_all()
        await asyncio.gather(running, waiting)
        assert router.stats().dropped == 1


async def test_requests_run_by_priority_and_as_many_at_once_as_allowed() -> None:
    held = Held(1)
    async with lab(lambda x: x, held.experts, top_k=1, max_concurrent=2, executor="loop") as router:
        futures = [router.submit_nowait(np.full((1, 1), float(n)), priority=n) for n in (1, 2, 3, 4)]
        await turns()
        assert [float(rows[0, 0]) for _, rows, _ in held.calls] == [4, 3]
        assert router.stats().running == 2
        await held.release_all()
        await asyncio.gather(*futures)


@pytest.mark.parametrize("item", [None, 3.0, "text", object(), [[1.0], [2.0, 3.0]]])
async def test_what_is_no_array_is_refused_at_the_call(item: Any) -> None:
    async with lab(by_sign, [lambda r: r] * 2) as router:
        with pytest.raises(TypeError, match="tokens"):
            router.submit_nowait(item)
        assert router.stats().submitted == 1


async def test_drain_finishes_and_stop_does_not() -> None:
    held = Held(1)
    async with lab(lambda x: x, held.experts, top_k=1) as router:
        futures = [router.submit_nowait(X) for _ in range(2)]
        drained = asyncio.ensure_future(router.drain())
        for _ in futures:
            await held.called()
            await held.release()
        assert await drained
        assert [(await future).output.tolist() for future in futures] == [(2 * X).tolist()] * 2
        with pytest.raises(cb.ServerStopped):
            await router.submit(X)
    async with lab(lambda x: x, held.experts, top_k=1, executor="loop") as router:
        futures = [router.submit_nowait(X) for _ in range(2)]
        await turns()
        await router.stop()
        assert [type(await outcome(future)) for future in futures] == [cb.ServerStopped] * 2
        assert not held.calls  # the async expert was cancelled
        assert router.stats().stopped == 2


async def test_stop_waits_for_an_expert_on_a_thread() -> None:
    begun, go, over = threading.Event(), threading.Event(), threading.Event()

    def slow(rows: np.ndarray) -> np.ndarray:
        begun.set()
        assert go.wait(LIMIT)
        over.set()
        return rows

    async with lab(lambda x: x, [slow], top_k=1) as router:
        future = router.submit_nowait(X)
        assert await asyncio.to_thread(begun.wait, LIMIT)
        stopping = asyncio.ensure_future(router.stop())
        assert isinstance(await outcome(future), cb.ServerStopped)
        assert not stopping.done()
        go.set()
        await stopping
        assert over.is_set()


@pytest.mark.parametrize("own", [True, False])
async def test_stop_cancels_an_async_expert_beside_a_plain_gate(own: bool) -> None:
    clock, held = ManualClock(), Held(1)
    with ThreadPoolExecutor(1) as pool:
        executor: Any = pool if own else "auto"
        async with lab(lambda x: x, held.experts, top_k=1, executor=executor, clock=clock) as router:
            future = router.submit_nowait(X)
            await held.called()
            stopping = asyncio.ensure_future(router.stop())
            assert isinstance(await outcome(future), cb.ServerStopped)
            await turns()
            if own:  # what it runs cannot be told apart: it has time to end
                assert held.calls
                clock.advance(5.0)
            await stopping
            await turns()
            assert not held.calls


def test_without_asyncio() -> None:
    with cb.sync.serving(cb.MoeRouter(by_sign, [lambda r: r, lambda r: -r], top_k=1)) as router:
        assert router.ask(X, timeout=LIMIT).output.tolist() == [[1.0], [1.0]]
