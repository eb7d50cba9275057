"""``NodeGraph``: a dataflow graph of functions and actors."""

import asyncio
from collections import deque
from typing import Any, Literal, Self

from callboard.actors.clock import Clock, LoopClock
from callboard.actors.errors import MailboxFull
from callboard.agents.graph.calling import Executor
from callboard.agents.graph.errors import GraphError
from callboard.agents.graph.nodes import Step
from callboard.agents.graph.picture import mermaid
from callboard.agents.graph.plan import Plan, plan_of
from callboard.agents.graph.policies import CachePolicy, RetryPolicy, checked_timeout
from callboard.agents.graph.running import GraphRun

__all__ = ["NodeGraph"]


class NodeGraph:
    """A directed graph without cycles, whose nodes are functions, actors and servers.

    A node starts as soon as the nodes are done that lead to it, whatever other branches do. Its arguments are their
    results, in the order in which the edges were added; an entry gets the state of the run. The result of a run is that
    of its last node, or a dict of results by name if there are several nodes without successors.

    ::

        graph = cb.NodeGraph()
        graph.add_node("words", str.split).add_node("count", len).add_edge("words", "count")
        print(await graph.run("to be or not to be"))

    A result that is a :class:`GpuRef` is passed on at once: the next node enqueues its ops behind those of the first.
    Runs share their nodes, so requests of parallel runs to a batching server are batched.

    Args:
        max_runs: Runs at once; others wait, first come first served.
        max_waiting: Runs that wait at most.
        max_nodes: Nodes of a run at once; None for no limit.
        on_failure: What a failed node does to the nodes beside it: ``"fail_fast"`` cancels them, ``"wait_all"`` lets
            all run that do not need its result; :attr:`NodeFailed.results` has what they returned.
        clock: Tells the time; for tests.
    """

    def __init__(
        self,
        *,
        max_runs: int = 1024,
        max_waiting: int = 65_536,
        max_nodes: int | None = None,
        on_failure: Literal["fail_fast", "wait_all"] = "fail_fast",
        clock: Clock | None = None,
    ) -> None:
        for name, value in (("max_runs", max_runs), ("max_nodes", max_nodes)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if max_waiting < 0:
            raise ValueError(f"max_waiting is {max_waiting}; it must be at least 0")
        if on_failure not in ("fail_fast", "wait_all"):
            raise ValueError(f"on_failure is {on_failure!r}; it must be 'fail_fast' or 'wait_all'")
        self.clock = clock or LoopClock()
        self.max_nodes = max_nodes
        self.fail_fast = on_failure == "fail_fast"
        self._max_runs, self._max_waiting = max_runs, max_waiting
        self._nodes: dict[str, Step] = {}
        self._edges: dict[tuple[str, str, str | None], None] = {}
        self._entries: list[str] = []
        self._plan: Plan | None = None
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    # -- building ------------------------------------------------------------------------------------------------------

    def add_node(
        self,
        name: str,
        node: Any,
        *,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
        cache: CachePolicy | None = None,
        executor: Executor = "auto",
    ) -> Self:
        """Add a node.

        Args:
            name: Its name.
            node: A function (called on a thread), a coroutine function, a resident actor's method
                (``functools.partial(model.call, Model.embed)``), an actor's ref, which is asked with the node's input,
                a server with ``submit``, or a graph, also one of langgraph.
            timeout: Seconds of one call.
            retry: When to call it again.
            cache: Whether to keep its results.
            executor: ``"loop"`` calls a plain function on the event loop: for functions that take microseconds.

        Raises:
            GraphError: There is a node of that name.
            TypeError: It cannot be called.
        """
        given: Any = name
        if not isinstance(given, str) or not given:
            raise TypeError(f"name is {name!r}; a node needs a name: add_node('embed', embed)")
        if name in self._nodes:
            raise GraphError(f"there is a node {name!r}; each node needs a name of its own")
        self._nodes[name] = Step(
            name, node, timeout=timeout, retry=retry, cache=cache, executor=executor, clock=self.clock
        )
        self._plan = None
        return self

    def add_edge(self, start: str, end: str, argument: str | None = None) -> Self:
        """Give the result of ``start`` to ``end``.

        Args:
            start, end: Names of nodes.
            argument: Name of the argument; None for the next one by position.

        Raises:
            GraphError: There is no such node, or there is that edge.
        """
        for name in (start, end):
            if name not in self._nodes:
                known = ", ".join(map(repr, self._nodes)) or "none"
                raise GraphError(f"add_edge({start!r}, {end!r}): there is no node {name!r}; the nodes are: {known}")
        if (start, end, argument) in self._edges:
            raise GraphError(f"there is an edge from {start!r} to {end!r} already")
        self._edges[start, end, argument] = None
        self._plan = None
        return self

    def set_entry(self, *names: str) -> Self:
        """Name the nodes that get the state of a run. Without this, those that no edge leads to.

        Raises:
            GraphError: There is no such node.
        """
        for name in names:
            if name not in self._nodes:
                raise GraphError(f"set_entry: there is no node {name!r}; add it first")
        self._entries = list(names)
        self._plan = None
        return self

    def compile(self) -> Self:
        """Check the graph. A run does this by itself.

        Raises:
            GraphError: It has no nodes, a cycle (the text has its path), or a node that no entry leads to.
        """
        if self._plan is None:
            self._plan = plan_of(self._nodes, list(self._edges), self._entries)
        return self

    def draw_mermaid(self) -> str:
        """The graph as a Mermaid flow chart."""
        return mermaid(list(self._nodes), [(start, end, None) for start, end, _ in self._edges])

    # -- runs ----------------------------------------------------------------------------------------------------------

    async def run(self, state: Any, *, timeout: float | None = None) -> Any:
        """Run the graph and return its result.

        Args:
            state: Argument of the entries.
            timeout: Seconds of the run, from its start.

        Raises:
            NodeFailed: A node failed; the error names it, and its cause is the node's error.
            TimeoutError: It took longer; its nodes were cancelled.
            GraphError: The graph is not valid.
            MailboxFull: ``max_waiting`` runs wait.
        """
        return await self.start(state, timeout=timeout)

    ainvoke = run

    def start(self, state: Any, *, timeout: float | None = None) -> GraphRun:
        """Begin a run; await what this returns for the result. Raises as :meth:`run`."""
        limit = checked_timeout("timeout", timeout)
        self.compile()
        assert self._plan is not None
        if self._running < self._max_runs and not self._waiting:
            self._running += 1
            return GraphRun(self._plan, self, state, limit, None)
        self._waiting = deque(gate for gate in self._waiting if not gate.done())
        if len(self._waiting) >= self._max_waiting:
            raise MailboxFull(f"{self._running} runs of this graph are under way, and {len(self._waiting)} wait")
        gate = asyncio.get_running_loop().create_future()
        self._waiting.append(gate)
        return GraphRun(self._plan, self, state, limit, gate)

    def ended(self) -> None:
        """A run that was under way has ended; for its own use."""
        while self._waiting:
            gate = self._waiting.popleft()
            if not gate.done():
                gate.set_result(None)
                return
        self._running -= 1

    def __repr__(self) -> str:
        return f"<NodeGraph of {len(self._nodes)} nodes, {len(self._edges)} edges>"
