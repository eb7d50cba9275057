"""``fit``: the loop over a data set, with progress and checkpoints."""

import asyncio
import inspect
import operator
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from callboard.train.batches import Batch, as_arrays, rows_of
from callboard.train.history import History
from callboard.train.sampling import Cursor, batches
from callboard.train.stats import StepStats

__all__ = ["Steps", "fit"]


class Steps(Protocol):
    """A trainer, as far as the loop knows it."""

    cursor: Cursor

    async def step(self, batch: Batch) -> StepStats: ...
    async def save(self, folder: str | Path, *, keep: int | None = None) -> Path: ...


async def fit(
    trainer: Steps,
    data: Batch,
    *,
    batch_size: int,
    epochs: int,
    seed: int,
    shuffle: bool,
    checkpoints: str | Path | None,
    every: int,
    keep: int | None,
    progress: bool | None,
    on_step: Callable[[StepStats], Any] | None,
) -> History:
    """See :meth:`.DataParallelTrainer.fit`."""
    for name, value in (("batch_size", batch_size), ("epochs", epochs), ("every", every)):
        if operator.index(value) < 1:
            raise ValueError(f"fit: {name} is {value}; it is at least 1")
    if keep is not None and keep < 1:
        raise ValueError(f"fit: keep is {keep}; it is a number of checkpoints, at least 1, or None")
    if checkpoints is not None:
        os.makedirs(checkpoints, exist_ok=True)  # fails now, and not after the steps of hours
    arrays = as_arrays(data)
    steps: list[StepStats] = []
    total = -(-rows_of(arrays) // batch_size) * epochs
    bar = _bar(progress, total)
    saving: asyncio.Task[Path] | None = None
    try:
        for after, batch in batches(arrays, batch_size, epochs, trainer.cursor, seed, shuffle):
            stats = await trainer.step(batch)
            trainer.cursor = after
            steps.append(stats)
            if on_step is not None:
                said = on_step(stats)
                if inspect.isawaitable(said):
                    await said
            if bar is not None:
                bar.set_postfix(loss=f"{stats.loss:.4g}", refresh=False)
                bar.update()
            if checkpoints is not None and len(steps) % every == 0:
                saving = await _one_more(saving, trainer, checkpoints, keep)
        if checkpoints is not None and steps:
            saving = await _one_more(saving, trainer, checkpoints, keep)
    finally:
        if bar is not None:
            bar.close()
        if saving is not None:
            await saving
    return History(steps)


async def _one_more(
    saving: "asyncio.Task[Path] | None", trainer: Steps, folder: str | Path, keep: int | None
) -> "asyncio.Task[Path]":
    """Begin the next checkpoint once the one before is complete; its files are written beside the next steps."""
    if saving is not None:
        await saving
    task = asyncio.ensure_future(trainer.save(folder, keep=keep))
    await asyncio.sleep(0)  # it is in line for the weights, in front of the next step
    return task


def _bar(progress: bool | None, total: int) -> Any:
    if progress is None:
        progress = sys.stderr.isatty()
    if not progress:
        return None
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return None
    return tqdm(total=total, unit="step")
