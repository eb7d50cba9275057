"""``StateGraph``: builds a graph whose nodes read a state and return updates of it; the API of langgraph's."""

import inspect
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from callboard.actors.clock import Clock, LoopClock
from callboard.actors.loops.end import END
from callboard.agents.graph.calling import Executor, name_of
from callboard.agents.graph.checkpoints.store import Checkpoints
from callboard.agents.graph.errors import GraphError
from callboard.agents.graph.nodes import Step
from callboard.agents.graph.policies import CachePolicy, RetryPolicy
from callboard.agents.graph.stateful.compiled import CompiledStateGraph
from callboard.agents.graph.stateful.schema import Channel, Schema
from callboard.agents.graph.stateful.spec import Branch, JoinRule, Node, Spec
from callboard.agents.graph.stateful.types import START, Command
from callboard.multi_device.replay.journals.protocol import Journal

__all__ = ["StateGraph"]

_log = logging.getLogger("callboard.graph")
EXTRAS = ("config", "writer", "runtime")


class StateGraph:
    """Builds a graph over a shared state; ``compile`` makes the one that runs.

    ::

        class State(TypedDict):
            texts: Annotated[list[str], operator.add]


        builder = cb.StateGraph(State)
        builder.add_node("greet", lambda state: {"texts": ["hello"]})
        builder.add_edge(cb.START, "greet")
        graph = builder.compile()
        print(graph.invoke({"texts": []}))

    The API and the results are those of ``langgraph.graph.StateGraph``. A run goes in steps: all nodes that the last
    step has led to run at once, and their updates are applied together, by name of the node.

    Args:
        state_schema: The keys of the state: a TypedDict, a dataclass or a pydantic model. ``Annotated[list,
            operator.add]`` gives a key a reducer; without one, an update replaces the value.
        context_schema: Of the ``context`` of a run; not checked.
        input_schema, output_schema: The keys that ``invoke`` takes and returns; by default all.
        clock: Tells the time; for tests.
    """

    def __init__(
        self,
        state_schema: Any,
        context_schema: Any = None,
        *,
        input_schema: Any = None,
        output_schema: Any = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or LoopClock()
        self._schemas: dict[Any, Schema] = {}
        self._state = self._schema(state_schema)
        self._inputs = self._schema(input_schema or state_schema)
        self._outputs = self._schema(output_schema or state_schema)
        self._nodes: dict[str, Node] = {}
        self._edges: dict[tuple[str, str], None] = {}
        self._joins: dict[tuple[tuple[str, ...], str], None] = {}
        self._branches: dict[tuple[str, str], Branch] = {}

    def _schema(self, cls: Any) -> Schema:
        if cls not in self._schemas:
            self._schemas[cls] = Schema(cls)
        return self._schemas[cls]

    def add_node(
        self,
        node: Any,
        action: Any = None,
        *,
        defer: bool = False,
        input_schema: Any = None,
        retry_policy: RetryPolicy | None = None,
        cache_policy: CachePolicy | None = None,
        destinations: Sequence[str] | Mapping[str, str] = (),
        timeout: float | None = None,
        executor: Executor = "auto",
    ) -> Self:
        """Add a node: ``add_node("name", function)`` or ``add_node(function)``.

        Args:
            node: Its name, or the function itself.
            action: See :meth:`NodeGraph.add_node`. It gets the state and returns an update: a dict of keys, a
                :class:`Command`, a list of these, or None. It may take ``config``, ``writer`` and ``runtime``, too.
            defer: Run it when nothing else is left to run.
            input_schema: The keys that it reads; by default those of the annotation of its first parameter, if that is
                a schema, else the state's.
            retry_policy, cache_policy, timeout: See :meth:`NodeGraph.add_node`.
            destinations: Where its commands may lead, for the picture.
            executor: ``"loop"`` calls a plain function on the event loop: for functions that take microseconds.

        Raises:
            GraphError: There is a node of that name, or it is ``START`` or ``END``.
        """
        if isinstance(node, str):
            name, call = node, action
        else:
            name, call = name_of(node), node
        if call is None:
            raise GraphError(f"add_node({name!r}): pass its function, too: add_node({name!r}, function)")
        if name in self._nodes:
            raise GraphError(f"there is a node {name!r}; each node needs a name of its own")
        if name in (START, END) or not name or name in self._state.channels:
            why = "is a key of the state, too" if name in self._state.channels else "is reserved"
            raise GraphError(f"{name!r} {why}; choose another name for the node")
        is_graph = callable(getattr(call, "ainvoke", None)) and not inspect.isfunction(call)
        parameters, hint = _signature(call)
        schema = self._schema(input_schema) if input_schema is not None else self._schema(hint or self._state.cls)
        self._nodes[name] = Node(
            Step(
                name,
                call.as_node() if isinstance(call, CompiledStateGraph) else call,
                timeout=timeout,
                retry=retry_policy,
                cache=cache_policy,
                executor=executor,
                clock=self._clock,
            ),
            schema,
            () if is_graph else tuple(extra for extra in EXTRAS if extra in parameters[1:]),
            defer,
            tuple(destinations) or _command_ends(call),
            is_graph,
        )
        return self

    def add_edge(self, start_key: str | Sequence[str], end_key: str) -> Self:
        """Go on from one node to another; from several names: join, when all of them are done.

        Raises:
            GraphError: From ``END``, or to ``START``.
        """
        starts = [start_key] if isinstance(start_key, str) else list(start_key)
        if END in starts or end_key == START:
            raise GraphError(f"add_edge({start_key!r}, {end_key!r}): no edge leads from END or to START")
        if isinstance(start_key, str):
            if (start_key, end_key) in self._edges:
                raise GraphError(f"there is an edge from {start_key!r} to {end_key!r} already")
            self._edges[start_key, end_key] = None
        else:
            if not starts:
                raise GraphError("add_edge([], ...): name at least one node")
            self._joins[tuple(starts), end_key] = None
        return self

    def add_conditional_edges(
        self,
        source: str,
        path: Callable[..., Any],
        path_map: Mapping[Any, str] | Sequence[str] | None = None,
    ) -> Self:
        """Go on where a function of the state says: to a name, a :class:`Send`, or several of them.

        Args:
            source: The node after which it is called, with the state after that node's update.
            path: The function; it may be async.
            path_map: Names of nodes by what it returns; None: it returns names.

        Raises:
            GraphError: The node has a condition of that name.
        """
        name = getattr(path, "__name__", type(path).__name__)
        if (source, name) in self._branches and name != "<lambda>":
            raise GraphError(f"{source!r} has a condition {name!r} already")
        parameters, hint = _signature(path)
        returns = _hints(path).get("return")
        if path_map is None and get_origin(returns) is Literal:
            path_map = list(get_args(returns))
        ends = dict(path_map) if isinstance(path_map, Mapping) else None
        if path_map is not None and ends is None:
            ends = {end: end for end in path_map}
        schema = self._schema(hint) if hint else self._nodes[source].schema if source in self._nodes else self._state
        key = f"{name}-{len(self._branches)}"
        self._branches[source, key] = Branch(source, path, ends, schema, "config" in parameters[1:])
        return self

    def add_sequence(self, nodes: Sequence[Any]) -> Self:
        """Add nodes (functions, or pairs of name and function), with an edge from each to the next."""
        names = []
        for each in nodes:
            name, call = each if isinstance(each, tuple) else (name_of(each), each)
            self.add_node(name, call)
            names.append(name)
        for start, end in itertools.pairwise(names):
            self.add_edge(start, end)
        return self

    def set_entry_point(self, key: str) -> Self:
        """An edge from ``START``."""
        return self.add_edge(START, key)

    def set_conditional_entry_point(
        self, path: Callable[..., Any], path_map: Mapping[Any, str] | Sequence[str] | None = None
    ) -> Self:
        """A condition after ``START``."""
        return self.add_conditional_edges(START, path, path_map)

    def set_finish_point(self, key: str) -> Self:
        """An edge to ``END``."""
        return self.add_edge(key, END)

    def compile(
        self,
        checkpointer: Checkpoints | Journal | None = None,
        *,
        interrupt_before: Sequence[str] | Literal["*"] = (),
        interrupt_after: Sequence[str] | Literal["*"] = (),
        join: JoinRule = "all_scheduled",
        device: Any = None,
        name: str = "graph",
    ) -> CompiledStateGraph:
        """Check the graph, and make the one that runs.

        Args:
            checkpointer: :class:`Checkpoints`, or a journal for them: each step is kept, so that runs can be
                interrupted and resumed, and states be looked at.
            interrupt_before, interrupt_after: Nodes at which a run stops; ``invoke(None, config)`` continues it.
            join: When a node runs that joins several: ``"all_scheduled"``: when all have run, or when nothing else is
                left to run and at least one has. ``"all"``: when all have run; if one is skipped, never.
            device: Where arrays of a device are made again when a run is resumed; None: the nodes get NumPy arrays.
            name: For errors.

        Raises:
            GraphError: It has no entry, an edge or a condition leads to no node, or nothing leads to a node.
        """
        edges: dict[str, list[str]] = {}
        for start, end in self._edges:
            edges.setdefault(start, []).append(end)
        branches: dict[str, list[Branch]] = {}
        for (start, _), branch in self._branches.items():
            branches.setdefault(start, []).append(branch)
        self._check(edges, branches, join, [*interrupt_before, *interrupt_after])
        joins_of: dict[str, list[int]] = {}
        for n, (starts, _) in enumerate(self._joins):
            for start in starts:
                joins_of.setdefault(start, []).append(n)
        channels: dict[str, Channel] = {}
        for schema in self._schemas.values():
            for key, channel in schema.channels.items():
                if key not in channels or channels[key].reducer is None:
                    channels[key] = channel
        spec = Spec(
            dict(self._nodes), channels, self._inputs, self._outputs, edges, branches, [*self._joins], join, joins_of
        )
        store = checkpointer if isinstance(checkpointer, Checkpoints | None) else Checkpoints(checkpointer)
        return CompiledStateGraph(
            spec, store, tuple(interrupt_before), tuple(interrupt_after), device, name, self._clock
        )

    def _check(
        self, edges: Mapping[str, list[str]], branches: Mapping[str, list[Branch]], join: str, stops: Sequence[str]
    ) -> None:
        if join not in ("all_scheduled", "all"):
            raise GraphError(f"join is {join!r}; it must be 'all_scheduled' or 'all'")
        named: list[tuple[str, Sequence[str]]] = [(f"edge {a!r} -> {b!r}", (a, b)) for a, b in self._edges]
        named += [(f"join {list(a)!r} -> {b!r}", (*a, b)) for a, b in self._joins]
        named += [(f"condition after {a!r}", (a, *(b.ends or {}).values())) for (a, _), b in self._branches.items()]
        named += [("interrupt", [name for name in stops if name != "*"])]
        for what, names in named:
            for name in names:
                if name not in self._nodes and name not in (START, END):
                    raise GraphError(f"{what}: there is no node {name!r}; add it with add_node")
        if START not in edges and START not in branches:
            raise GraphError("the graph has no entry: add_edge(cb.START, name), or set_entry_point(name)")
        reached = {END, START}
        ahead = [START]
        free = any(b.ends is None for each in branches.values() for b in each)
        free = free or any("Command" in str(_hints(node.step.node).get("return")) for node in self._nodes.values())
        while ahead:
            name = ahead.pop()
            after = [*edges.get(name, ()), *(self._nodes[name].ends if name in self._nodes else ())]
            after += [end for branch in branches.get(name, ()) for end in (branch.ends or {}).values()]
            after += [end for starts, end in self._joins if name in starts]
            ahead += [end for end in after if end not in reached]
            reached.update(after)
        lost = [name for name in self._nodes if name not in reached]
        if lost and not free:
            raise GraphError(f"nothing leads to {', '.join(map(repr, lost))}; add an edge, or remove the node")
        for starts, end in self._joins:
            optional = [
                s for s in starts if any(s in (b.ends or self._nodes) for each in branches.values() for b in each)
            ]
            if optional:
                _log.info(
                    "join %s -> %r: conditions may skip %s; then it %s", list(starts), end, ", ".join(optional),
                    "runs when nothing else is left to run" if join == "all_scheduled" else "never runs",
                )  # fmt: skip


def _signature(call: Any) -> tuple[list[str], Any]:
    """Names of the parameters of a node, and the schema that annotates the first."""
    try:
        names = list(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        return [], None
    hint = _hints(call).get(names[0]) if names else None
    if not isinstance(hint, type) or hint in (dict, list, str, int, float, object):
        return names, None
    try:
        return names, hint if get_type_hints(hint) else None
    except Exception:  # of any class: it is no schema
        return names, None


def _hints(call: Any) -> dict[str, Any]:
    target = call if inspect.isroutine(call) else getattr(call, "func", None) or getattr(call, "__call__", call)  # noqa: B004
    try:
        return get_type_hints(target)
    except Exception:  # of any callable: annotations that cannot be resolved
        return {}


def _command_ends(call: Any) -> tuple[str, ...]:
    """The names in ``-> Command[Literal["a", "b"]]``."""
    returns = _hints(call).get("return")
    if get_origin(returns) is Command:
        return tuple(name for arg in get_args(returns) for name in get_args(arg))
    return ()
