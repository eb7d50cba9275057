"""``NodeGraph`` and ``LangGraphGpuActor``: order, parallel branches, limits, failures, policies, checks."""

import asyncio
import random
import threading
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.actors.clock import ManualClock
from callboard.actors.loops.threads import Threads
from callboard.agents.graph import calling


async def add_one(x: int) -> int:
    return x + 1


async def total(*parts: int) -> int:
    return sum(parts)


def graph_of(*edges: tuple[str, str], **nodes: Any) -> cb.NodeGraph:
    graph = cb.NodeGraph()
    for name, node in nodes.items():
        graph.add_node(name, node)
    for edge in edges:
        graph.add_edge(*edge)
    return graph


async def test_results_flow_along_edges() -> None:
    chain = graph_of(("a", "b"), ("b", "c"), a=add_one, b=lambda x: x * 10, c=add_one)
    assert await chain.run(1) == 21
    fan = graph_of(("a", "l"), ("a", "r"), ("l", "z"), ("r", "z"), a=add_one, l=add_one, r=add_one, z=total)
    assert await fan.run(1) == 6
    assert await graph_of(("a", "b"), ("a", "c"), a=add_one, b=add_one, c=add_one).run(0) == {"b": 2, "c": 2}


async def test_arguments_are_in_the_order_of_edges_or_by_name() -> None:
    graph = graph_of(("b", "z"), ("a", "z"), a=lambda x: "a", b=lambda x: "b", z=lambda x, y: x + y)
    assert await graph.run(None) == "ba"
    graph = graph_of(a=lambda x: "a", b=lambda x: "b", z=lambda x, y: x + y)
    assert await graph.add_edge("a", "z", "y").add_edge("b", "z", "x").run(None) == "ba"


async def test_the_entry_gets_the_state() -> None:
    graph = graph_of(("a", "b"), a=lambda x: x + "a", b=lambda x: x + "b")
    assert await graph.set_entry("a").run("s") == "sab"
    with pytest.raises(cb.GraphError, match="'b' is an entry, and has an edge from 'a'"):
        graph.set_entry("b").compile()
    graph.set_entry("a").add_node("lost", add_one)
    with pytest.raises(cb.GraphError, match="no entry leads to 'lost'"):
        await graph.run("s")


async def test_a_branch_does_not_wait_for_another() -> None:
    gate = asyncio.Event()
    order: list[str] = []

    async def slow(x: int) -> int:
        await gate.wait()
        order.append("slow")
        return x

    async def fast_end(x: int) -> int:
        order.append("fast_end")
        gate.set()
        return x

    graph = graph_of(("slow", "z"), ("f1", "f2"), ("f2", "z"), slow=slow, f1=add_one, f2=fast_end, z=total)
    assert await asyncio.wait_for(graph.run(1), 30) == 3
    assert order == ["fast_end", "slow"]


async def test_equals_an_interpreter_on_random_graphs() -> None:
    for seed in range(40):
        draw = random.Random(seed)
        size = draw.randint(1, 12)
        edges = [(a, b) for b in range(size) for a in range(b) if draw.random() < 0.3]
        graph = cb.NodeGraph(max_nodes=draw.choice([None, 1, 2]))

        def node(n: int, draw: random.Random = draw) -> Any:
            async def call(*inputs: int) -> int:
                for _ in range(draw.randint(0, 3)):
                    await asyncio.sleep(0)
                return hash((n, *inputs))

            return call

        for n in range(size):
            graph.add_node(str(n), node(n))
        for a, b in edges:
            graph.add_edge(str(a), str(b))
        values: list[int] = []
        for n in range(size):
            values.append(hash((n, *([values[a] for a, b in edges if b == n] or [7]))))
        sinks = [n for n in range(size) if all(a != n for a, _ in edges)]
        expected: Any = {str(n): values[n] for n in sinks}
        assert await graph.run(7) == (expected if len(sinks) > 1 else values[sinks[0]]), seed


async def test_a_failed_node_is_named_and_cancels_the_others() -> None:
    started, cancelled = asyncio.Event(), []

    async def wait(x: int) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("wait")

    async def fail(x: int) -> None:
        await started.wait()
        raise ValueError("no")

    graph = graph_of(("wait", "after"), ("done", "fail"), wait=wait, done=add_one, fail=fail, after=add_one)
    with pytest.raises(cb.NodeFailed, match="node 'fail' failed: ValueError: no") as caught:
        await graph.run(1)
    assert (caught.value.node, cancelled, type(caught.value.__cause__)) == ("fail", ["wait"], ValueError)


