"""Live output of ``callboard serve``: an updated line on a terminal, log lines otherwise."""

import asyncio
import logging
import shutil
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from callboard.patterns.batching.figures import BatchingStats
from callboard.patterns.requests.stats import Histogram
from callboard.serve.app import App

__all__ = ["ClearingHandler", "Watch", "show"]

EVERY = 1.0
"""Seconds between changes of the line on a terminal."""
WINDOW = 5
"""Changes that the figures of the line go back."""
LOGGED_EVERY = 60.0
"""Seconds between lines of the log, while there are requests."""

CLEAR = "\r\x1b[K"

_log = logging.getLogger("callboard.serve")


@dataclass(frozen=True)
class _Moment:
    responses: int
    failed: int
    seconds: Histogram
    batches: int
    batched: float


class Watch:
    """Figures of an app over the last moments.

    Args:
        app: The app.
        window: Moments that they go back.
        interval: Seconds between moments.
    """

    def __init__(self, app: App, window: int, interval: float) -> None:
        self._app = app
        self._interval = interval
        self._moments = deque([self._now()], maxlen=window + 1)

    def line(self) -> str:
        """The figures since ``window`` calls ago, or since the start."""
        now = self._now()
        then = self._moments[0]
        spent = len(self._moments) * self._interval
        self._moments.append(now)
        took = now.seconds.since(then.seconds)
        parts = [f"{now.responses:,} requests", f"{(now.responses - then.responses) / spent:,.1f}/s"]
        if now.failed > then.failed:
            parts.append(f"{now.failed - then.failed:,} failed")
        if (batches := now.batches - then.batches) > 0:
            parts.append(f"batches of {(now.batched - then.batched) / batches:.1f}")
        if took.count:
            parts.append(f"p50 {took.p50 * 1e3:.3g} ms, p99 {took.p99 * 1e3:.3g} ms")
        parts.append(f"{self._app.figures.open} open")
        contexts = {id(port): port for model in self._app.served for port in model.contexts()}
        if contexts:
            parts.append(f"losses survived: {sum(port.losses for port in contexts.values())}")
        devices = {id(model.device): model.device for model in self._app.served if model.device is not None}
        parts += [f"device {each.state}" for each in (device.health() for device in devices.values()) if not each.ok]
        return " · ".join(parts)

    @property
    def responses(self) -> int:
        """Responses since the start, of requests to models."""
        return self._moments[-1].responses

    def _now(self) -> _Moment:
        figures = self._app.figures
        own = self._app.own
        asked = {key: count for key, count in figures.responses.items() if key[0] in own or _to_models(key[0])}
        seconds = Histogram()
        for route, histogram in figures.seconds.items():
            if route in own or _to_models(route):
                seconds.add_all(histogram)
        runs = [run for model in self._app.served if isinstance(run := model.run_stats(), BatchingStats)]
        return _Moment(
            responses=sum(asked.values()),
            failed=sum(count for (_, status), count in asked.items() if status >= 400),
            seconds=seconds,
            batches=sum(run.batch_size.count for run in runs),
            batched=sum(run.batch_size.count * run.batch_size.mean for run in runs),
        )


def _to_models(route: str) -> bool:
    """True if requests to this route run a model: probes and metrics would hide them."""
    return route.endswith(("/infer", "/generate", "/generate_stream")) or (
        route.startswith("/v1/") and not route.startswith("/v1/models")
    )


class ClearingHandler(logging.StreamHandler[TextIO]):
    """Writes to a terminal on which :func:`show` has a line: that is taken away first."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        with suppress(OSError):  # the terminal was closed
            self.stream.write(CLEAR)
        super().emit(record)


async def show(app: App, stream: TextIO, *, line: bool = True) -> None:
    """Show the figures until this is cancelled.

    Args:
        app: The app.
        stream: Stream for the line, if it is a terminal; else the figures are logged.
        line: False: they are logged on a terminal, too.
    """
    if line and stream.isatty():
        with suppress(OSError):  # the terminal was closed
            await _show_line(app, stream)
    else:
        await _log_lines(app)


async def _show_line(app: App, stream: TextIO) -> None:
    watch = Watch(app, WINDOW, EVERY)
    try:
        while True:
            await asyncio.sleep(EVERY)
            columns = shutil.get_terminal_size().columns
            stream.write(f"{CLEAR}{watch.line()[: columns - 1]}")  # a line that wraps could not be cleared
            stream.flush()
    finally:
        stream.write(CLEAR)
        stream.flush()


async def _log_lines(app: App) -> None:
    watch = Watch(app, 1, LOGGED_EVERY)
    while True:
        before = watch.responses
        await asyncio.sleep(LOGGED_EVERY)
        line = watch.line()
        if watch.responses > before:
            _log.info("%s", line)
