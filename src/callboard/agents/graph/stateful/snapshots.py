"""States of a thread, as callers see them."""

import datetime as dt
from typing import Any

from callboard.agents.graph.checkpoints.store import Saved
from callboard.agents.graph.stateful.frames import load_frame, outcomes_of
from callboard.agents.graph.stateful.spec import Spec
from callboard.agents.graph.stateful.steps import with_finished
from callboard.agents.graph.stateful.types import StateSnapshot, TaskSnapshot

__all__ = ["config_of", "snapshot_of"]


def config_of(thread: str, ns: str, id_: str) -> dict[str, Any]:
    """The configuration that names a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id_}}


def snapshot_of(saved: Saved, device: Any, spec: Spec, *, latest: bool) -> StateSnapshot:
    """The state at a checkpoint. Of the latest one, the nodes that have finished are not among the next."""
    frame, at = load_frame(saved, device)
    done = outcomes_of(saved, device)
    tasks = []
    for task in frame.tasks:
        outcome = done.get(task.id)
        if outcome is None:
            tasks.append(TaskSnapshot(task.id, task.name))
        else:
            result = None if outcome.interrupts or outcome.error is not None else dict(outcome.writes)
            tasks.append(TaskSnapshot(task.id, task.name, outcome.interrupts, outcome.error, result))
    finished = [(task, done[task.id]) for task in frame.tasks if task.id in done]
    values = with_finished(spec, frame, finished) if latest else frame.values
    ended = {each.id for each in tasks if latest and each.result is not None}
    return StateSnapshot(
        {key: values[key] for key in spec.channels if key in values},
        tuple(task.name for task in frame.tasks if task.id not in ended),
        config_of(saved.thread, saved.ns, saved.id),
        {"source": frame.source, "step": frame.step},
        dt.datetime.fromtimestamp(at, dt.UTC).isoformat(),
        None if saved.parent is None else config_of(saved.thread, saved.ns, saved.parent),
        tuple(tasks),
        tuple(each for task in tasks for each in task.interrupts),
    )
