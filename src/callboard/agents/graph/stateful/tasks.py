"""One task of a step: call the node, read its update, evaluate its conditions."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from callboard.agents.graph.errors import GraphInterrupt, InvalidUpdate
from callboard.agents.graph.stateful.context import CURRENT, TaskContext
from callboard.agents.graph.stateful.frames import Outcome, Task
from callboard.agents.graph.stateful.schema import apply_writes, fields_of
from callboard.agents.graph.stateful.spec import Spec
from callboard.agents.graph.stateful.types import Command, Runtime

__all__ = ["ParentCommand", "follow", "read_update", "run_task"]


NO_EXTRAS: dict[str, Any] = {}


class ParentCommand(BaseException):
    """A command for the graph of which this one is a node."""

    def __init__(self, command: "Command[Any]") -> None:
        super().__init__(command)
        self.command = command


async def run_task(
    spec: Spec, task: Task, values: Mapping[str, Any], context: TaskContext, *, inline: bool
) -> tuple[Outcome, Any]:
    """Call a node. Returns what it has done, and its update as the stream shows it.

    Args:
        spec: The graph.
        task: The task.
        values: The state.
        context: What its code can reach.
        inline: Call a plain function here: nothing else is to run on this loop meanwhile.
    """
    node = spec.nodes[task.name]
    state = node.schema.read(values) if task.number < 0 else task.arg
    extras = {extra: _extra(extra, context) for extra in node.extras} if node.extras else NO_EXTRAS
    token = CURRENT.set(context)
    try:
        if inline and node.step.plain is not None:
            result = node.step.plain(state, **extras)
            if inspect.isawaitable(result):
                result = await result
        else:
            result = await node.step.call(state, **extras)
    except GraphInterrupt as e:
        return Outcome(interrupts=e.interrupts, resumed=context.resumed), None
    except ParentCommand as e:
        result = dataclasses.replace(e.command, graph=None)
    finally:
        CURRENT.reset(token)
    outcome, shown = read_update(spec, task.name, result, lenient=node.is_graph)
    outcome.resumed = context.resumed
    if task.name in spec.branches:
        await follow(spec, task.name, result, values, outcome, context.config)
    return outcome, shown


def _extra(name: str, context: TaskContext) -> Any:
    if name == "config":
        return context.config
    return context.write if name == "writer" else Runtime(context.context, context.write)


def read_update(spec: Spec, name: str, result: Any, *, lenient: bool = False) -> tuple[Outcome, Any]:
    """What a node has returned.

    Raises:
        InvalidUpdate: It is no update.
        ParentCommand: It is a command for the parent.
    """
    outcome = Outcome()
    if type(result) is dict and result.keys() <= spec.channels.keys():
        outcome.writes = list(result.items())
        return outcome, result or None
    if result is None:
        return outcome, None
    several = isinstance(result, list | tuple) and any(isinstance(each, Command) for each in result)
    shown: list[dict[str, Any]] = []
    for each in result if several else (result,):
        update = each
        if isinstance(each, Command):
            if each.graph == Command.PARENT:
                raise ParentCommand(each)
            goto = each.goto if isinstance(each.goto, list | tuple) else (each.goto,)
            outcome.targets += [spec.check_target(name, target) for target in goto]
            update = each.update
        pairs = _pairs(spec, name, update, lenient)
        if pairs:
            outcome.writes += pairs
            shown.append(dict(pairs))
    return outcome, (shown[0] if len(shown) == 1 else shown) if shown else None


def _pairs(spec: Spec, name: str, update: Any, lenient: bool) -> list[tuple[str, Any]]:
    if update is None:
        return []
    if isinstance(update, list | tuple) and all(isinstance(each, tuple) and len(each) == 2 for each in update):
        pairs = list(update)
    else:
        fields = update if isinstance(update, dict) else fields_of(update)
        if fields is None:
            raise InvalidUpdate(
                f"node {name!r} returned {update!r:.200}; expected a dict of keys of the state, a Command, or None"
            )
        pairs = list(fields.items())
    known = spec.channels
    unknown = [key for key, _ in pairs if key not in known]
    if unknown:
        if not lenient:
            keys = ", ".join(map(repr, known))
            raise InvalidUpdate(f"node {name!r} returned the key {unknown[0]!r}, and the state has {keys}")
        pairs = [pair for pair in pairs if pair[0] in known]
    return pairs


async def follow(
    spec: Spec, name: str, result: Any, values: Mapping[str, Any], outcome: Outcome, config: dict[str, Any]
) -> None:
    """Add where the conditions after a node lead, which see its own update and no others."""
    after = dict(values)
    apply_writes(spec.channels, after, [(name, key, value) for key, value in outcome.writes])
    for branch in spec.branches[name]:
        state = branch.schema.read(after)
        if isinstance(state, dict) and isinstance(result, dict):
            state = {**result, **state}
        targets = await branch.targets(state, config)
        outcome.targets += [spec.check_target(name, target) for target in targets]
