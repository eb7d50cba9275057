"""The checked form of a state graph: nodes, edges, conditions, joins."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from callboard.actors.loops.end import END
from callboard.agents.graph.errors import GraphError
from callboard.agents.graph.nodes import Step
from callboard.agents.graph.stateful.schema import Channel, Schema
from callboard.agents.graph.stateful.types import Send

__all__ = ["Branch", "JoinRule", "Node", "Spec"]

JoinRule = Literal["all_scheduled", "all"]


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        step: Calls it.
        schema: The keys that it reads.
        extras: Which of ``config``, ``writer`` and ``runtime`` it takes.
        defer: It runs when nothing else is left to run.
        ends: Where its commands may lead, for the picture.
        is_graph: It is a graph: it gets the keys that it knows, and keys that this graph does not know are left out.
    """

    step: Step
    schema: Schema
    extras: tuple[str, ...]
    defer: bool
    ends: tuple[str, ...]
    is_graph: bool


@dataclass(frozen=True, slots=True)
class Branch:
    """A condition: where to go on, by a function of the state.

    Attributes:
        start: Name of the node.
        path: The function.
        ends: Names of nodes by what it returns; None: it returns names.
        schema: The keys that it reads.
        takes_config: It takes a second argument.
    """

    start: str
    path: Callable[..., Any]
    ends: Mapping[Any, str] | None
    schema: Schema
    takes_config: bool

    async def targets(self, state: Any, config: Any) -> list[str | Send]:
        """Where to go on.

        Raises:
            GraphError: It returned something else.
        """
        found = self.path(state, config) if self.takes_config else self.path(state)
        if inspect.isawaitable(found):
            found = await found
        several = found if isinstance(found, list | tuple) else [found]
        targets: list[str | Send] = []
        for each in several:
            if isinstance(each, Send) or self.ends is None:
                targets.append(each)
            elif each in self.ends:
                targets.append(self.ends[each])
            else:
                known = ", ".join(map(repr, self.ends))
                raise GraphError(f"the condition after {self.start!r} returned {each!r}; its path map has {known}")
        return targets


@dataclass(frozen=True, slots=True)
class Spec:
    """A state graph, checked."""

    nodes: Mapping[str, Node]
    channels: Mapping[str, Channel]
    inputs: Schema
    outputs: Schema
    edges: Mapping[str, Sequence[str]]
    branches: Mapping[str, Sequence[Branch]]
    joins: Sequence[tuple[tuple[str, ...], str]]
    join_rule: JoinRule
    joins_of: Mapping[str, Sequence[int]]

    def check_target(self, start: str, target: Any) -> str | Send:
        """A target of a condition or a command.

        Raises:
            GraphError: There is no such node.
        """
        name = target.node if isinstance(target, Send) else target
        if (name in self.nodes) or (name == END and not isinstance(target, Send)):
            return target  # type: ignore[no-any-return]
        known = ", ".join(map(repr, self.nodes))
        raise GraphError(f"{start!r} leads to {name!r}, and there is no such node; the nodes are: {known}")
