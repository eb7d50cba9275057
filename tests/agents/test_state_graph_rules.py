"""``StateGraph`` against a reference interpreter: the shortest program that follows its rules."""

import operator
from typing import Annotated, Any, TypedDict

from hypothesis import given, settings
from hypothesis import strategies as st

import callboard as cb


class State(TypedDict):
    x: int
    log: Annotated[list[str], operator.add]


NAMES = ["a", "b", "c", "d"]
TARGETS = [*NAMES, "__end__"]
PLANS = st.fixed_dictionaries(
    {
        "edges": st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(TARGETS)), max_size=4),
        "entries": st.sets(st.sampled_from(NAMES), min_size=1, max_size=2),
        "conditions": st.dictionaries(
            st.sampled_from(NAMES), st.lists(st.sampled_from(TARGETS), min_size=1), max_size=2
        ),
        "sends": st.dictionaries(
            st.sampled_from(NAMES), st.tuples(st.sampled_from(NAMES), st.integers(0, 2)), max_size=1
        ),
        "join": st.none() | st.sampled_from(NAMES),
    }
)
LIMIT = 7


def interpreted(plan: dict[str, Any]) -> list[list[str]] | str:
    """The log after each step, by the shortest program that follows the rules."""
    log, logs = ["in"], [["in"]]
    step: list[tuple[str, int | None]] = []
    step += [(name, None) for name in sorted(plan["entries"])]
    arrived: set[str] = set()
    for _ in range(LIMIT):
        if not step:
            return logs
        new, names, sent = [], set(), []
        for name, arg in step:
            own = [f"{name}{len(log) if arg is None else -1}"]
            new += own
            after = len(log) + len(own)
            if name in plan["conditions"]:
                names.add(plan["conditions"][name][after % len(plan["conditions"][name])])
            if name in plan["sends"]:
                to, count = plan["sends"][name]
                sent += [(to, n) for n in range(count)]
            names |= {end for start, end in plan["edges"] if start == name}
            if plan["join"] and name in ("a", "b"):
                arrived.add(name)
                if len(arrived) == 2:
                    arrived.clear()
                    names.add(plan["join"])
        log = log + new
        logs.append(log)
        names.discard("__end__")
        step = [(name, None) for name in sorted(names)] + sent  # updates: by name, then those sent
        if not step and arrived:
            arrived.clear()
            step = [(plan["join"], None)]
    return "recursion"


@settings(max_examples=40, deadline=None)
@given(PLANS)
def test_random_graphs_do_what_an_interpreter_does(plan: dict[str, Any]) -> None:
    builder = cb.StateGraph(State)
    for name in NAMES:

        def node(state: Any, name: str = name) -> dict[str, Any]:
            return {"log": [f"{name}{len(state['log']) if isinstance(state, dict) else -1}"]}

        builder.add_node(name, node, executor="loop")
        builder.add_conditional_edges(name, lambda state: "__end__", TARGETS)  # so that every node can be reached
    for name in plan["entries"]:
        builder.add_edge(cb.START, name)
    for start, end in plan["edges"]:
        builder.add_edge(start, end)
    for name, targets in plan["conditions"].items():
        builder.add_conditional_edges(name, lambda state, t=targets: t[len(state["log"]) % len(t)])
    for name, (to, count) in plan["sends"].items():
        builder.add_conditional_edges(name, lambda state, t=to, c=count: [cb.Send(t, n) for n in range(c)])
    if plan["join"]:
        builder.add_edge(["a", "b"], plan["join"])
    graph = builder.compile()
    try:
        found: Any = [
            each["log"] for each in graph.stream({"log": ["in"]}, {"recursion_limit": LIMIT}, stream_mode="values")
        ]
    except cb.GraphRecursionError:
        found = "recursion"
    assert found == interpreted(plan)
