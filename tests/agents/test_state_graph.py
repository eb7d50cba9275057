"""``StateGraph``: steps, conditions, joins, interrupts, checkpoints, streams."""

import asyncio
import contextlib
import dataclasses
import operator
import os
import signal
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import pytest

import callboard as cb
from callboard.actors.clock import ManualClock


class State(TypedDict):
    x: int
    log: Annotated[list[str], operator.add]


CONFIG = {"configurable": {"thread_id": "1"}}


def close(graph: cb.CompiledStateGraph) -> None:
    assert graph.checkpointer is not None
    graph.checkpointer.close()


def note(name: str) -> Any:
    """A node that writes its name and the length of the log that it sees."""

    def call(state: State) -> dict[str, Any]:
        return {"log": [f"{name}{len(state['log'])}"]}

    return call


def builder_of(*edges: tuple[Any, str], **nodes: Any) -> cb.StateGraph:
    builder = cb.StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for edge in edges:
        builder.add_edge(*edge)
    return builder


async def test_a_step_applies_its_updates_together() -> None:
    async def slow(state: State) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"log": ["slow"]}

    builder = builder_of(("__start__", "slow"), ("__start__", "z"), slow=slow, z=note("z"))
    assert await builder.compile().ainvoke({"x": 1, "log": ["in"]}) == {"x": 1, "log": ["in", "slow", "z1"]}


def test_two_updates_of_a_key_need_a_reducer() -> None:
    nodes = {name: lambda state: {"x": 1} for name in "ab"}
    graph = builder_of((cb.START, "a"), (cb.START, "b"), **nodes).compile()
    with pytest.raises(cb.InvalidUpdate, match=r"nodes 'a' and 'b' both wrote 'x' in one step.*a reducer"):
        graph.invoke({"x": 0})
    with pytest.raises(cb.InvalidUpdate, match="node 'a' returned the key 'y', and the state has 'x', 'log'"):
        builder_of((cb.START, "a"), a=lambda state: {"y": 1}).compile().invoke({"x": 0})
    with pytest.raises(cb.InvalidUpdate, match="node 'a' returned 3"):
        builder_of((cb.START, "a"), a=lambda state: 3).compile().invoke({"x": 0})
    with pytest.raises(cb.InvalidUpdate, match=r"the input has the key 'z'|returned the key 'z'"):
        graph.invoke({"z": 0})


@dataclasses.dataclass
class Parts:
    total: Annotated[int, operator.add] = 0
    name: str | None = None


def test_a_state_may_be_a_dataclass() -> None:
    builder = cb.StateGraph(Parts).add_node("add", lambda state: Parts(total=state.total + 1)).set_entry_point("add")
    assert builder.compile().invoke({"total": 2, "name": "n"}) == {"total": 5, "name": "n"}


def test_commands_go_where_they_say() -> None:
    def choose(state: State) -> cb.Command[Literal["b", "c"]]:
        return cb.Command(
            update={"log": ["choose"]}, goto="c" if state["x"] else ["b", cb.Send("c", {"log": [""] * 9})]
        )

    builder = builder_of((cb.START, "choose"), choose=choose, b=note("b"), c=note("c"))
    graph = builder.compile()
    assert graph.invoke({"x": 1, "log": []})["log"] == ["choose", "c1"]
    assert graph.invoke({"x": 0, "log": []})["log"] == ["choose", "b1", "c9"]
    assert "n_choose -.-> n_b" in graph.draw_mermaid()


@pytest.mark.parametrize("rule, log", [("all_scheduled", ["a0", "z1"]), ("all", ["a0"])])
def test_a_join_with_a_parent_that_is_skipped(rule: Any, log: list[str]) -> None:
    builder = builder_of((["a", "b"], "z"), a=note("a"), b=note("b"), z=note("z"))
    builder.add_conditional_edges(cb.START, lambda state: "a", ["a", "b"])
    assert builder.compile(join=rule).invoke({"log": []})["log"] == log


def test_deferred_nodes_run_last() -> None:
    builder = builder_of((cb.START, "a"), ("a", "b"), ("b", "c"), a=note("a"), b=note("b"), c=note("c"))
    builder.add_node("last", note("last"), defer=True)
    builder.add_edge("a", "last")
    assert builder.compile().invoke({"log": []})["log"] == ["a0", "b1", "c2", "last3"]


