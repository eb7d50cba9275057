"""An application to look at: a server, a resident actor, a pool of actors with queues, and a device that is used."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

import callboard as cb
from callboard.telemetry import Telemetry

ONES = np.ones((256, 256), np.float32)


class Work(cb.Msg["Worker"]):
    """Waits for the end."""


class Worker(cb.Actor):
    """Takes one message and keeps the others waiting."""

    def __init__(self, end: asyncio.Event) -> None:
        self.end = end

    @Work.handles
    async def work(self, message: Work) -> None:
        await self.end.wait()


class Pool(cb.Actor):
    """Workers with queues of different lengths."""

    def __init__(self, size: int, end: asyncio.Event) -> None:
        self.size = size
        self.end = end

    def pre_start(self) -> None:
        for number in range(self.size):
            worker = self.actor_of(cb.Props(Worker, self.end), f"worker-{number:02}")
            for _ in range(1 + number * 7 % 23):
                worker.tell(Work())


class Prices(cb.ResidentActor):
    """A model of three lines."""

    def quote(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.tanh(x).sum(axis=1))


@asynccontextmanager
async def shop(workers: int = 12) -> AsyncIterator[tuple[Telemetry, cb.Device]]:
    """The application; its clients ask until the end, and ask again what a loss has taken."""
    end = asyncio.Event()
    async with cb.System("shop") as system:
        telemetry = cb.observe(system, "node-1")
        device = await system.device("cpu", isolation="process", standby=None, max_restarts=None)
        prices = device.actor_of(cb.Props(Prices), name="prices")
        system.actor_of(cb.Props(Pool, workers, end), "orders")

        async def ranked(items: list[Any]) -> list[Any]:
            a = device.put(ONES)
            await device.xp.exp(device.blas.gemm(a, a))
            return items

        async with cb.DynamicBatchingServer(ranked, max_batch=16, name="ranking") as server:

            async def client(number: int) -> None:
                while not end.is_set():
                    with contextlib.suppress(cb.ContextLost):
                        await server.submit(number)
                        await prices.call(Prices.quote, ONES[: number + 1])
                    await asyncio.sleep(0.001 * number)

            clients = [asyncio.ensure_future(client(number)) for number in range(24)]
            try:
                yield telemetry, device
            finally:
                end.set()
                await asyncio.wait(clients)
