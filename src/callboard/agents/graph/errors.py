"""Errors of graphs."""

from typing import Any

from callboard.actors.errors import AccelError, ReplyError

__all__ = [
    "EmptyInput",
    "GraphError",
    "GraphInterrupt",
    "GraphRecursionError",
    "InvalidUpdate",
    "NodeFailed",
    "NodeTimeout",
]


class GraphError(AccelError):
    """A graph is not valid, or was used in a way that it does not support."""


class NodeFailed(ReplyError):
    """A node of a run failed; ``__cause__`` is its error.

    Attributes:
        node: Name of the node.
        results: Results of the nodes that had finished.
    """

    def __init__(self, message: str = "", node: str = "", results: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.results = results or {}


class NodeTimeout(AccelError, TimeoutError):
    """A node did not return within its time-out. A plain function continues on its thread; its result is dropped."""

    retryable = True


class GraphRecursionError(GraphError, RecursionError):
    """A run had work left after as many steps as its ``recursion_limit`` allows."""


class InvalidUpdate(GraphError, ValueError):
    """A node returned something that is no update of the state."""


class EmptyInput(GraphError, ValueError):
    """A run was to resume, and there is nothing to resume."""


class GraphInterrupt(BaseException):
    """Raised by ``interrupt()`` in a node: the run waits for an answer. ``except Exception`` does not catch it.

    Attributes:
        interrupts: What it waits for.
    """

    def __init__(self, interrupts: tuple[Any, ...] = ()) -> None:
        super().__init__(interrupts)
        self.interrupts = interrupts
