"""Loggers: functions that are told the figures of a run; ready ones for files and TensorBoard."""

import csv
import inspect
import io
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from callboard.events.kinds import MARK
from callboard.events.ring import EVENTS, now
from callboard.telemetry.export.wholefile import WholeFile
from callboard.train.stats import Evaluation, StepStats

__all__ = ["CsvLogger", "JsonLinesLogger", "Logger", "Loggers", "TensorBoardLogger", "figures_of"]

_log = logging.getLogger(__name__)

Logger = Callable[[int, Mapping[str, float]], Any]
"""Called with the number of a step and figures by name; awaited, if it is a coroutine function."""


def figures_of(stats: StepStats | Evaluation) -> dict[str, float]:
    """The figures of a step, or of an evaluation: these have ``validation/`` in front of their names."""
    if isinstance(stats, Evaluation):
        return {f"validation/{name}": value for name, value in {"loss": stats.loss, **stats.metrics}.items()}
    names = "loss", "grad_norm", "lr", "samples_per_second", "tokens_per_second", "mfu"
    found = {name: getattr(stats, name) for name in names}
    return {name: value for name, value in found.items() if value is not None} | {"seconds": stats.step_micros / 1e6}


class Loggers:
    """All loggers of a run, and the telemetry of this process. What one raises is reported once, and ends nothing."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        for one in loggers:
            if not callable(one):
                raise TypeError(f"fit: loggers has {one!r:.80}; pass functions of a step's number and its figures")
        self._loggers = list(loggers)
        self._failed: set[int] = set()

    async def tell(self, stats: StepStats | Evaluation) -> None:
        """Tell all of them."""
        figures = figures_of(stats)
        ring = EVENTS.ring
        if ring is not None:
            values = {"step": stats.step, **figures}
            ring.append((next(ring.numbers), now(), MARK, "training", type(stats).__name__, values))
        for at, logger in enumerate(self._loggers):
            try:
                said = logger(stats.step, figures)
                if inspect.isawaitable(said):
                    await said
            except Exception as error:  # of the application
                self._report(at, error)

    def close(self) -> None:
        """Close those that can be closed; they open again when they are told something."""
        for at, logger in enumerate(self._loggers):
            try:
                getattr(logger, "close", lambda: None)()
            except Exception as error:  # of the application
                self._report(at, error)

    def _report(self, at: int, error: Exception) -> None:
        if at not in self._failed:
            self._failed.add(at)
            name = getattr(self._loggers[at], "__qualname__", type(self._loggers[at]).__name__)
            _log.warning("the logger %s failed; training goes on without telling so again", name, exc_info=error)


class _FileLogger:
    """Writes to a file, which is continued if it exists.

    Args:
        path: The file.
    """

    head = ""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file: WholeFile | None = None

    def _add(self, text: str) -> None:
        """Write lines, which are in the file when this returns: all of them, or none."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            begins = not self._path.exists() or not self._path.stat().st_size
            self._file = WholeFile(self._path, "ab", lambda piece, written: 0)
            text = self.head + text if begins else text
        try:
            self._file.add(text.encode())
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class JsonLinesLogger(_FileLogger):
    """Writes figures to a file, a line of JSON for each call: ``{"step": 7, "loss": 0.25, …}``.

    A file that exists is continued: after :meth:`.DataParallelTrainer.resume`, steps that are done again have two
    lines. ``pandas.read_json(path, lines=True)`` reads it. NaN is written as ``NaN``. A line that does not fit on the
    disk is missing as a whole; the next one is tried again.

    Args:
        path: The file.
    """

    def __call__(self, step: int, figures: Mapping[str, float]) -> None:
        """Write a line, which is in the file when this returns."""
        self._add(json.dumps({"step": step, **figures}) + "\n")


class CsvLogger(_FileLogger):
    """Writes figures to a file, a line ``step,name,value`` for each one; also for a resumed run.

    ``pandas.read_csv(path).pivot_table("value", "step", "name", "last")`` has a column for each name.

    Args:
        path: The file.
    """

    head = "step,name,value\n"

    def __call__(self, step: int, figures: Mapping[str, float]) -> None:
        """Write lines, which are in the file when this returns."""
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows((step, *figure) for figure in figures.items())
        self._add(lines.getvalue())


class TensorBoardLogger:
    """Writes figures as scalars for TensorBoard, by ``torch.utils.tensorboard``. It needs the package tensorboard.

    What an earlier run has written for later steps than the first one is hidden, so a run that was resumed has one
    curve.

    Args:
        folder: Of the run.

    Raises:
        ImportError: tensorboard is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoardLogger needs the package tensorboard: pip install tensorboard") from error
        self._make: Any = SummaryWriter
        self._folder = os.fspath(folder)
        self._writer: Any = None

    def __call__(self, step: int, figures: Mapping[str, float]) -> None:
        """Write scalars, which TensorBoard shows after some seconds."""
        if self._writer is None:
            self._writer = self._make(self._folder, purge_step=step)
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
