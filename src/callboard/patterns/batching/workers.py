"""``Workers``: the tasks that run the batches of a server, and when they start."""

import asyncio
from typing import TYPE_CHECKING, Any

from callboard.patterns.batching.policy import SETTLE, Batch, BatchPolicy
from callboard.patterns.requests.alarm import Alarm
from callboard.patterns.requests.inside import Inside
from callboard.patterns.requests.workers import WorkerPool

if TYPE_CHECKING:
    from callboard.patterns.batching.server import DynamicBatchingServer

__all__ = ["Workers"]


class Workers(WorkerPool):
    """Starts a worker whenever an executor is free and the policy has a batch for it.

    Args:
        server: Ends requests, and runs the batches.
        policy: Forms the batches.
    """

    def __init__(self, server: "DynamicBatchingServer[Any, Any]", policy: BatchPolicy) -> None:
        super().__init__(server, "batches", self.pump)
        self._batching = server
        self._policy = policy
        self._alarm = Alarm(server._clock, self.pump)
        self._delivering: set[asyncio.Task[None]] = set()  # those whose executors have been handed over
        self._settling = 0

    def pump(self) -> None:
        """Start a worker, or set the timer for when one will be needed."""
        policy, server = self._policy, self._batching
        running = len(self.tasks - self._delivering) if self._delivering else len(self.tasks)
        busy = self.starting or self._settling or running >= policy.settings.max_concurrent_batches
        if busy or server._loop is None or server._stopping is not None:
            return
        now = server._clock.time()
        at = policy.ready_at(now)
        if at is None:
            return
        if at <= now:
            # The batch is formed when the task runs: what is submitted in this iteration of the loop is in it.
            self.start(self._work())
        else:
            self._alarm.set(at)

    def stop(self) -> None:
        """Start no worker by the timer any more."""
        self._alarm.cancel()

    async def hand_over(self) -> None:
        """Let another worker begin the next batch, because this one gives out results, which takes a while."""
        worker = asyncio.current_task()
        if worker is None:
            return
        self._delivering &= self.tasks
        self._delivering.add(worker)
        self.pump()
        await asyncio.sleep(0)  # in which the other worker calls the function

    async def _work(self) -> None:
        """Run batches as long as there are any."""
        server = self._batching
        self.starting = 0
        while server._stopping is None and (batch := self._policy.take(server._clock.time())) is not None:
            self._policy.line.admit_blocked()
            self._fail_late(batch)
            if not batch.entries:
                continue
            self.pump()  # another executor may be free, and there may be more
            with Inside(server):
                ended = await server._runner.run(batch)
            if self._delivering and asyncio.current_task() in self._delivering:
                break
            if ended > 1:
                await self._settle(ended)

    async def _settle(self, answered: int) -> None:
        """Let the callers that were answered submit their next requests, unless a full batch waits already."""
        self._settling += 1
        seen = self._policy.last
        try:
            for _ in range(SETTLE):
                if self._policy.full or self._policy.last - seen >= answered:
                    break
                await asyncio.sleep(0)
        finally:
            self._settling -= 1

    def _fail_late(self, batch: Batch) -> None:
        server, now = self._batching, self._batching._clock.time()
        for entry in batch.late:
            server._fail(entry, server._expired(entry, "queue", now), "expired")
