"""Cost of a node: ``NodeGraph`` and ``StateGraph`` beside others in one run; shape of a run; cost of a lease.

    python benchmarks/agent_graphs.py --json agent_graphs.json
    python benchmarks/agent_graphs.py --quick

Chain: CPU seconds of this thread for a node, of the least of many runs of 20 coroutine functions that add one; what
others do on the machine only adds. Checkpointed: the same with checkpoints in memory, each step kept before the next.
Makespan: two branches of sleeps, to the longest path through them: 0.02, 0.2 and 0.2, 0.02 seconds, which take 0.22; in
steps, they take 0.4. Lease: acquire and release, without others. langgraph, pydantic-graph and burr are left out where
they are not installed.
"""

import asyncio
import importlib.util
import operator
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Annotated, Any, TypedDict

from _harness import Bar, arguments, interleave, ratios, spread, table, tell_bars
from _record import Record

import callboard as cb

NODES = 20
SLEEPS = {"a1": 0.02, "a2": 0.2, "b1": 0.2, "b2": 0.02}
PATH = 0.22


class State(TypedDict):
    """What nodes read and write."""

    x: int
    log: Annotated[list[int], operator.add]


async def add_one(x: int) -> int:
    return x + 1


async def update(state: State) -> dict[str, Any]:
    return {"x": state["x"] + 1}


def node_graph() -> Callable[[], Awaitable[Any]]:
    graph = cb.NodeGraph()
    for n in range(NODES):
        graph.add_node(f"n{n}", add_one)
        if n:
            graph.add_edge(f"n{n - 1}", f"n{n}")
    return lambda: graph.run(1)


def state_graph(of: Any, start: str, checkpointer: Any = None) -> Callable[[], Awaitable[Any]]:
    builder = of(State)
    for n in range(NODES):
        builder.add_node(f"n{n}", update)
        builder.add_edge(f"n{n - 1}" if n else start, f"n{n}")
    graph = builder.compile(checkpointer=checkpointer)
    runs = iter(range(1 << 40))

    async def run() -> Any:
        return await graph.ainvoke({"x": 1, "log": []}, {"configurable": {"thread_id": str(next(runs))}})

    return run


def pydantic_graph() -> Callable[[], Awaitable[Any]]:
    from pydantic_graph import GraphBuilder, StepContext

    builder: Any = GraphBuilder(input_type=int, output_type=int)

    async def step(context: Any) -> int:
        return int(context.inputs) + 1

    step.__annotations__ = {"context": StepContext[None, None, int], "return": int}
    steps = [builder.step(node_id=f"n{n}")(step) for n in range(NODES)]
    places = [builder.start_node, *steps, builder.end_node]
    builder.add(*(builder.edge_from(a).to(b) for a, b in pairwise(places)))
    graph = builder.build()
    return lambda: graph.run(inputs=1)


def burr() -> Callable[[], Awaitable[Any]]:
    from burr.core import ApplicationBuilder, GraphBuilder, State, action

    @action(reads=["x"], writes=["x"])
    async def step(state: State) -> State:
        return state.update(x=state["x"] + 1)

    names = [f"n{n}" for n in range(NODES)]
    builder = GraphBuilder().with_actions(**dict.fromkeys(names, step))
    graph = builder.with_transitions(*pairwise(names)).build()

    async def run() -> Any:
        application: Any = ApplicationBuilder().with_graph(graph).with_entrypoint(names[0]).with_state(x=1).build()
        return await application.arun(halt_after=names[-1:])

    return run


def per_node(make: Callable[[], Callable[[], Awaitable[Any]]], runs: int) -> Callable[[], float]:
    """Seconds of a node: the least of some groups of runs."""

    async def measure() -> float:
        run, least = make(), float("inf")
        for _ in range(5):
            start = time.thread_time()
            for _ in range(runs):
                await run()
            least = min(least, (time.thread_time() - start) / runs / NODES)
        return least

    return lambda: asyncio.run(measure())


