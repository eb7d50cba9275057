"""Branches and loops, whose conditions and counts are known on the host; loops pause after each turn."""

import math
from typing import Any

import numpy as np

from callboard.kernel.engine.inputs.budget import Walk
from callboard.kernel.engine.mapped.steps import execute
from callboard.kernel.engine.mapped.tools import Tools, Value, operator
from callboard.kernel.engine.onnxfile import Graph

__all__: list[str] = []

MOST_TURNS = 1 << 16
"""Turns of a loop; one with more is refused."""
MOST_TURNS_OF_ALL = 1 << 20
"""Turns of all loops of an execution, those inside of loops included."""


@operator("If", since=11)
def branch(t: Tools, condition: Value, *, else_branch: Graph, then_branch: Graph) -> Walk[Any]:
    chosen = then_branch if bool(t.host(condition, "the condition of an If").all()) else else_branch
    return tuple((yield from execute(t, chosen, ())))


@operator("Loop", since=11)
def loop(t: Tools, count: Value = None, condition: Value = None, *states: Value, body: Graph) -> Walk[Any]:
    most = math.inf if count is None else t.ints(count, "the count of a Loop")[0]
    going = True if condition is None else bool(t.host(condition, "the condition of a Loop").all())
    if going and MOST_TURNS < most < math.inf and _counts(body):
        raise t.misfit(f"a Loop of more than {MOST_TURNS} turns")
    title, scope = t.title, t.scope
    now, scanned, at = list(states), [], 0
    while going and at < most:
        t.title, t.scope = title, scope
        if at >= MOST_TURNS:
            raise t.misfit(f"a Loop of more than {MOST_TURNS} turns")
        _count(t)
        yield
        found = yield from execute(t, body, (np.array(at, np.int64), np.array(True), *now))
        going = bool(t.host(found[0], "the condition of a Loop").all())
        now, at = found[1 : 1 + len(now)], at + 1
        scanned.append(found[1 + len(now) :])
    t.title = title
    if not scanned and len(body.outputs) > 1 + len(now):
        raise t.misfit("a Loop without turns has no rows for its outputs")
    return (*now, *(_stacked(t, rows, 0) for rows in zip(*scanned, strict=True)))


@operator("Scan", since=9)
def scan(
    t: Tools,
    *values: Value,
    body: Graph,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> Walk[Any]:
    title, scope = t.title, t.scope
    count = len(values) - num_scan_inputs
    now, lines = list(values[:count]), values[count:]
    axes = [t.axis(axis, line.ndim) for axis, line in zip(scan_input_axes or [0] * num_scan_inputs, lines, strict=True)]
    backwards = scan_input_directions or [0] * num_scan_inputs
    turns = lines[0].shape[axes[0]]
    if not 0 < turns <= MOST_TURNS:
        raise t.misfit(f"a Scan of {turns} turns is not mapped")
    scanned = []
    for at in range(turns):
        t.title, t.scope = title, scope
        _count(t)
        row = []
        for line, axis, back in zip(lines, axes, backwards, strict=True):
            row.append(line[(slice(None),) * axis + (turns - 1 - at if back else at,)])
        yield
        found = yield from execute(t, body, (*now, *row))
        now = found[:count]
        scanned.append(found[count:])
    outs = []
    outputs = len(scanned[0])
    places, reverse = scan_output_axes or [0] * outputs, scan_output_directions or [0] * outputs
    for rows, place, back in zip(zip(*scanned, strict=True), places, reverse, strict=True):
        outs.append(_stacked(t, rows[::-1] if back else rows, place))
    return (*now, *outs)


def _counts(body: Graph) -> bool:
    """Whether the condition stays as it is given, so that all turns are executed."""
    same = {body.inputs[1].name}
    for node in body.nodes:
        if node.op == "Identity" and node.inputs[0] in same:
            same.add(node.outputs[0])
    return body.outputs[0].name in same


def _count(t: Tools) -> None:
    t.turns += 1
    if t.turns > MOST_TURNS_OF_ALL:
        raise t.misfit(f"loops in loops of more than {MOST_TURNS_OF_ALL} turns")


def _stacked(t: Tools, rows: tuple[Value, ...], axis: int) -> Value:
    t.sized((len(rows), *rows[0].shape), *rows)
    xp, given = t.both(*rows)
    return xp.stack(given, axis=axis)
