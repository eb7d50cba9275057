"""Many requests of all kinds while hosts are killed and models replaced: as many ends as requests, and nothing is left.

2,000 requests in a plain run, 100,000 with ``slow``.
"""

import asyncio
import gc
import os
import signal
import sys
from collections import Counter
from typing import Any

import numpy as np
import psutil
import pytest
from serve_lab import Tally, X, Y

import callboard as cb
from callboard.serve import App

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]
WORKERS = 48
GROWTH = 24 << 20
"""Bytes that the process may grow by after its first fifth: allocators keep what they had."""


class Doubling(cb.ResidentActor):
    def double(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        return [2 * row for row in rows]


async def soak(requests: int, kills: int, swaps: int) -> None:
    ends: Counter[str] = Counter()
    app = App(tenant=lambda headers: headers["x-tenant"])
    sizes = []
    async with cb.device("cpu", isolation="process", max_restarts=None) as device:
        loads = 0

        async def load() -> Any:
            nonlocal loads
            loads += 1
            actor = await device.actor_of(cb.Props(Doubling), wait=True)

            async def run(rows: list[np.ndarray]) -> list[Any]:
                found = await actor.call(Doubling.double, rows)
                return [row if row[0] >= 0 else cb.ShapeError("negative") for row in found]

            server = cb.DynamicBatchingServer(run, max_batch=16, max_queue=64, idempotent=True)
            server.actor = actor  # type: ignore[attr-defined] -- for unload
            return server

        async def unload(server: Any) -> None:
            await server.stop()
            await server.actor.stop_and_wait()

        version = cb.ModelVersion("1", load, unload=unload)
        app.add_model("m", version, inputs=X, outputs=Y, device=device, tenants={"a": 1.0, "b": 2.0}, max_queue=64)
        async with app.running():
            model: Any = app.models["m"]
            numbers = iter(range(requests))

            async def ask(number: int) -> str:
                x = np.array([-1.0 if number % 11 == 0 else number], np.float32)
                timeout = 1e-4 if number % 13 == 0 else None
                work = model.infer((x,), timeout=timeout, priority=-(number % 3), tenant="ab"[number % 2])
                try:
                    if number % 17 == 0:  # leaves at some moment
                        task = asyncio.ensure_future(work)
                        for _ in range(1 + number % 5):
                            await asyncio.sleep(0)
                        task.cancel()
                        found = await task
                    else:
                        found = await work
                except asyncio.CancelledError:
                    return "cancelled"
                except cb.AccelError as e:
                    return type(e).__name__
                assert found["y"].tolist() == [2 * number]
                return "value"

            done = Tally()

            async def worker() -> None:
                for number in numbers:
                    ends[await ask(number)] += 1
                    done.add()

            async def killer() -> None:
                for n in range(kills):
                    await done.reached(requests * (n + 0.5) / (kills + 1))
                    generation, pid = device.generation, device.health().host_pid
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)
                    await device.watch_generation().changed(generation)

            async def swapper() -> None:
                for n in range(swaps):
                    await done.reached(requests * (n + 1) / (swaps + 1))
                    await model.chain.load()

            async def sampler() -> None:
                for share in (0.2, 0.9):
                    await done.reached(requests * share)
                    gc.collect()
                    sizes.append(psutil.Process().memory_info().rss)

            async with asyncio.TaskGroup() as group:
                for work in (killer, swapper, sampler, *[worker] * WORKERS):
                    group.create_task(work())
            stats = model.stats()
            restarts = device.health().restarts
            actors = (await device.stats()).residents
    assert sum(ends.values()) == requests
    assert stats.submitted == requests
    counted = (stats.completed, stats.failed, stats.cancelled, stats.expired, stats.rejected, stats.dropped)
    assert sum(counted) == requests
    assert stats.stopped == stats.queued == stats.running == stats.blocked == 0
    assert stats.completed >= ends["value"] > requests / 2
    assert ends["ShapeError"] > 0
    assert ends["cancelled"] > 0
    assert set(ends) <= {"value", "ShapeError", "cancelled", "DeadlineExceeded", "QueueFull", "ContextPoisoned"}
    assert ends["ContextPoisoned"] <= kills * WORKERS
    assert (restarts, loads, len(actors)) == (kills, 1 + swaps, 1)
    assert sizes[1] - sizes[0] < GROWTH


@pytest.mark.slow
async def test_two_thousand_requests() -> None:
    await asyncio.wait_for(soak(2_000, kills=1, swaps=2), 50)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_hundred_thousand_requests() -> None:
    await asyncio.wait_for(soak(100_000, kills=20, swaps=20), 580)
