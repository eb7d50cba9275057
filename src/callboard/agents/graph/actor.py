"""``LangGraphGpuActor``: an actor that runs a graph."""

import asyncio
from typing import Any

from callboard.actors.actor import Actor
from callboard.actors.errors import ReplyError
from callboard.actors.messages import Request
from callboard.agents.graph.dag import NodeGraph
from callboard.agents.graph.errors import NodeFailed

__all__ = ["LangGraphGpuActor"]


class LangGraphGpuActor(Actor):
    """Runs a graph for those that ask it; runs of several askers go on at once, and share batches.

    ::

        runner = system.actor_of(cb.Props(cb.LangGraphGpuActor, graph), name="graph")
        answer = await runner.ask(cb.LangGraphGpuActor.Run(state="to be or not to be"))

    Runs end with the actor. A failed run goes to its asker alone. What a lost device costs: the nodes that used it
    fail; with ``retry=cb.RetryPolicy()`` they run again.

    Args:
        graph: A :class:`NodeGraph`, or a compiled :class:`StateGraph`, or one of langgraph: an object with ``ainvoke``.
    """

    class Run(Request["LangGraphGpuActor", Any]):
        """Run the graph; the reply is its result.

        Attributes:
            state: The state that it begins with.
            config: Configuration of the run of a state graph, such as ``{"configurable": {"thread_id": "1"}}``.
        """

        state: Any
        config: dict[str, Any] | None = None

    def __init__(self, graph: Any) -> None:
        if not callable(getattr(graph, "ainvoke", None)):
            raise TypeError(f"graph is {graph!r:.200}; pass a NodeGraph or a compiled StateGraph")
        self._graph: Any = graph.compile() if isinstance(graph, NodeGraph) else graph
        self._runs: set[asyncio.Task[Any]] = set()

    @Run.handles
    def run(self, m: "LangGraphGpuActor.Run") -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(self._answer(m))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        return task

    async def _answer(self, m: "LangGraphGpuActor.Run") -> Any:
        try:
            arguments: tuple[Any, ...] = (m.state,) if m.config is None else (m.state, m.config)
            return await self._graph.ainvoke(*arguments)
        except ReplyError:
            raise
        except Exception as e:  # an answer: the actor is not to be restarted for it
            raise NodeFailed(f"the run failed: {type(e).__name__}: {e}") from e

    def post_stop(self) -> None:
        for task in self._runs:
            task.cancel()