@pytest.mark.parametrize(
    "build, says",
    [
        (lambda b: b.add_edge("a", "x").add_edge(cb.START, "a"), "there is no node 'x'"),
        (lambda b: b, "no entry"),
        (lambda b: b.add_edge(cb.START, "a").add_node("lost", note("lost")), "nothing leads to 'lost'"),
        (lambda b: b.add_node("a", note("a")), "there is a node 'a'"),
        (lambda b: b.add_node("x", note("x")), "'x' is a key of the state"),
        (lambda b: b.add_edge(cb.START, "a").add_edge(cb.START, "a"), "an edge from '__start__' to 'a' already"),
        (lambda b: b.add_edge(cb.END, "a"), "no edge leads from END"),
    ],
)
def test_wrong_graphs_are_refused(build: Any, says: str) -> None:
    with pytest.raises(cb.GraphError, match=says):
        build(builder_of(a=note("a"))).compile()


def test_conditions_that_lead_nowhere_are_refused() -> None:
    builder = builder_of((cb.START, "a"), a=note("a"))
    with pytest.raises(cb.GraphError, match="'a' leads to 'x', and there is no such node; the nodes are: 'a'"):
        builder.add_conditional_edges("a", lambda state: "x").compile().invoke({"log": []})


# -- interrupts and checkpoints ----------------------------------------------------------------------------------------


def journals(folder: Path) -> dict[str, Any]:
    return {"file": lambda: cb.FileJournal(folder), "sqlite": lambda: cb.SqliteJournal(folder / "journal.db")}


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_a_run_is_answered_by_another_process(tmp_path: Path, kind: str) -> None:
    """Of parallel nodes, those that have finished do not run again, nor do answered interrupts fire again."""
    ran: list[str] = []

    def ask(name: str) -> Any:
        def call(state: State) -> dict[str, Any]:
            answer = cb.interrupt({"who": name})
            ran.append(name)
            return {"log": [f"{name}={answer}"]}

        return call

    def other(state: State) -> dict[str, Any]:
        ran.append("other")
        return {"log": ["other"]}

    def graph() -> cb.CompiledStateGraph:
        starts = [(cb.START, name) for name in ("p", "q", "other")]
        builder = builder_of(*starts, ("p", "end"), p=ask("p"), q=ask("q"), other=other, end=note("end"))
        return builder.compile(checkpointer=journals(tmp_path)[kind]())

    first = graph()
    waits = first.invoke({"x": 1, "log": []}, CONFIG)["__interrupt__"]
    assert [each.value for each in waits] == [{"who": "p"}, {"who": "q"}]
    with pytest.raises(cb.GraphError, match="2 interrupts wait"):
        first.invoke(cb.Command(resume="?"), CONFIG)
    left = first.invoke(cb.Command(resume={waits[0].id: 1}), CONFIG)
    assert ([each.value for each in left["__interrupt__"]], left["log"]) == ([{"who": "q"}], ["other", "p=1"])
    close(first)
    again = graph()
    assert again.get_state(CONFIG).next == ("q",)
    assert again.invoke(cb.Command(resume=2), CONFIG)["log"] == ["other", "p=1", "q=2", "end3"]
    assert ran == ["other", "p", "q"]
    with pytest.raises(cb.EmptyInput, match="no interrupt waits"):
        again.invoke(cb.Command(resume=3), CONFIG)
    close(again)


def test_except_exception_does_not_catch_an_interrupt() -> None:
    def careless(state: State) -> dict[str, Any]:
        try:
            return {"log": [cb.interrupt("?")]}
        except Exception:
            return {"log": ["swallowed"]}

    graph = builder_of((cb.START, "a"), a=careless).compile(checkpointer=cb.Checkpoints())
    assert "__interrupt__" in graph.invoke({"log": []}, CONFIG)
    assert graph.invoke(cb.Command(resume="yes"), CONFIG)["log"] == ["yes"]


def test_interrupts_in_a_graph_within_a_graph() -> None:
    ran: list[str] = []

    def before(state: State) -> dict[str, Any]:
        ran.append("before")
        return {"log": ["before"]}

    inner = builder_of(
        (cb.START, "before"), ("before", "ask"), before=before, ask=lambda s: {"log": [cb.interrupt("in?")]}
    )
    outer = builder_of(
        (cb.START, "inner"), ("inner", "ask"), inner=inner.compile(), ask=lambda s: {"log": [cb.interrupt("out?")]}
    )
    graph = outer.compile(checkpointer=cb.Checkpoints())
    assert graph.invoke({"x": 1, "log": []}, CONFIG)["__interrupt__"][0].value == "in?"
    assert graph.invoke(cb.Command(resume="A"), CONFIG)["__interrupt__"][0].value == "out?"
    assert graph.invoke(cb.Command(resume="B"), CONFIG)["log"] == ["before", "A", "B"]
    assert ran == ["before"]