async def test_wait_all_keeps_the_results_of_the_others() -> None:
    async def fail(x: int) -> None:
        raise ValueError("no")

    graph = cb.NodeGraph(on_failure="wait_all")
    graph.add_node("fail", fail).add_node("a", add_one).add_node("b", add_one).add_edge("a", "b")
    with pytest.raises(cb.NodeFailed) as caught:
        await graph.run(1)
    assert caught.value.results == {"a": 2, "b": 3}


async def test_a_node_that_cancels_itself_fails() -> None:
    async def odd(x: int) -> None:
        raise asyncio.CancelledError

    with pytest.raises(cb.NodeFailed, match="cancelled from within"):
        await asyncio.wait_for(graph_of(odd=odd).run(1), 30)


@pytest.mark.parametrize(
    "edges, says",
    [
        ([("a", "b"), ("b", "c"), ("c", "b")], "cycle: (b -> c -> b|c -> b -> c)"),
        ([("a", "a")], "cycle: a -> a"),
    ],
)
async def test_a_cycle_is_refused_with_its_path(edges: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(cb.GraphError, match=says):
        graph_of(*edges, a=add_one, b=add_one, c=add_one).compile()


def test_wrong_graphs_are_refused() -> None:
    with pytest.raises(cb.GraphError, match="no nodes"):
        cb.NodeGraph().compile()
    graph = graph_of(("a", "b"), a=add_one, b=add_one)
    with pytest.raises(cb.GraphError, match="no node 'x'; the nodes are: 'a', 'b'"):
        graph.add_edge("a", "x")
    with pytest.raises(cb.GraphError, match="an edge from 'a' to 'b' already"):
        graph.add_edge("a", "b")
    with pytest.raises(cb.GraphError, match="there is a node 'a'"):
        graph.add_node("a", add_one)
    with pytest.raises(TypeError, match="cannot be called"):
        graph.add_node("c", 3)


async def test_runs_at_once_are_bounded() -> None:
    gate, running = asyncio.Event(), 0

    async def node(x: int) -> int:
        nonlocal running
        running += 1
        await gate.wait()
        return x

    graph = cb.NodeGraph(max_runs=2, max_waiting=2).add_node("a", node)
    runs = [graph.start(n) for n in range(4)]
    with pytest.raises(cb.MailboxFull):
        graph.start(5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    runs[2].cancel()
    assert running == 2
    gate.set()
    assert await asyncio.gather(runs[0], runs[1], runs[3]) == [0, 1, 3]
    assert await graph.run(6) == 6


async def test_time_outs_and_retries_follow_the_clock() -> None:
    clock, calls = ManualClock(), 0

    async def hangs(x: int) -> int:
        nonlocal calls
        calls += 1
        if calls < 3:
            await asyncio.Event().wait()
        return x

    retry = cb.RetryPolicy(initial_interval=2, backoff_factor=3, jitter=False)
    graph = cb.NodeGraph(clock=clock).add_node("a", hangs, timeout=1, retry=retry)
    run = asyncio.ensure_future(graph.start(5))
    times = []
    while not run.done():
        for _ in range(10):
            await asyncio.sleep(0)
        if clock.pending:
            clock.advance(0.5)
            times.append(clock.time())
    assert (run.result(), calls) == (5, 3)
    assert times[-1] == 1 + 2 + 1 + 6
    calls = 0
    run = asyncio.ensure_future(cb.NodeGraph(clock=clock).add_node("a", hangs, timeout=1).start(5))
    for _ in range(10):
        await asyncio.sleep(0)
    clock.advance(1)
    with pytest.raises(cb.NodeFailed, match="did not return within 1 s"):
        await run


async def test_bugs_are_not_retried() -> None:
    calls = 0

    async def bug(x: int) -> None:
        nonlocal calls
        calls += 1
        raise TypeError("bug")

    with pytest.raises(cb.NodeFailed):
        await cb.NodeGraph().add_node("a", bug, retry=cb.RetryPolicy(initial_interval=0, jitter=False)).run(1)
    assert calls == 1


async def test_results_are_cached_by_contents() -> None:
    clock, calls = ManualClock(), []

    async def node(x: Any) -> int:
        calls.append(x)
        return len(calls)

    graph = cb.NodeGraph(clock=clock).add_node("a", node, cache=cb.CachePolicy(ttl=10, max_entries=2))
    one = np.arange(3.0)
    assert [await graph.run(x) for x in (one, one.copy(), one + 1, one)] == [1, 1, 2, 1]
    clock.advance(11)
    assert await graph.run(one) == 3
    with pytest.raises(cb.NodeFailed, match=r"no data.*key_func"):
        await graph.run(object())


async def test_a_timed_out_run_names_what_ran() -> None:
    async def hangs(x: int) -> None:
        await asyncio.Event().wait()

    clock = ManualClock()
    run = asyncio.ensure_future(cb.NodeGraph(clock=clock).add_node("slow", hangs).start(1, timeout=3))
    for _ in range(5):
        await asyncio.sleep(0)
    clock.advance(3)
    with pytest.raises(TimeoutError, match="longer than 3 s; running: slow"):
        await run


async def test_plain_functions_run_on_threads_at_once() -> None:
    barrier = threading.Barrier(2, timeout=60)
    both = graph_of(a=lambda x: barrier.wait() >= 0, b=lambda x: barrier.wait() >= 0)
    assert await both.run(1) == {"a": True, "b": True}


async def test_functions_that_do_not_return_leave_threads_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, clock, gate = Threads(1, "graph test"), ManualClock(), threading.Event()
    monkeypatch.setattr(calling, "_threads", lambda: pool)
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hangs(x: int) -> None:
        loop.call_soon_threadsafe(started.set)
        gate.wait()

    try:
        run = asyncio.ensure_future(cb.NodeGraph(clock=clock).add_node("a", hangs, timeout=1).start(1))
        await asyncio.wait_for(started.wait(), 60)
        clock.advance(1)
        with pytest.raises(cb.NodeFailed, match="did not return within 1 s"):
            await run
        assert await asyncio.wait_for(cb.NodeGraph().add_node("b", lambda x: x + 1).run(1), 60) == 2
    finally:
        gate.set()
        pool.shutdown()


async def test_parallel_runs_share_batches() -> None:
    sizes = []

    async def batch(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return [item * 2 for item in items]

    async with cb.DynamicBatchingServer(batch, max_batch=8) as server:
        graph = cb.NodeGraph().add_node("double", server).add_node("end", add_one).add_edge("double", "end")
        server.hold(8)
        assert await asyncio.gather(*[graph.run(n) for n in range(8)]) == [2 * n + 1 for n in range(8)]
    assert sizes == [8]


async def test_device_arrays_pass_by_reference() -> None:
    async with cb.device("cpu", isolation="thread") as gpu:
        a = np.random.default_rng(0).random((8, 8)).astype("f4")

        async def double(x: cb.GpuRef) -> cb.GpuRef:
            return gpu.blas.gemm(x, x, alpha=2.0)

        async def put(x: np.ndarray) -> cb.GpuRef:
            return gpu.put(x)

        graph = graph_of(("put", "one"), ("one", "two"), put=put, one=double, two=double)
        found = await graph.run(a)
        np.testing.assert_allclose(await found.get(), 2 * (2 * a @ a) @ (2 * a @ a), rtol=1e-4)


async def test_the_actor_runs_graphs_at_once_and_outlives_failures() -> None:
    gate, running = asyncio.Event(), 0

    async def node(x: int) -> int:
        nonlocal running
        running += 1
        if running == 2:
            gate.set()
        await gate.wait()
        if x < 0:
            raise ValueError("negative")
        return x

    async with cb.ActorSystem("graphs") as system:
        runner = system.actor_of(cb.Props(cb.LangGraphGpuActor, cb.NodeGraph().add_node("a", node)), name="graph")
        first, second = runner.ask(cb.LangGraphGpuActor.Run(state=1)), runner.ask(cb.LangGraphGpuActor.Run(state=-1))
        assert await first == 1
        with pytest.raises(cb.NodeFailed, match="node 'a' failed: ValueError: negative"):
            await second
        assert await runner.ask(cb.LangGraphGpuActor.Run(state=3)) == 3


def test_the_picture() -> None:
    text = graph_of(("a", "b b"), a=add_one, **{"b b": add_one}).draw_mermaid()
    assert text == 'flowchart TD\n    n_a["a"]\n    n1["b b"]\n    n_a --> n1\n'
