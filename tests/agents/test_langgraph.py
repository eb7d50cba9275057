"""Against langgraph: random graphs have equal results; its suite of checkpointers passes over our journals."""

import asyncio
import operator
import tempfile
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callboard as cb

pytest.importorskip("langgraph", reason="langgraph is not installed: pip install callboard[langgraph]")


class State(TypedDict):
    x: int
    log: Annotated[list[str], operator.add]


def engines() -> list[SimpleNamespace]:
    """Both, with the same names."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.errors import GraphRecursionError, InvalidUpdateError
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command, Overwrite, Send, interrupt

    ours = SimpleNamespace(
        StateGraph=cb.StateGraph, START=cb.START, END=cb.END, Send=cb.Send, Command=cb.Command, interrupt=cb.interrupt,
        Overwrite=cb.Overwrite, saver=cb.Checkpoints, recursion=cb.GraphRecursionError, invalid=cb.InvalidUpdate,
        compile={"join": "all"},
    )  # fmt: skip
    theirs = SimpleNamespace(
        StateGraph=StateGraph, START=START, END=END, Send=Send, Command=Command, interrupt=interrupt,
        Overwrite=Overwrite, saver=InMemorySaver, recursion=GraphRecursionError, invalid=InvalidUpdateError, compile={},
    )  # fmt: skip
    return [ours, theirs]


Plan = dict[str, Any]
NAMES = ["a", "b", "c", "d", "e"]
TARGETS = [*NAMES, "__end__"]
PLANS = st.fixed_dictionaries(
    {
        "edges": st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(TARGETS)), max_size=5),
        "entries": st.sets(st.sampled_from(NAMES), min_size=1, max_size=2),
        "conditions": st.dictionaries(
            st.sampled_from(NAMES), st.lists(st.sampled_from(TARGETS), min_size=1, max_size=3)
        ),
        "sends": st.dictionaries(
            st.sampled_from(NAMES), st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), max_size=2
        ),
        "commands": st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TARGETS), max_size=1),
        "joins": st.sets(
            st.tuples(st.tuples(st.sampled_from(NAMES[:2]), st.sampled_from(NAMES[2:4])), st.sampled_from(NAMES)),
            max_size=1,
        ),
        "writes_x": st.sets(st.sampled_from(NAMES), max_size=2),
        "defer": st.sets(st.sampled_from(NAMES), max_size=1),
        "interrupts": st.sets(st.sampled_from(NAMES), max_size=1),
        "limit": st.integers(2, 9),
    }
)


def build(of: SimpleNamespace, plan: Plan) -> Any:
    builder = of.StateGraph(State)

    def node(name: str) -> Callable[[Any], Any]:
        def call(state: Any) -> Any:
            log = state["log"] if isinstance(state, dict) else [state]
            update: dict[str, Any] = {"log": [f"{name}{len(log)}"]}
            if name in plan["interrupts"]:
                update["log"].append(str(of.interrupt(f"{name}?")))
            if name in plan["writes_x"]:
                update["x"] = len(log)
            if name in plan["commands"]:
                return of.Command(update=update, goto=plan["commands"][name])
            return update

        return call

    def named(name: str, path: Callable[[Any], Any]) -> Callable[[Any], Any]:
        path.__name__ = name
        return path

    def condition(targets: list[str]) -> Callable[[Any], Any]:
        return named("-".join(targets), lambda state: targets[len(state["log"]) % len(targets)])

    def sends(to: str, count: int) -> Callable[[Any], Any]:
        return named("sends", lambda state: [of.Send(to, f"{n}") for n in range(count)])

    for name in NAMES:
        builder.add_node(name, node(name), defer=name in plan["defer"])
    for name in sorted(plan["entries"]):
        builder.add_edge(of.START, name)
    for start, end in sorted(plan["edges"]):
        builder.add_edge(start, end)
    for starts, end in sorted(plan["joins"]):
        builder.add_edge(list(starts), end)
    for name, targets in sorted(plan["conditions"].items()):
        builder.add_conditional_edges(name, condition(targets), TARGETS)
    for name, (to, count) in sorted(plan["sends"].items()):
        builder.add_conditional_edges(name, sends(to, count), NAMES)
    for name in NAMES:  # so that every node can be reached
        builder.add_conditional_edges(name, named("end", lambda state: "__end__"), TARGETS)
    return builder.compile(checkpointer=of.saver(), **of.compile)


def outcome(of: SimpleNamespace, plan: Plan) -> list[Any]:
    """Everything that a caller sees of a run, and of two answers to its interrupts."""
    graph = build(of, plan)
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": plan["limit"]}
    seen: list[Any] = []
    given: Any = {"x": 0, "log": ["in"]}
    for answer in ("one", "two", None):
        try:
            parts = list(graph.stream(given, config, stream_mode=["values", "updates"]))
        except of.recursion:
            return [*seen, "recursion"]
        except of.invalid:
            return [*seen, "invalid"]
        except Exception as e:
            return [*seen, type(e).__name__, str(e)]
        values = [part for mode, part in parts if mode == "values" and "__interrupt__" not in part]
        updates = sorted(repr(part) for mode, part in parts if mode == "updates" and "__interrupt__" not in part)
        state = graph.get_state(config)
        waits = [each.value for each in state.interrupts]
        seen += [values, updates, state.values, sorted(state.next), waits]
        if len(waits) != 1 or answer is None:
            break
        given = of.Command(resume=answer)
    steps = [(s.values, sorted(s.next), s.metadata["step"]) for s in graph.get_state_history(config)]
    return [*seen, [step for step in steps if step[2] >= 0]]


@pytest.mark.timeout(300)
@settings(max_examples=15, deadline=None)
@given(PLANS)
def test_random_graphs_give_the_same_results(plan: Plan) -> None:
    ours, theirs = (outcome(of, plan) for of in engines())
    assert ours == theirs


def test_answers_time_travel_and_updates_give_the_same_results() -> None:
    found = []
    for of in engines():
        builder = of.StateGraph(State)

        def ask(state: Any, of: Any = of) -> Any:
            return {"log": [of.interrupt("first"), of.interrupt("second")]}

        def end(state: Any) -> Any:
            return {"log": ["end"], "x": state["x"] + 1}

        builder.add_node("ask", ask).add_node("end", end)
        builder.add_edge(of.START, "ask").add_edge("ask", "end")
        graph = builder.compile(checkpointer=of.saver())
        config = {"configurable": {"thread_id": "1"}}
        seen: list[Any] = []

        def note(result: Any, seen: list[Any] = seen) -> None:
            seen.append({key: item for key, item in result.items() if key != "__interrupt__"})
            seen.append([each.value for each in result.get("__interrupt__", ())])

        note(graph.invoke({"x": 1, "log": ["in"]}, config))
        note(graph.invoke(of.Command(resume="A"), config))
        note(graph.invoke(of.Command(resume="B"), config))
        at_ask = next(s for s in graph.get_state_history(config) if s.next == ("ask",))
        note(graph.invoke(None, at_ask.config))
        note(graph.invoke(of.Command(resume="C"), config))
        note(graph.invoke(of.Command(resume="D"), config))
        graph.update_state(config, {"x": 10, "log": of.Overwrite(["new"])}, as_node="ask")
        state = graph.get_state(config)
        seen += [state.values, state.next, state.metadata["source"]]
        note(graph.invoke(None, config))
        note(graph.invoke({"x": 5, "log": ["again"]}, config))
        seen.append(graph.get_state(config).next)
        found.append(seen)
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
async def test_the_suite_of_checkpointers_passes(kind: str) -> None:
    conformance: Any = pytest.importorskip(
        "langgraph.checkpoint.conformance", reason="langgraph-checkpoint-conformance is not installed"
    )

    @conformance.checkpointer_test(name="callboard")
    async def saver() -> AsyncIterator[Any]:
        with tempfile.TemporaryDirectory() as folder:
            make = {
                "memory": cb.MemoryJournal,
                "file": lambda: cb.FileJournal(folder),
                "sqlite": lambda: cb.SqliteJournal(f"{folder}/journal.db"),
            }
            made = cb.langgraph_saver(make[kind]())
            yield made
            made.store.close()

    report = await conformance.validate(saver)
    assert report.passed_all(), report.to_dict()
    assert len([each for each in report.results.values() if each.passed]) == 8


def langgraph_of(checkpointer: Any = None, node: Any = None) -> Any:
    from langgraph.graph import START, StateGraph

    builder = StateGraph(State)
    builder.add_node("add", node or (lambda state: {"x": state["x"] + 1, "log": ["theirs"]}))
    return builder.add_edge(START, "add").compile(checkpointer=checkpointer)


def test_its_graphs_keep_their_states_in_our_journal(tmp_path: Any) -> None:
    config = {"configurable": {"thread_id": "1"}}
    first = cb.langgraph_saver(cb.FileJournal(tmp_path))
    langgraph_of(first).invoke({"x": 1, "log": []}, config)
    first.store.close()
    again = cb.langgraph_saver(cb.FileJournal(tmp_path))
    assert langgraph_of(again).get_state(config).values == {"x": 2, "log": ["theirs"]}
    assert langgraph_of(again).invoke({"x": 5}, config) == {"x": 6, "log": ["theirs", "theirs"]}
    again.store.close()


async def test_each_engine_runs_graphs_of_the_other() -> None:
    builder = cb.StateGraph(State)
    builder.add_node("inner", langgraph_of())
    ours = builder.add_edge(cb.START, "inner").compile()
    assert await ours.ainvoke({"x": 1, "log": ["in"]}) == {"x": 2, "log": ["in", "in", "theirs"]}
    dag = (
        cb.NodeGraph().add_node("inner", langgraph_of()).add_node("x", lambda state: state["x"]).add_edge("inner", "x")
    )
    assert await dag.run({"x": 1, "log": []}) == 2
    inner = cb.StateGraph(State).add_node("one", lambda state: {"x": state["x"] + 1}).set_entry_point("one").compile()
    theirs = langgraph_of(node=cb.langgraph_runnable(inner))
    assert (await theirs.ainvoke({"x": 1, "log": []}))["x"] == 2
    assert (await asyncio.to_thread(theirs.invoke, {"x": 1, "log": []}))["x"] == 2
