"""``python -m tests.faults.soak``: a server that is never idle, whose requests fail and whose hosts are killed.

10,000 requests, one in five fails, and 100 times the context host gets SIGKILL. Every request must end once, in the
right value or in its own error, and the application's memory must stay flat.
"""

import argparse
import asyncio
import itertools
import logging
import os
import signal
import sys
import time
from collections import Counter, deque
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import callboard as cb

__all__ = ["Soak"]

BOUND = 60.0
"""Seconds within which every request must end, and the device be ready again."""
AT_ONCE = 8
BYSTANDERS = 16
SHAPE = (128, 128)
"""64 KiB in f32: what the failed requests hold, if they are not let go, is 128 MiB after 2,000 of them."""
GROWTH = 32 << 20
"""Bytes by which the application may grow after its first fifth."""


class Model(cb.ResidentActor):
    """Answers, or fails, as it is told."""

    def double(self, value: np.ndarray[Any, Any], fails: bool) -> np.ndarray[Any, Any]:
        if fails:
            raise cb.ReplyError("told to fail")
        return 2 * value


class Soak:
    """Requests to one device, and what became of them.

    Args:
        dev: With hosts that are processes, and no limit of restarts.
        requests: How many.
        kills: How often the active host is killed.

    Attributes:
        ends: How many requests ended how: by ``"value"``, or the class of the error.
        checked: Answers that the bystander has got.
        idle: How many requests found nothing in flight.
        resident_bytes: Of this process, after each twentieth of the requests.
    """

    def __init__(self, dev: cb.Device, requests: int, kills: int, seed: int = 1) -> None:
        self.ends: Counter[str] = Counter()
        self.checked = 0
        self.idle = 0
        self.resident_bytes: list[int] = []
        self._dev = dev
        self._requests = requests
        self._kills = kills
        self._random = Random(seed)
        self._begun = 0
        self._killed = 0
        self._due = asyncio.Event()  # so many have ended that the host is killed
        self._due_at = 0
        self._model = dev.actor_of(cb.Props(Model), name="model")
        self._identity = dev.per_generation(lambda d: d.put(np.eye(*SHAPE, dtype=np.float32)))

    @property
    def ended(self) -> int:
        return sum(self.ends.values())

    async def run(self) -> None:
        """Make all requests.

        Raises:
            AssertionError: One ended otherwise than it should.
        """
        bystander = asyncio.create_task(self._stand_by())
        killer = asyncio.create_task(self._kill())
        workers = [asyncio.create_task(self._work()) for _ in range(AT_ONCE)]
        try:
            await asyncio.gather(*workers)
            await asyncio.wait_for(killer, BOUND)
        finally:
            for task in (bystander, killer, *workers):
                task.cancel()
            ended = await asyncio.gather(bystander, killer, *workers, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while self._begun < self._requests:
            self._begun += 1
            number = self._begun
            self.idle += self._dev._port.in_flight == 0
            try:
                async with asyncio.timeout(BOUND):
                    how = await self._request(number, fails=number % 5 == 0)
            except TimeoutError:
                raise AssertionError(f"request {number} did not end within {BOUND} s") from None
            self.ends[how] += 1
            if self.ended >= self._due_at:
                self._due.set()
            if self.ended % max(1, self._requests // 20) == 0:
                self.resident_bytes.append(_resident_bytes())

    async def _request(self, number: int, fails: bool) -> str:
        """One request; how it ended."""
        try:
            identity = await self._identity()
            value = await (self._served(number, fails) if number % 7 == 0 else self._computed(number, identity, fails))
        except (cb.ContextLost, cb.MailboxFull) as e:
            if isinstance(e, cb.MailboxFull) or not self._dev.health().ok:
                await self._dev.ready()
            return type(e).__name__
        except (cb.NumericalError, cb.ReplyError) as e:
            if not fails:
                raise AssertionError(f"request {number} failed with {e!r}, which is another's error") from e
            return type(e).__name__
        assert not fails, f"request {number} was to fail, and has {value.ravel()[:4]}"
        assert (value == number).all(), f"request {number} has {value.ravel()[:4]}"
        return "value"

    async def _computed(self, number: int, identity: cb.GpuRef, fails: bool) -> np.ndarray[Any, Any]:
        dev = self._dev
        body = np.full(SHAPE, number, np.float32)  # held while the request is, as a server holds what it was sent
        x = dev.put(body)
        if fails:
            x = dev.solver.cholesky(dev.put(-np.eye(*SHAPE, dtype=np.float32)))
        y = dev.blas.gemm(x, identity)
        for _ in range(3):  # what reads a failed op's result fails likewise, seen or not
            y = dev.copy(y)
        dev.blas.nrm2(y.reshape(-1))
        answer: np.ndarray[Any, Any] = await y.get()
        return answer

    async def _served(self, number: int, fails: bool) -> np.ndarray[Any, Any]:
        half = np.full(SHAPE, number / 2, np.float32)
        answer: np.ndarray[Any, Any] = await self._model.call(Model.double, half, fails)
        return answer

    # -- beside them ---------------------------------------------------------------------------------------------------

    async def _stand_by(self) -> None:
        """A bystander: some ops are in flight at any time, and each answer must be right."""
        waiting: deque[tuple[float, Any]] = deque()
        for number in itertools.count():
            try:
                value = number % (1 << 20)
                waiting.append((2.0 * value, self._dev.blas.nrm2(self._dev.put(np.full(4, value, np.float32)))))
                if len(waiting) > BYSTANDERS:
                    right, reply = waiting.popleft()
                    async with asyncio.timeout(BOUND):
                        found = await reply
                    assert found == right, f"the bystander has {found}, not {right}"
                    self.checked += 1
            except (cb.ContextLost, cb.MailboxFull):
                waiting.clear()
                await self._dev.ready()

    async def _kill(self) -> None:
        """Kill the active host again and again, whatever it is doing."""
        every = self._requests / (self._kills + 1)
        while self._killed < self._kills:
            self._due.clear()
            self._due_at = int(every * (self._killed + self._random.random()))
            await self._due.wait()
            await self._dev.ready()
            pid = self._dev.health().host_pid
            assert pid is not None
            assert pid != os.getpid()
            generation = self._dev.generation
            os.kill(pid, signal.SIGKILL)
            self._killed += 1
            async with asyncio.timeout(BOUND):
                await self._dev.watch_generation().changed(generation)

    def grown(self) -> int:
        """Bytes by which this process has grown since a fifth of the requests had ended."""
        first = self.resident_bytes[len(self.resident_bytes) // 5]
        return max(self.resident_bytes[-3:]) - first


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def soak(requests: int, kills: int, seed: int) -> Soak:
    """All of it, on a CPU; see what is left when it is over."""
    async with cb.device("cpu", isolation="process", standby="hot", max_restarts=None) as dev:
        run = Soak(dev, requests, kills, seed)
        await run.run()
        await dev.ready()
        assert dev.health().restarts == kills, f"{dev.health().restarts} contexts were lost, {kills} hosts killed"
        await dev.drain()
        assert dev._port.in_flight == 0
    return run


def main() -> int:
    parser = argparse.ArgumentParser("soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="how many (10,000)")
    parser.add_argument("--kills", type=int, default=100, help="how many hosts are killed (100)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("callboard").setLevel(logging.CRITICAL)  # the losses are ours
    began = time.monotonic()
    run = asyncio.run(soak(given.requests, given.kills, given.seed))
    sizes = " ".join(str(size >> 20) for size in run.resident_bytes)
    print(f"{run.ended:,} requests in {time.monotonic() - began:.0f} s: {dict(run.ends)}")
    print(f"{run.checked:,} right answers to the bystander; {run.idle} requests found nothing in flight")
    print(f"resident memory: {sizes} MiB; grown by {run.grown() / 2**20:.1f} MiB, at most {GROWTH >> 20}")
    return 0 if run.ended == given.requests and run.grown() <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
