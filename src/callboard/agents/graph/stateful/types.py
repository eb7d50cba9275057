"""What nodes of a state graph return and raise, and what a caller gets and sends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np

__all__ = ["START", "Command", "Interrupt", "OnDevice", "Overwrite", "Runtime", "Send", "StateSnapshot", "TaskSnapshot"]

START = "__start__"
"""Edges from it lead to the first nodes of a run."""


@dataclass(frozen=True, slots=True)
class Send:
    """Runs a node in the next step with an input of its own, beside others of the same node: map-reduce.

    Attributes:
        node: Name of the node.
        arg: Its input, in place of the state.
    """

    node: str
    arg: Any


@dataclass(frozen=True, slots=True)
class Overwrite:
    """As a value of an update: replaces the value of a key that has a reducer."""

    value: Any


N = TypeVar("N")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[N]):
    """Returned by a node: an update, and where to go on. Passed to ``invoke``: the answer to an interrupt.

    A node that is annotated ``-> cb.Command[Literal["a", "b"]]`` is drawn with edges to those nodes.

    Attributes:
        graph: None for this graph, :attr:`PARENT` for the one of which it is a node.
        update: Update of the state.
        resume: The answer to the interrupt that waits; if several do, a dict of their ids and answers.
        goto: Name of a node or a :class:`Send`, or several; beside the edges of the node.
    """

    PARENT: ClassVar[Literal["__parent__"]] = "__parent__"

    graph: str | None = None
    update: Any = None
    resume: Any = None
    goto: "str | Send | Sequence[str | Send]" = ()


@dataclass(frozen=True, slots=True)
class Interrupt:
    """What a run waits for.

    Attributes:
        value: The value that the node passed to ``interrupt``.
        id: For the answers, if several interrupts wait.
    """

    value: Any
    id: str


class TaskSnapshot(NamedTuple):
    """A node that is to run: its name, the interrupts for which it waits, its error, and its result if it has one."""

    id: str
    name: str
    interrupts: tuple[Interrupt, ...] = ()
    error: str | None = None
    result: Any = None


class StateSnapshot(NamedTuple):
    """The state of a thread at a checkpoint.

    Attributes:
        values: The state.
        next: Names of the nodes that run next; empty if the run has ended.
        config: Its place, for ``invoke``, ``update_state`` and ``get_state``.
        metadata: ``source`` (``"input"``, ``"loop"``, ``"update"`` or ``"fork"``) and ``step``.
        created_at: Time, in ISO 8601.
        parent_config: The checkpoint before it.
        tasks: The nodes that run next.
        interrupts: Those for which they wait.
    """

    values: Any
    next: tuple[str, ...]
    config: dict[str, Any]
    metadata: dict[str, Any] | None
    created_at: str | None
    parent_config: dict[str, Any] | None
    tasks: tuple[TaskSnapshot, ...]
    interrupts: tuple[Interrupt, ...]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Passed to a node that has a parameter ``runtime``.

    Attributes:
        context: The ``context`` of the run.
        stream_writer: Writes to the stream of mode ``"custom"``.
    """

    context: Any
    stream_writer: Any


@dataclass(frozen=True, slots=True)
class OnDevice:
    """In a checkpoint: the contents of an array that is on a device."""

    array: "np.ndarray[Any, Any]" = field(repr=False)
