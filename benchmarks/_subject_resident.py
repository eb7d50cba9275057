"""Subject: the model behind one way of calling it: plain, a pipe, the spinning prototype, or a resident actor."""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _resident_model import WIDTH, Served, check
from _resident_rivals import PipeRival, PlainRival, SpinRival
from _worker import serve, serve_async

import callboard as cb

clock = time.perf_counter

BURST = 32

WARM, WARM_BURSTS = 10, 1
"""Calls, and bursts of calls, before those that count."""

RIVALS: dict[str, Callable[[str, str], Any]] = {"plain": PlainRival, "pipe": PipeRival, "spinning": SpinRival}


def _input(rows: int) -> Any:
    return np.random.default_rng(rows).standard_normal((rows, WIDTH), np.float32)


def _of_rival(rival: Any) -> dict[str, Callable[..., float]]:
    """Measurements of one that answers a call before it takes the next."""

    def timed(call: Callable[[], object], count: int, at_once: int = 1) -> float:
        times = []
        warm = WARM if at_once == 1 else WARM_BURSTS
        for i in range(warm + count):
            began = clock()
            for _ in range(at_once):
                call()
            if i >= warm:
                times.append((clock() - began) / at_once)
        return statistics.median(times)

    def empty(count: int) -> float:
        return timed(rival.nothing, count)

    def echo(nbytes: int, count: int) -> float:
        array = np.arange(nbytes // 4, dtype=np.uint32)
        np.testing.assert_array_equal(rival.echo(array), array)
        return timed(lambda: rival.echo(array), count)

    def model(rows: int, count: int, at_once: bool) -> float:
        x = _input(rows)
        check(x, rival.run(x))
        return timed(lambda: rival.run(x), count, BURST if at_once else 1)

    return {"empty": empty, "echo": echo, "model": model}


def _of_resident(actor: "cb.ResidentRef[Served]") -> dict[str, Callable[..., Any]]:
    """Measurements of a resident actor."""

    async def timed(call: Callable[[], Any], count: int, warm: int = WARM) -> float:
        times = []
        for i in range(warm + count):
            began = clock()
            await call()
            if i >= warm:
                times.append(clock() - began)
        return statistics.median(times)

    async def empty(count: int) -> float:
        return await timed(lambda: actor.call(Served.nothing), count)

    async def echo(nbytes: int, count: int) -> float:
        array = np.arange(nbytes // 4, dtype=np.uint32)
        np.testing.assert_array_equal(await actor.call(Served.echo, array), array)
        return await timed(lambda: actor.call(Served.echo, array), count)

    async def model(rows: int, count: int, at_once: bool) -> float:
        x = _input(rows)
        for answer in await asyncio.gather(*(actor.call(Served.run, x) for _ in range(3))):
            check(x, answer)
        if not at_once:
            return await timed(lambda: actor.call(Served.run, x), count)
        burst = await timed(
            lambda: asyncio.gather(*(actor.call(Served.run, x) for _ in range(BURST))), count, WARM_BURSTS
        )
        return burst / BURST

    return {"empty": empty, "echo": echo, "model": model}


async def _resident(place: str, made_with: str, device: str) -> None:
    isolation: Any = "process" if place == "own" else place
    async with cb.device(device, isolation=isolation, standby=None) as dev:
        await serve_async(_of_resident(dev.actor_of(cb.Props(Served, made_with), own_process=place == "own")))


def main(kind: str, made_with: str, device: str, vendors_name: str) -> None:
    """Serve.

    Args:
        kind: ``"plain"``, ``"pipe"``, ``"spinning"``, ``"process"``, ``"thread"`` or ``"own"``.
        made_with: ``"torch"`` or ``"numpy"``.
        device: As callboard names it.
        vendors_name: As torch names it.
    """
    if kind not in RIVALS:
        asyncio.run(_resident(kind, made_with, device))
        return
    rival = RIVALS[kind](made_with, vendors_name)
    try:
        serve(_of_rival(rival))
    finally:
        rival.close()


if __name__ == "__main__":
    main(*sys.argv[1:5])
