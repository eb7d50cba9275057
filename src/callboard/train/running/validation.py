"""``evaluate``: means over a data set; ``Validation``: those of a run, and what follows from them."""

import logging
import math
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.train.batches import Batch, rows_of
from callboard.train.kinds import share_of
from callboard.train.replicas.measuring import LOSS, WEIGHT, Collectors, Measures, Metric, added, packed
from callboard.train.running.feed import Feed
from callboard.train.running.plateau import ReduceLROnPlateau
from callboard.train.running.sampling import Cursor, passes
from callboard.train.running.settings import Settings
from callboard.train.running.sources import Source, source_of
from callboard.train.stats import Evaluation

if TYPE_CHECKING:
    from callboard.train.trainer import Trainer

__all__ = ["Validation", "evaluate", "source_to_evaluate"]

_log = logging.getLogger(__name__)

BATCH = 64
"""Samples of a batch of an evaluation, if nothing else is said."""


async def evaluate(
    source: Source,
    metrics: Mapping[str, Metric] | None,
    step: int,
    measure: Callable[[Batch, bytes], Awaitable[Measures]],
) -> Evaluation:
    """Loss and metrics of all samples of a pass.

    Args:
        source: The data.
        metrics: By name.
        step: The last step.
        measure: Gives loss and metrics of a batch.
    """
    code, began, samples = packed(metrics), time.perf_counter_ns(), 0
    collectors = Collectors(metrics)
    await collectors.reset()
    measures = Measures({})
    feed = Feed(passes(source, Cursor(), 1, sys.maxsize), source.interrupt, source.abort)
    try:
        async for read in feed:
            if read.arrays is not None and rows_of(read.arrays):
                samples += rows_of(read.arrays)
                found = await measure(read.arrays, code)
                await collectors.update(found.collected)
                measures = added([measures, Measures(found.sums)])
    finally:
        await feed.close()
    if not samples:
        raise ValueError("evaluate: the data has no samples")
    sums = measures.sums
    loss = share_of(sums.pop(LOSS), sums.pop(WEIGHT))
    means, whole = {name: value / samples for name, value in sums.items()}, await collectors.compute()
    micros = (time.perf_counter_ns() - began) // 1000
    return Evaluation(step=step, loss=loss, samples=samples, micros=micros, metrics=means | whole)


def source_to_evaluate(data: Any, batch_size: int | None, what: str = "data", usual: int | None = None) -> Source:
    """The data of an evaluation, in its own order; arguments as for :func:`.source_of`."""
    return source_of(data, batch_size, None, 0, what, usual or BATCH)


class Validation:
    """The evaluations of a run.

    Args:
        trainer: What is evaluated; its cursor has the best value so far.
        settings: Of the run.
        schedule: Of the step size.

    Attributes:
        results: What the evaluations gave.
    """

    def __init__(self, trainer: "Trainer", settings: Settings, schedule: Callable[[Any], Any] | None) -> None:
        self.results: list[Evaluation] = []
        self._trainer = trainer
        self._settings = settings
        self._plateau = schedule if isinstance(schedule, ReduceLROnPlateau) else None
        if self._plateau is not None and settings.validate is None:
            raise ValueError(
                "fit: schedule is a ReduceLROnPlateau, but there is no data to validate with; pass validate"
            )
        self._last = 0.0  # monitored value
        if settings.validate is not None:
            packed(settings.metrics)
            if self._source().once:
                raise ValueError(
                    "fit: validate is an iterator, which gives its batches once; pass a data set, a loader, or a "
                    "function that gives the iterator"
                )

    @property
    def over(self) -> bool:
        """So many evaluations in a row were not the best that the run is to end."""
        patience = self._settings.patience
        return patience is not None and self._trainer.cursor.waited >= patience

    @property
    def ended(self) -> str:
        """Why the run ends before its last step; empty: it does not."""
        why = ", the last one is NaN" if math.isnan(self._last) else ""
        return f"patience: {self._trainer.cursor.waited} evaluations in a row were not the best{why}" * self.over

    def due(self, *, ended: bool) -> bool:
        """It is time for one, after a step.

        Args:
            ended: A pass over the data has ended.
        """
        every = self._settings.validate_every
        return self.missing and (ended if every is None else self._trainer.steps % every == 0)

    @property
    def missing(self) -> bool:
        """There is none of the weights of now."""
        done = self.results[-1].step if self.results else -1
        return self._settings.validate is not None and done < self._trainer.steps

    async def run(self) -> bool:
        """Evaluate; True if it is the best so far."""
        settings, trainer = self._settings, self._trainer
        found = await trainer.evaluate(self._source(), metrics=settings.metrics)
        self.results.append(found)
        before, self._last = self._last, settings.value(found)
        value = self._last
        if math.isnan(value) and not math.isnan(before):
            _log.warning("step %d: the monitored value is NaN, which is never the best", found.step)
        cursor = trainer.cursor
        is_best = value < cursor.best
        best, waited = (value, 0) if is_best else (cursor.best, cursor.waited + 1)
        factor = cursor.factor if self._plateau is None else self._plateau.after(cursor.factor, waited)
        trainer.cursor = msgspec.structs.replace(cursor, best=best, waited=waited, factor=factor)
        return is_best

    def _source(self) -> Source:
        return source_to_evaluate(self._settings.validate, None, "validate", self._settings.batch_size)
