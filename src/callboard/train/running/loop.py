"""``fit``: the loop over the data, with validation, progress and checkpoints."""

import asyncio
import contextlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.train.job import Job
from callboard.train.running.feed import Feed
from callboard.train.running.history import History
from callboard.train.running.loggers import Loggers
from callboard.train.running.sampling import Cursor, Read, passes
from callboard.train.running.settings import Settings
from callboard.train.running.sources import Source, source_of
from callboard.train.running.validation import Validation
from callboard.train.stats import StepStats

if TYPE_CHECKING:
    from callboard.train.trainer import Trainer

__all__ = ["figures", "fit"]

ITERATOR = b"iterator"
"""The order of a cursor after batches of an iterator, of which none can be read again."""


async def fit(
    trainer: "Trainer",
    data: Any,
    settings: Settings,
    job: Job,
    progress: bool | None,
    on_step: Callable[[StepStats], Any] | None,
) -> History:
    """See :meth:`.DataParallelTrainer.fit`."""
    if trainer.feed is not None:
        raise RuntimeError("fit: another fit of this trainer goes on; wait for it, or end it by trainer.stop()")
    source = source_of(data, settings.batch_size, settings.shuffle, job.seed)
    start, most = _start(trainer, source), settings.steps or sys.maxsize
    total = settings.last_step(source)
    if total is not None and source.count is not None:  # steps that were not fit's are no batches of it
        total = min(trainer.steps + total - start.epoch * source.count - start.batch, most)
    validation, loggers = Validation(trainer, settings, job.schedule), Loggers(settings.loggers)
    saving = _Saving(trainer, settings)
    done: list[StepStats] = []
    bar = _bar(progress, total, trainer.steps)
    reads = passes(source, start, settings.passes(source), max(0, most - trainer.steps))
    async with contextlib.AsyncExitStack() as ending:
        feed = Feed(reads, source.interrupt, source.abort)
        _set_run(trainer, source, feed)
        ending.callback(_set_run, trainer, None, None)
        ending.push_async_callback(saving.end)
        ending.push_async_callback(feed.close)
        if bar is not None:
            ending.callback(bar.close)
        ending.callback(loggers.close)
        if total is not None:
            await trainer.foresee(total - trainer.steps)
        async for read in feed:
            if trainer.stopping or validation.over or trainer.steps >= most:
                break
            stats = None if read.arrays is None else await trainer.take(read.arrays)
            trainer.cursor = _after(trainer.cursor, read, source)
            if stats is not None:
                done.append(stats)
                saving.missing = True
                await _tell(stats, on_step, loggers, bar, validation)
            if validation.due(ended=not read.batch):
                await _validate(validation, loggers, saving)
            if stats is not None and stats.step % settings.checkpoint_every == 0:
                await saving.begin()
        if done and validation.missing and not trainer.stopping:
            await _validate(validation, loggers, saving)
        if done and saving.missing:
            await saving.begin()
    return History(done, validation.results, validation.ended)


def _set_run(trainer: "Trainer", source: Source | None, feed: Feed[Read] | None) -> None:
    trainer.stopping, trainer.source, trainer.feed = False, source, feed


def _start(trainer: "Trainer", source: Source) -> Cursor:
    """Where reading begins.

    Raises:
        ValueError: The checkpoint that was resumed is from the middle of an iterator.
    """
    cursor = trainer.cursor
    if not source.once:
        return msgspec.structs.replace(cursor, order=b"") if cursor.order == ITERATOR else cursor
    if cursor is trainer.resumed and (cursor.order == ITERATOR or cursor.epoch or cursor.batch):
        raise ValueError(
            "fit: data is an iterator, and training goes on from a checkpoint: which batches it gives next is not "
            "known. Pass a DataLoader, a data set, or a function that gives the iterator from its beginning; or call "
            "step for its batches"
        )
    return Cursor()


def _after(cursor: Cursor, read: Read, source: Source) -> Cursor:
    if source.once:
        return msgspec.structs.replace(cursor, order=ITERATOR)
    return msgspec.structs.replace(cursor, epoch=read.epoch, batch=read.batch, order=read.order)


async def _tell(
    stats: StepStats, on_step: Callable[[StepStats], Any] | None, loggers: Loggers, bar: Any, validation: Validation
) -> None:
    """Tell all who want to know of a step."""
    if on_step is not None:
        said = on_step(stats)
        if inspect.isawaitable(said):
            await said
    await loggers.tell(stats)
    if bar is not None:
        last = f", validation {validation.results[-1]}" if validation.results else ""
        bar.set_postfix_str(figures(stats) + last, refresh=False)
        bar.update()


async def _validate(validation: Validation, loggers: Loggers, saving: "_Saving") -> None:
    is_best = await validation.run()
    await loggers.tell(validation.results[-1])
    saving.missing = True  # also of the value so far
    if is_best:
        await saving.begin(best=True)


class _Saving:
    """Checkpoints, whose files are written beside the next steps, one after the other.

    Attributes:
        missing: There is none of the state of now.
    """

    def __init__(self, trainer: "Trainer", settings: Settings) -> None:
        self._trainer = trainer
        self._settings = settings
        self._saving: asyncio.Task[Path] | None = None
        if settings.checkpoints is not None:
            os.makedirs(settings.checkpoints, exist_ok=True)  # fails now, and not after the steps of hours
        self.missing = False

    async def begin(self, *, best: bool = False) -> None:
        """Begin the next one, once the one before is complete."""
        folder, keep = self._settings.checkpoints, self._settings.keep
        self.missing = best
        if folder is None:
            return
        await self.end()
        where = Path(folder, "best") if best else folder
        self._saving = asyncio.ensure_future(self._trainer.save(where, keep=1 if best else keep))
        await asyncio.sleep(0)  # it is in line for the weights, in front of the next step

    async def end(self) -> None:
        """Wait until it is written."""
        saving, self._saving = self._saving, None
        if saving is not None:
            await saving


def _bar(progress: bool | None, total: int | None, done: int) -> Any:
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