def test_a_failed_run_continues_with_what_had_not_finished() -> None:
    fails = [True]
    ran: list[str] = []

    async def fine(state: State) -> dict[str, Any]:
        ran.append("fine")
        return {"log": ["fine"]}

    async def flaky(state: State) -> dict[str, Any]:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if fails:
            fails.pop()
            raise ConnectionError("gone")
        return {"log": ["flaky"]}

    graph = builder_of((cb.START, "fine"), (cb.START, "flaky"), fine=fine, flaky=flaky).compile(cb.Checkpoints())
    with pytest.raises(ConnectionError) as caught:
        graph.invoke({"log": []}, CONFIG)
    assert caught.value.__notes__ == ["in node 'flaky', step 1"]
    state = graph.get_state(CONFIG)
    assert (state.next, state.tasks[1].error) == (("flaky",), "ConnectionError: gone")
    assert graph.invoke(None, CONFIG)["log"] == ["fine", "flaky"]
    assert ran == ["fine"]


def test_breakpoints() -> None:
    builder = builder_of((cb.START, "a"), ("a", "b"), ("b", "c"), a=note("a"), b=note("b"), c=note("c"))
    graph = builder.compile(cb.Checkpoints(), interrupt_before=["b"], interrupt_after=["b"])
    logs = [graph.invoke(given, CONFIG)["log"] for given in ({"log": []}, None, None)]
    assert logs == [["a0"], ["a0", "b1"], ["a0", "b1", "c2"]]
    assert graph.get_state(CONFIG).next == ()


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_states_are_kept(tmp_path: Path, durability: Any) -> None:
    builder = builder_of((cb.START, "a"), ("a", "b"), a=note("a"), b=lambda s: {"x": s["x"] + 1})
    graph = builder.compile(cb.FileJournal(tmp_path))
    graph.invoke({"x": 1, "log": []}, CONFIG, durability=durability)
    graph.invoke({"x": 5}, CONFIG, durability=durability)
    close(graph)
    again = builder.compile(cb.FileJournal(tmp_path))
    assert again.get_state(CONFIG).values == {"x": 6, "log": ["a0", "a1"]}
    history = list(again.get_state_history(CONFIG))
    assert len(history) == (2 if durability == "exit" else 6)
    if durability != "exit":
        back = again.update_state(history[4].config, {"x": 100})
        assert again.invoke(None, back)["x"] == 101
    close(again)


def test_deleted_states_leave_the_journal() -> None:
    journal = cb.MemoryJournal()
    store = cb.Checkpoints(journal)
    graph = builder_of((cb.START, "a"), a=note("a")).compile(store)
    for n in range(20):
        graph.invoke({"x": n, "log": []}, {"configurable": {"thread_id": str(n % 2)}})
    wanted = [graph.get_state({"configurable": {"thread_id": str(n)}}).values for n in (0, 1)]
    store.prune(["0", "1"])
    store.compact()
    assert len(journal.read(1, 1000)) == 4  # two states, and the marks of the compaction
    store.close()
    again = builder_of((cb.START, "a"), a=note("a")).compile(cb.Checkpoints(journal))
    assert [again.get_state({"configurable": {"thread_id": str(n)}}).values for n in (0, 1)] == wanted


def test_a_compaction_that_did_not_end_changes_nothing() -> None:
    class Torn(cb.MemoryJournal):
        def append(self, first: int, records: Any) -> None:
            super().append(first, records[:-1] if len(records) > 1 else records)
            if len(records) > 1:
                raise OSError("killed")

    journal = Torn()
    store = cb.Checkpoints(journal)
    graph = builder_of((cb.START, "a"), a=note("a")).compile(store)
    graph.invoke({"log": ["in"]}, CONFIG)
    with pytest.raises(OSError, match="killed"):
        store.compact()
    store.close()
    again = builder_of((cb.START, "a"), a=note("a")).compile(cb.Checkpoints(journal))
    assert again.get_state(CONFIG).values["log"] == ["in", "a1"]


async def test_arrays_of_a_device_are_kept_and_made_again() -> None:
    class Arrays(TypedDict):
        a: Any

    async with cb.device("cpu", isolation="thread") as gpu:

        async def double(state: Arrays) -> dict[str, Any]:
            return {"a": gpu.blas.gemm(state["a"], gpu.put(2 * np.eye(2, dtype="f4")))}

        builder = cb.StateGraph(Arrays).add_node("one", double).add_node("two", double)
        builder.add_edge(cb.START, "one").add_edge("one", "two")
        graph = builder.compile(cb.Checkpoints(), interrupt_after=["one"], device=gpu)
        await graph.ainvoke({"a": gpu.put(np.ones((2, 2), "f4"))}, CONFIG)
        found = await graph.ainvoke(None, CONFIG)
        assert (await found["a"].get()).tolist() == [[4, 4], [4, 4]]


