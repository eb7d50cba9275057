"""What the code of a node can reach of its run: ``interrupt``, the stream writer, the configuration."""

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from callboard.agents.graph.errors import GraphError, GraphInterrupt
from callboard.agents.graph.stateful.types import Interrupt

__all__ = ["CURRENT", "Answers", "TaskContext", "get_config", "get_stream_writer", "interrupt"]


class Answers:
    """Answers to interrupts, of one ``Command``: one that is taken once, or several by id."""

    def __init__(self, answer: Any = None, by_id: dict[str, Any] | None = None) -> None:
        self._one = [] if answer is None else [answer]
        self._by_id = dict(by_id or {})

    def take(self, id_: str) -> list[Any]:
        """The answer in a list; empty if there is none."""
        if id_ in self._by_id:
            return [self._by_id.pop(id_)]
        return [self._one.pop()] if self._one else []


class TaskContext:
    """A task while its node runs.

    Attributes:
        task, frame: Ids of the task and of its checkpoint.
        config: Configuration of the run.
        resumed: Answers that the node has got so far, in the order of its calls of ``interrupt``.
        write: Writes to the stream of mode ``"custom"``.
        store: The run's checkpoints, None without.
        thread, outer: Its thread, and the namespace of its graph.
    """

    __slots__ = (
        "answers",
        "asked",
        "config",
        "context",
        "frame",
        "outer",
        "resumed",
        "store",
        "task",
        "thread",
        "write",
    )

    def __init__(
        self,
        task: str,
        frame: str,
        config: dict[str, Any],
        resumed: list[Any],
        answers: Answers,
        write: Callable[[Any], None],
        store: Any,
        thread: str,
        outer: str,
        context: Any,
    ) -> None:
        self.task, self.frame, self.config, self.resumed, self.answers = task, frame, config, resumed, answers
        self.write, self.store, self.thread, self.outer, self.context = write, store, thread, outer, context
        self.asked = 0

    @property
    def ns(self) -> str:
        """The namespace of graphs within this task."""
        return f"{self.outer}{'|' if self.outer else ''}{self.task}:{self.frame}"


CURRENT: ContextVar[TaskContext] = ContextVar("callboard_graph_task")


def interrupt(value: Any) -> Any:
    """Stop the run until a caller answers; returns the answer.

    The first time, the run ends with this value among its interrupts. ``graph.invoke(cb.Command(resume=answer),
    config)`` runs the node again, from its start, and this call returns the answer: what the node does before it is
    done twice. Several calls in a node get their answers in their order.

    Args:
        value: What the caller is to see; plain data.

    Raises:
        GraphInterrupt: The first time. ``except Exception`` does not catch it.
        GraphError: Not in a node of a state graph, or the graph has no checkpointer.
    """
    task = _current("interrupt()")
    if task.store is None:
        raise GraphError("interrupt() needs a checkpointer: graph.compile(checkpointer=cb.Checkpoints())")
    n = task.asked
    task.asked += 1
    if n < len(task.resumed):
        return task.resumed[n]
    id_ = hashlib.blake2b(f"{task.thread}|{task.ns}|{n}".encode(), digest_size=16).hexdigest()
    answer = task.answers.take(id_)
    if answer:
        task.resumed.extend(answer)
        return answer[0]
    raise GraphInterrupt((Interrupt(value, id_),))


def get_stream_writer() -> Callable[[Any], None]:
    """A function that writes to the stream of mode ``"custom"``, for use in a node.

    Raises:
        GraphError: Not in a node of a state graph.
    """
    return _current("get_stream_writer()").write


def get_config() -> dict[str, Any]:
    """The configuration of the run, for use in a node.

    Raises:
        GraphError: Not in a node of a state graph.
    """
    return _current("get_config()").config


def _current(what: str) -> TaskContext:
    task = CURRENT.get(None)
    if task is None:
        raise GraphError(f"{what} was called outside of a node of a state graph")
    return task
