"""The checked form of a DAG: who waits for whom, by numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from callboard.agents.graph.errors import GraphError
from callboard.agents.graph.nodes import Step

__all__ = ["Plan", "plan_of"]

Edge = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run needs of a DAG.

    Attributes:
        steps: The nodes.
        inputs: Of each node, the nodes whose results are its arguments.
        keywords: Of each node, the names of the arguments that are given by name, with the node that gives them.
        successors: Of each node, those that wait for it, once for each edge.
        waits: Number of edges into each node.
        entries: The nodes that get the state of the run.
        sinks: The nodes whose results are those of the run.
    """

    steps: tuple[Step, ...]
    inputs: tuple[tuple[int, ...], ...]
    keywords: tuple[tuple[tuple[str, int], ...], ...]
    successors: tuple[tuple[int, ...], ...]
    waits: tuple[int, ...]
    entries: tuple[int, ...]
    sinks: tuple[int, ...]


def plan_of(nodes: Mapping[str, Step], edges: Sequence[Edge], entries: Sequence[str]) -> Plan:
    """Check a DAG.

    Raises:
        GraphError: It has no nodes, a cycle, or a node that no entry leads to.
    """
    if not nodes:
        raise GraphError("the graph has no nodes; call add_node")
    number = {name: n for n, name in enumerate(nodes)}
    names = list(nodes)
    successors: list[list[int]] = [[] for _ in names]
    inputs: list[list[int]] = [[] for _ in names]
    keywords: list[list[tuple[str, int]]] = [[] for _ in names]
    for start, end, argument in edges:
        a, b = number[start], number[end]
        successors[a].append(b)
        if argument is None:
            inputs[b].append(a)
        else:
            keywords[b].append((argument, a))
    waits = [len(inputs[n]) + len(keywords[n]) for n in range(len(names))]
    _refuse_cycles(names, successors, waits)
    roots = [n for n, count in enumerate(waits) if not count]
    first = [number[name] for name in entries] or roots
    for n in first:
        if waits[n]:
            giver = names[(inputs[n] or [keywords[n][0][1]])[0]]
            raise GraphError(f"{names[n]!r} is an entry, and has an edge from {giver!r}; an entry gets the run's state")
    lost = [names[n] for n in roots if n not in first]
    if lost:
        raise GraphError(f"no entry leads to {_list(lost)}; add it to set_entry, or an edge to it")
    sinks = tuple(n for n, after in enumerate(successors) if not after)
    return Plan(
        tuple(nodes.values()),
        tuple(map(tuple, inputs)),
        tuple(map(tuple, keywords)),
        tuple(map(tuple, successors)),
        tuple(waits),
        tuple(first),
        sinks,
    )


def _refuse_cycles(names: Sequence[str], successors: Sequence[Sequence[int]], waits: Sequence[int]) -> None:
    left = list(waits)
    ready = [n for n, count in enumerate(left) if not count]
    done = 0
    while ready:
        done += 1
        for after in successors[ready.pop()]:
            left[after] -= 1
            if not left[after]:
                ready.append(after)
    if done == len(names):
        return
    # Each node that is left waits for one that is left: going back from any leads into a cycle.
    before: dict[int, int] = {}
    for n, later in enumerate(successors):
        if left[n]:
            before.update(dict.fromkeys((m for m in later if left[m]), n))
    at, seen = next(iter(before)), [-1]
    while at not in seen:
        seen.append(at)
        at = before[at]
    cycle = [*reversed(seen[seen.index(at) :])]
    path = " -> ".join(names[n] for n in (*cycle, cycle[0]))
    raise GraphError(f"the graph has a cycle: {path}; a DAG has none: use cb.StateGraph for loops")


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