@pytest.mark.fault
async def test_a_lost_device_costs_the_step_that_it_interrupts() -> None:
    class Arrays(TypedDict):
        a: Any
        ran: Annotated[list[str], operator.add]

    async with cb.device("cpu", isolation="process", standby=None) as gpu:
        kills = [gpu.health().host_pid]

        async def one(state: Arrays) -> dict[str, Any]:
            return {"a": gpu.blas.axpy(state["a"], state["a"], alpha=1.0), "ran": ["one"]}

        async def two(state: Arrays) -> dict[str, Any]:
            if kills and (pid := kills.pop()) is not None:
                os.kill(pid, signal.SIGKILL)
                while not state["a"].is_stale:
                    with contextlib.suppress(cb.AccelError):
                        await gpu.zeros(1)
            return {"a": gpu.blas.axpy(state["a"], state["a"], alpha=1.0), "ran": ["two"]}

        builder = cb.StateGraph(Arrays).add_node("one", one).add_node("two", two)
        graph = builder.add_edge(cb.START, "one").add_edge("one", "two").compile(cb.Checkpoints(), device=gpu)
        given = {"a": gpu.put(np.arange(3, dtype="f4")), "ran": []}
        with pytest.raises(cb.ContextLost):
            await graph.ainvoke(given, CONFIG)
        found = await graph.ainvoke(None, CONFIG)
        assert ((await found["a"].get()).tolist(), found["ran"]) == ([0, 4, 8], ["one", "two"])


def test_one_run_of_a_thread_at_a_time() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def wait(state: State) -> None:
            await gate.wait()

        graph = builder_of((cb.START, "a"), a=wait).compile(cb.Checkpoints())
        first = asyncio.ensure_future(graph.ainvoke({"x": 1}, CONFIG))
        await asyncio.sleep(0)
        with pytest.raises(cb.GraphError, match="a run of thread '1' is under way"):
            await graph.ainvoke({"x": 2}, CONFIG)
        gate.set()
        await first

    asyncio.run(main())


# -- streams, and what nodes can reach ---------------------------------------------------------------------------------


def test_streams() -> None:
    def talk(state: State, writer: Any, config: Any, runtime: cb.Runtime) -> dict[str, Any]:
        writer("one")
        cb.get_stream_writer()("two")
        assert cb.get_config() == config
        return {"log": [runtime.context]}

    graph = builder_of((cb.START, "talk"), ("talk", "b"), talk=talk, b=lambda s: None).compile()
    parts = list(graph.stream({"log": []}, stream_mode=["values", "updates", "custom"], context="ctx"))
    assert parts == [
        ("values", {"log": []}),
        ("custom", "one"),
        ("custom", "two"),
        ("updates", {"talk": {"log": ["ctx"]}}),
        ("values", {"log": ["ctx"]}),
        ("updates", {"b": None}),
    ]


async def test_a_reader_that_leaves_cancels_the_run() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(state: State) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    graph = builder_of((cb.START, "a"), ("a", "b"), a=note("a"), b=wait).compile()
    items = graph.astream({"log": []})
    assert await anext(items) == {"a": {"log": ["a0"]}}
    await asyncio.wait_for(began.wait(), 30)
    await items.aclose()
    assert cancelled.is_set()


async def test_policies_of_nodes() -> None:
    clock, calls = ManualClock(), []

    async def flaky(state: State) -> dict[str, Any]:
        calls.append(clock.time())
        if len(calls) == 1:
            raise ConnectionError
        return {"log": ["done"]}

    builder = cb.StateGraph(State, clock=clock)
    builder.add_node("flaky", flaky, retry_policy=cb.RetryPolicy(jitter=False), cache_policy=cb.CachePolicy())
    graph = builder.set_entry_point("flaky").compile()
    run = asyncio.ensure_future(graph.ainvoke({"log": []}))
    for _ in range(20):
        await asyncio.sleep(0)
    clock.advance(0.5)
    assert (await run)["log"] == ["done"]
    assert (await graph.ainvoke({"log": []}))["log"] == ["done"]
    assert calls == [0.0, 0.5]


def test_the_recursion_limit() -> None:
    graph = builder_of((cb.START, "a"), ("a", "a"), a=note("a")).compile()
    with pytest.raises(cb.GraphRecursionError, match="4 steps have not led to the end; next: a"):
        graph.invoke({"log": []}, {"recursion_limit": 4})


def test_misuse_is_named() -> None:
    graph = builder_of((cb.START, "a"), a=lambda s: {"log": [cb.interrupt("?")]}).compile()
    with pytest.raises(cb.GraphError, match=r"interrupt\(\) needs a checkpointer"):
        graph.invoke({"log": []})
    with pytest.raises(cb.GraphError, match="outside of a node"):
        cb.interrupt("?")
    with pytest.raises(cb.EmptyInput, match="nothing to continue"):
        graph.invoke(None)
    with pytest.raises(cb.GraphError, match="thread_id"):
        builder_of((cb.START, "a"), a=note("a")).compile(cb.Checkpoints()).invoke({"log": []})
