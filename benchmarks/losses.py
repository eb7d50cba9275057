"""Losses in a row of a torch model: time from the request that kills to the next good answer.

    python benchmarks/losses.py --json losses.json
    python benchmarks/losses.py --quick --device cpu --standbys 1 2

Each round waits until all hot standbys are ready, then kills five times in a row, each time as soon as the model has
answered again. On CUDA a token id out of range is a device-side assertion; on the CPU the process exits.
``--no-warm-up`` shows what the first call after a takeover costs without ``warm_up``.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import logging
import sys
import time
from typing import Any

from _embedding_model import GOOD, POISON, Embedding
from _harness import Figures, arguments, spread, table
from _record import Record

import callboard as cb
from callboard.cli.parts.progress import Progress

LIMIT = 300.0
"""Seconds for the standbys to become ready, and for one recovery."""


class Cold(Embedding):
    """The same, and nothing is done in advance."""

    warm_up = cb.ResidentActor.warm_up


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--losses", type=int, default=5, help="losses in a row (default 5)")
    parser.add_argument("--standbys", type=int, nargs="+", default=[1, 2], help="numbers of standbys (default 1 2)")
    parser.add_argument("--no-warm-up", action="store_true", help="leave warm_up out")


def _is_assertion(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    return "Assertion `" in text or "device-side assert" in text


def _quieten() -> None:
    """Leave out what the losses write, which are meant: a line for each thread of the kernel."""
    logging.getLogger("callboard.device").setLevel(logging.CRITICAL)
    shown = logging.StreamHandler(sys.stderr)
    shown.addFilter(lambda record: not _is_assertion(record))
    logging.getLogger("callboard.host").addHandler(shown)


async def _answered(model: Any) -> float:
    """The time of the next good answer."""
    while True:
        with contextlib.suppress(cb.ContextLost):
            await model.call(Embedding.embed, GOOD)
            return time.monotonic()


async def _round(device: cb.Device, model: Any, losses: int) -> list[tuple[float, str]]:
    """Seconds of each loss, and what took over."""
    async with asyncio.timeout(LIMIT):
        await device.standby_ready()
    events = device.events()
    found = []
    for _ in range(losses):
        struck = time.monotonic()
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(cb.ContextLost):
                await model.call(Embedding.embed, POISON)
            seconds = await _answered(model) - struck
            async for event in events:
                if isinstance(event, cb.Recovered):
                    found.append((seconds, event.standby))
                    break
    await events.aclose()  # type: ignore[attr-defined]
    return found


async def _measure(given: Any, count: int) -> list[list[tuple[float, str]]]:
    standby: Any = ("hot", count) if count else None
    async with cb.device(given.device, isolation="process", standby=standby, max_restarts=None) as device:
        model = device.actor_of(cb.Props(Cold if given.no_warm_up else Embedding))
        await _answered(model)
        rounds = []
        with Progress(f"{count} standbys", given.rounds) as progress:
            for i in range(given.rounds):
                rounds.append(await _round(device, model, given.losses))
                progress.show(i + 1)
        return rounds


def main() -> None:
    given: Any = arguments(__doc__, rounds=5, extend=_extend)
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("losses.py needs torch: pip install torch")
    if given.quick:
        given.losses = min(given.losses, 2)
    _quieten()
    record = Record("losses", given)
    for count in given.standbys:
        rounds = asyncio.run(_measure(given, count))
        seconds: Figures = {f"loss {k + 1}": [r[k][0] for r in rounds] for k in range(given.losses)}
        title = f"from the killing request to the next good answer, {count} hot standbys: ms"
        result = table(title, seconds, lambda s: f"{s * 1e3:.1f}", "loss 1")
        kinds = {f"loss {k + 1}": [r[k][1] for r in rounds] for k in range(given.losses)}
        for name, kind in kinds.items():
            print(f"  {name} was taken over by: {', '.join(kind)}")
        figures = {name: {**spread(seconds[name]), **result[name], "standby": kinds[name]} for name in seconds}
        record.update({f"{count} standbys": figures})
    record.done([])


if __name__ == "__main__":
    main()
