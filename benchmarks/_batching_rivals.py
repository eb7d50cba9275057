"""Two other ways to batch, as small as they can be (at once when idle; with a learned wait in ticks), and BentoML's."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self

import numpy as np

BatchFunction = Callable[[list[Any]], Awaitable[Any]]

TICK = 0.001
KEPT = 50
REFRESH = 5.0


class IdleDispatch:
    """Whatever waits is run as soon as the function is free."""

    def __init__(self, function: BatchFunction, max_batch: int) -> None:
        self._function = function
        self._max_batch = max_batch
        self._queue: deque[tuple[float, Any, asyncio.Future[Any]]] = deque()
        self._wake = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def submit(self, item: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        self._queue.append((time.perf_counter(), item, future))
        self._wake.set()
        return await future

    async def _serve(self) -> None:
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            await self._run()

    async def _run(self) -> tuple[int, float, float]:
        """Run one batch; its size, the mean wait of its requests, its seconds."""
        batch = [self._queue.popleft() for _ in range(min(self._max_batch, len(self._queue)))]
        started = time.perf_counter()
        rows = await self._function([item for _, item, _ in batch])
        for (_, _, future), row in zip(batch, rows, strict=True):
            future.set_result(row)
        waited = sum(started - arrived for arrived, _, _ in batch) / len(batch)
        return len(batch), waited, time.perf_counter() - started


class Cork(IdleDispatch):
    """Waits in ticks of 1 ms while ``n`` times (age of the newest + tick + seconds per item) is below the mean wait.

    The rule and its constants are those of BentoML's adaptive batching, as far as they decide when a batch goes;
    without its training phase and its cancellation of late requests.
    """

    def __init__(self, function: BatchFunction, max_batch: int) -> None:
        super().__init__(function, max_batch)
        self._seen: deque[tuple[int, float, float]] = deque(maxlen=KEPT)
        self._per_item = 0.001
        self._wait = 0.01
        self._refreshed = 0.0

    async def _serve(self) -> None:
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            n = len(self._queue)
            newest = time.perf_counter() - self._queue[-1][0]
            if n < self._max_batch and n * (newest + TICK + self._per_item) <= self._wait * 0.95:
                await asyncio.sleep(TICK)
                continue
            self._seen.append(await self._run())
            if time.perf_counter() - self._refreshed > REFRESH or len(self._seen) < 4:
                self._refresh()

    def _refresh(self) -> None:
        self._refreshed = time.perf_counter()
        fit = np.linalg.lstsq([(n, 1) for n, _, _ in self._seen], [run for _, _, run in self._seen], rcond=None)[0]
        self._per_item = max(1e-6, float(fit[0]))
        self._wait = sum(waited for _, waited, _ in self._seen) / len(self._seen)


class BentoCork:
    """BentoML's own adaptive batching, in its environment: the class that its servers call. It may wait 10 s."""

    def __init__(self, function: BatchFunction, max_batch: int) -> None:
        from bentoml._internal.marshal.dispatcher import CorkDispatcher

        self._function = function
        self._cork: Any = CorkDispatcher(10_000, max_batch, fallback=lambda: None, get_batch_size=lambda _: 1)

    async def __aenter__(self) -> Self:
        self.submit = self._cork(self._batch)
        return self

    async def _batch(self, items: Any) -> Any:
        return await self._function(list(items))

    async def __aexit__(self, *_: object) -> None:
        self._cork.shutdown()
