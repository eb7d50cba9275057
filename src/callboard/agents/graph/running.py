"""``GraphRun``: one run of a DAG."""

import asyncio
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.actors.errors import HandlerCancelled
from callboard.agents.graph.errors import GraphError, GraphInterrupt, NodeFailed
from callboard.agents.graph.plan import Plan
from callboard.agents.graph.waiting import within
from callboard.core.ref.handle import GpuRef

if TYPE_CHECKING:
    from callboard.agents.graph.dag import NodeGraph

__all__ = ["GraphRun", "NodeTime"]


class NodeTime(NamedTuple):
    """When a node ran, in seconds of the graph's clock."""

    node: str
    started: float
    ended: float


class GraphRun:
    """A run. Await it for the result; a caller that is cancelled while it waits cancels the run.

    A task goes from node to node: it continues with one of the nodes that its node has made ready, and starts a task
    for each of the others.
    """

    def __init__(
        self, plan: Plan, graph: "NodeGraph", state: Any, timeout: float | None, gate: "asyncio.Future[None] | None"
    ) -> None:
        self._plan, self._graph, self._state = plan, graph, state
        self._values: list[Any] = [None] * len(plan.steps)
        self._left = list(plan.waits)
        self._uses = [len(after) for after in plan.successors]
        self._ready = deque(plan.entries)
        self._workers: set[asyncio.Task[None]] = set()
        self._failures: list[tuple[int, Exception]] = []
        self._all_done: asyncio.Future[None] | None = None
        self.trace: list[NodeTime] = []
        """Of each node that has ended, when it ran."""
        self._task = asyncio.get_running_loop().create_task(self._run(timeout, gate))

    def __await__(self) -> Generator[Any, None, Any]:
        return self._task.__await__()

    def cancel(self) -> None:
        """Cancel the nodes that run, and start no others."""
        self._task.cancel()

    async def _run(self, timeout: float | None, gate: "asyncio.Future[None] | None") -> Any:
        if gate is not None:
            try:
                await gate
            except asyncio.CancelledError:
                if gate.done() and not gate.cancelled():
                    self._graph.ended()
                raise
        try:
            return await within(self._graph.clock, timeout, self._all())
        except TimeoutError:
            running = [self._plan.steps[n].name for n, left in enumerate(self._left) if left == -1]
            raise TimeoutError(f"the run took longer than {timeout:g} s; running: {', '.join(running)}") from None
        finally:
            self._graph.ended()

    async def _all(self) -> Any:
        await self._nodes()
        return await self._result()

    async def _nodes(self) -> None:
        self._all_done = asyncio.get_running_loop().create_future()
        try:
            self._start_others()
            await self._all_done
        finally:
            if self._workers:
                for worker in self._workers:
                    worker.cancel()
                await asyncio.wait(self._workers)
        if self._failures:
            self._fail(*self._failures[0])

    def _start_others(self) -> None:
        limit, workers = self._graph.max_nodes, self._workers
        create = asyncio.get_running_loop().create_task
        while self._ready and (limit is None or len(workers) < limit) and not self._stopped:
            worker = create(self._work(self._ready.popleft()))
            workers.add(worker)
            worker.add_done_callback(self._worker_ended)

    @property
    def _stopped(self) -> bool:
        return bool(self._failures) and self._graph.fail_fast

    def _worker_ended(self, worker: "asyncio.Task[None]") -> None:
        self._workers.discard(worker)
        if self._stopped:
            for other in self._workers:
                other.cancel()
        if not self._workers and self._all_done is not None and not self._all_done.done():
            self._all_done.set_result(None)

    async def _work(self, node: int | None) -> None:
        plan, values, left, ready, time = self._plan, self._values, self._left, self._ready, self._graph.clock.time
        while node is not None:
            step = plan.steps[node]
            inputs = plan.inputs[node]
            left[node] = -1
            started = time()
            try:
                if not plan.waits[node]:
                    value = await step.call(self._state)
                elif plan.keywords[node]:
                    named = {name: values[giver] for name, giver in plan.keywords[node]}
                    value = await step.call(*[values[n] for n in inputs], **named)
                else:
                    value = await step.call(*[values[n] for n in inputs])
            except BaseException as e:  # raised again unless it is the node's
                self._failures.append((node, self._answer(step.name, e)))
                node = ready.popleft() if ready and not self._graph.fail_fast else None
                continue
            left[node] = -2
            self.trace.append(NodeTime(step.name, started, time()))
            values[node] = value
            self._release(node)
            following = None
            for after in plan.successors[node]:
                left[after] -= 1
                if not left[after]:
                    if following is None:
                        following = after
                    else:
                        ready.append(after)
            if ready:
                if following is None:
                    following = ready.popleft()
                if ready:
                    self._start_others()
            if self._stopped:
                return
            node = following

    @staticmethod
    def _answer(name: str, error: BaseException) -> Exception:
        """The error of a node; raises it again if it is not the node's: of a cancelled run, or of the loop."""
        match error:
            case Exception():
                return error
            case asyncio.CancelledError():
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise error
                return HandlerCancelled(f"node {name!r} was cancelled from within")
            case GraphInterrupt():
                return GraphError(f"node {name!r} called interrupt(), which a DAG does not support; use cb.StateGraph")
        raise error

    def _release(self, node: int) -> None:
        """Forget the results that no other node needs: arrays of a device are large."""
        if not self._graph.fail_fast:
            return
        for giver in (*self._plan.inputs[node], *(giver for _, giver in self._plan.keywords[node])):
            self._uses[giver] -= 1
            if not self._uses[giver]:
                self._values[giver] = None

    async def _result(self) -> Any:
        sinks = self._plan.sinks
        for node in sinks:
            if isinstance(self._values[node], GpuRef):
                try:
                    await self._values[node]
                except Exception as e:  # of an op of the node: it is the node's
                    self._fail(node, e)
        if len(sinks) == 1:
            return self._values[sinks[0]]
        return {self._plan.steps[node].name: self._values[node] for node in sinks}

    def _fail(self, node: int, error: Exception) -> None:
        name = self._plan.steps[node].name
        steps, left = self._plan.steps, self._left
        results = {
            steps[n].name: value
            for n, value in enumerate(self._values)
            if left[n] == -2 and (not self._graph.fail_fast or not self._uses_up(n))
        }
        others = [steps[n].name for n, _ in self._failures if n != node]
        also = f"; {', '.join(map(repr, others))} failed, too" if others else ""
        raise NodeFailed(f"node {name!r} failed: {type(error).__name__}: {error}{also}", name, results) from error

    def _uses_up(self, node: int) -> bool:
        """True if its result was released."""
        return not self._uses[node] and bool(self._plan.successors[node])