def sleeping(seconds: float) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def node(state: Any) -> dict[str, Any]:
        await asyncio.sleep(seconds)
        return {"log": [1]}

    return node


def branches(kind: str) -> Callable[[], float]:
    """Seconds of a run of two branches, to those of the longest path."""

    def make() -> Any:
        if kind == "NodeGraph":
            graph = cb.NodeGraph()
            for name, seconds in SLEEPS.items():
                graph.add_node(name, sleeping(seconds))
            return graph.add_edge("a1", "a2").add_edge("b1", "b2").compile()
        from langgraph.graph import START, StateGraph

        builder: Any = StateGraph(State)
        for name, seconds in SLEEPS.items():
            builder.add_node(name, sleeping(seconds))
        for start, end in ((START, "a1"), (START, "b1"), ("a1", "a2"), ("b1", "b2")):
            builder.add_edge(start, end)
        return builder.compile()

    async def measure() -> float:
        graph = make()
        start = time.perf_counter()
        await graph.ainvoke({"x": 1, "log": []})
        return (time.perf_counter() - start) / PATH

    return lambda: asyncio.run(measure())


def lease(runs: int) -> float:
    """Seconds to acquire and release."""

    async def measure() -> float:
        shared, least = cb.SharedGpuStateCoordinator(0), float("inf")
        for _ in range(5):
            start = time.thread_time()
            for _ in range(runs):
                shared.release(await shared.acquire_write("agent"))
            least = min(least, (time.thread_time() - start) / runs)
        return least

    return asyncio.run(measure())


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def main() -> None:
    given = arguments(__doc__, rounds=5)
    runs = 5 if given.quick else 50
    record = Record("agent_graphs", given)
    plain: dict[str, Callable[[], float]] = {
        "NodeGraph": per_node(node_graph, runs),
        "StateGraph": per_node(lambda: state_graph(cb.StateGraph, cb.START), runs),
    }
    kept = {"StateGraph": per_node(lambda: state_graph(cb.StateGraph, cb.START, cb.Checkpoints()), runs)}
    shape = {"NodeGraph": branches("NodeGraph")}
    if importlib.util.find_spec("langgraph"):
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.graph import START, StateGraph

        plain["langgraph"] = per_node(lambda: state_graph(StateGraph, START), runs)
        kept["langgraph"] = per_node(lambda: state_graph(StateGraph, START, InMemorySaver()), runs)
        shape["langgraph"] = branches("langgraph")
    for name, make in {"pydantic-graph": pydantic_graph, "burr": burr}.items():
        if importlib.util.find_spec(name.replace("-", "_")):
            plain[name] = per_node(make, runs)
    chain = interleave(plain, given.rounds, "chain")
    record["chain, a node"] = table("chain, a node", chain, micros, "langgraph")
    checkpointed = interleave(kept, given.rounds, "checkpointed")
    record["checkpointed, a node"] = table("checkpointed, a node", checkpointed, micros, "langgraph")
    makespan = interleave(shape, given.rounds, "makespan")
    record["makespan, to the longest path"] = table(
        "makespan, to the longest path", makespan, "{:.3f}".format, "langgraph"
    )
    leases = interleave({"lease": lambda: lease(200 if given.quick else 5000)}, given.rounds, "lease")
    record["lease"] = table("lease, acquire and release", leases, micros, "lease")
    ahead = ratios(chain, "NodeGraph", "langgraph") or {}
    record.done(
        tell_bars(
            [
                Bar("NodeGraph, us a node", spread(chain["NodeGraph"])["median"] * 1e6, 25, at_least=False),
                Bar("to langgraph", ahead.get("median"), 0.1, at_least=False),
                Bar("checkpointed, us a node", spread(checkpointed["StateGraph"])["median"] * 1e6, 60, at_least=False),
                Bar("makespan", spread(makespan["NodeGraph"])["median"], 1.05, at_least=False),
                Bar("lease, us", spread(leases["lease"])["median"] * 1e6, 15, at_least=False),
            ]
        )
    )


if __name__ == "__main__":
    main()
