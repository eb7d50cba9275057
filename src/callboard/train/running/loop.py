"""``fit``: the loop over a data set, with progress and checkpoints."""

import asyncio
import inspect
import operator
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from callboard.train.batches import Batch, data_set, rows_of
from callboard.train.running.history import History
from callboard.train.running.sampling import Cursor, batches
from callboard.train.stats import StepStats

__all__ = ["Steps", "figures", "fit", "steps_in"]


class Steps(Protocol):
    """A trainer, as far as the loop knows it."""

    cursor: Cursor
    stopping: bool

    @property
    def steps(self) -> int: ...

    async def step(self, batch: Batch) -> StepStats: ...
    async def save(self, folder: str | Path, *, keep: int | None = None) -> Path: ...


async def fit(
    trainer: Steps,
    data: Batch,
    *,
    batch_size: int,
    epochs: int | None,
    steps: int | None,
    seed: int,
    shuffle: bool,
    checkpoints: str | Path | None,
    every: int,
    keep: int | None,
    progress: bool | None,
    on_step: Callable[[StepStats], Any] | None,
) -> History:
    """See :meth:`.DataParallelTrainer.fit`."""
    arrays = data_set(data)
    total = steps_in(rows_of(arrays), batch_size, epochs, steps)
    if operator.index(every) < 1:
        raise ValueError(f"fit: checkpoint_every is {every}; it is at least 1")
    if keep is not None and keep < 1:
        raise ValueError(f"fit: keep is {keep}; it is a number of checkpoints, at least 1, or None")
    if checkpoints is not None:
        os.makedirs(checkpoints, exist_ok=True)  # fails now, and not after the steps of hours
    done: list[StepStats] = []
    rest = total - _seen(trainer.cursor, rows_of(arrays), batch_size)  # steps that were not fit's are no batches of it
    bar = _bar(progress, min(trainer.steps + rest, steps or sys.maxsize), trainer.steps)
    saving: asyncio.Task[Path] | None = None
    try:
        for after, batch in batches(arrays, batch_size, _passes(epochs, steps), trainer.cursor, seed, shuffle):
            if trainer.stopping or (steps is not None and trainer.steps >= steps):
                break
            stats = await trainer.step(batch)
            trainer.cursor = after
            done.append(stats)
            if on_step is not None:
                said = on_step(stats)
                if inspect.isawaitable(said):
                    await said
            if bar is not None:
                bar.set_postfix_str(figures(stats), refresh=False)
                bar.update()
            if checkpoints is not None and stats.step % every == 0:
                saving = await _one_more(saving, trainer, checkpoints, keep)
        if checkpoints is not None and done and done[-1].step % every:
            saving = await _one_more(saving, trainer, checkpoints, keep)
    finally:
        trainer.stopping = False
        if bar is not None:
            bar.close()
        if saving is not None:
            await saving
    return History(done)


def _passes(epochs: int | None, steps: int | None) -> int:
    """Passes over the data: one, where nothing else is said."""
    return epochs or (1 if steps is None else sys.maxsize)


def steps_in(rows: int, batch_size: int, epochs: int | None, steps: int | None) -> int:
    """The number of the last step of a run over this number of samples.

    Raises:
        ValueError: A number that is less than 1, or no sample.
    """
    if not rows:
        raise ValueError("fit: the data has no samples")
    for name, value in (("batch_size", batch_size), ("epochs", epochs), ("steps", steps)):
        if value is not None and operator.index(value) < 1:
            raise ValueError(f"fit: {name} is {value}; it is at least 1")
    of_passes = -(-rows // batch_size) * _passes(epochs, steps)
    return min(of_passes, steps or sys.maxsize)


def _seen(cursor: Cursor, rows: int, batch_size: int) -> int:
    """Batches of the data set that were seen."""
    return cursor.epoch * -(-rows // batch_size) + cursor.batch


async def _one_more(
    saving: "asyncio.Task[Path] | None", trainer: Steps, folder: str | Path, keep: int | None
) -> "asyncio.Task[Path]":
    """Begin the next checkpoint once the one before is complete; its files are written beside the next steps."""
    if saving is not None:
        await saving
    task = asyncio.ensure_future(trainer.save(folder, keep=keep))
    await asyncio.sleep(0)  # it is in line for the weights, in front of the next step
    return task


def _bar(progress: bool | None, total: int, done: int) -> Any:
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        return None
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return None
    return tqdm(total=total, initial=done, unit="step")


def figures(stats: StepStats) -> str:
    """The figures of a step that a line of progress shows."""
    shown = [f"loss {stats.loss:.4g}", f"{stats.samples_per_second:,.0f} samples/s"]
    if stats.tokens_per_second is not None:
        shown.append(f"{stats.tokens_per_second:,.0f} tokens/s")
    if stats.mfu is not None:
        shown.append(f"MFU {stats.mfu:.0%}")
    if stats.straggler is not None:
        shown.append(f"{stats.straggler.device} is {stats.straggler.times:.1f} times slower")
    return ", ".join(shown)
