"""``python -m tests.faults.resident_soak``: a million calls of resident actors, which fail and are restarted meanwhile.

Calls of all sizes, with arrays of the device, streams, cancels and ops of ``ctx.device``, and 1,000 restarts of the
actors. Every answer must be right, and the memory of the application and of the context host must stay flat.
"""

import argparse
import asyncio
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

import callboard as cb

__all__ = ["ResidentSoak", "soak"]

BOUND = 60.0
"""Seconds within which every call must end."""
ACTORS, AT_ONCE = 3, 8
GROWTH = 16 << 20
"""Bytes by which each process may grow after the first tenth of the calls."""
SIZES = 10, 1_000, 10_000, 100_000
"""Elements of arrays of f32; the larger ones travel beside the message."""
ITEMS = 6

Array = np.ndarray[Any, Any]


class Worker(cb.ResidentActor):
    """Answers what can be checked."""

    supervision = cb.OneForOne({LookupError: cb.Directive.RESTART}, default=cb.Directive.RESTART)

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx
        self.kept: Array | None = None

    def double(self, n: int) -> int:
        return 2 * n

    def larger(self, array: Array) -> Array:
        return array + 1

    def keep(self, array: Array) -> float:
        """Keep the array beyond the call; gives the last element of the one before."""
        before, self.kept = self.kept, array
        return -1.0 if before is None else float(before[-1])

    def increment(self, array: Any) -> None:
        array += 1

    def lend(self, n: int) -> cb.GpuRef:
        return self.ctx.ref(np.full(1_000, n, np.float32))

    def product(self, n: int) -> Array:
        """By ops of the actor's own device: n times a matrix of ones, squared."""
        dev = self.ctx.device
        x = dev.put(np.full((16, 16), n, np.float32))
        return dev.blas.gemm(x, dev.put(np.ones((16, 16), np.float32))).get()

    def items(self, n: int, size: int) -> Iterator[Any]:
        for i in range(ITEMS):
            yield np.full(size, n + i, np.float32) if size else n + i

    def fail(self) -> None:
        raise LookupError("told to fail")


class Sample(NamedTuple):
    """Resident memory, in bytes."""

    calls: int
    application: int
    host: int

    def __str__(self) -> str:
        return f"{self.calls:>9,} calls: application {self.application >> 20} MiB, host {self.host >> 20} MiB"


class ResidentSoak:
    """Calls of a few actors of one device, and what became of them.

    Args:
        dev: Its host is a process.
        calls: How many, at least; an item of a stream is one.
        restarts: How many of them restart their actor.
        told: Called with each sample.

    Attributes:
        calls: Calls that have ended.
        ends: How many of what kind have ended; by their error, those that have one.
        samples: One after each tenth of the calls.
    """

    def __init__(self, dev: cb.Device, calls: int, restarts: int, seed: int, told: Any) -> None:
        self.calls = 0
        self.ends: Counter[str] = Counter()
        self.samples: list[Sample] = []
        self._dev = dev
        self._wanted = calls
        self._restarts = restarts
        self._failed = 0
        self._random = Random(seed)
        self._told = told
        self._numbers = 0
        self._actors = [dev.actor_of(cb.Props(Worker), name=f"worker-{i}") for i in range(ACTORS)]

    async def run(self) -> None:
        """Make all calls.

        Raises:
            AssertionError: One ended otherwise than it should.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())
        await self._dev.drain()
        for actor in self._actors:
            assert actor.in_flight == 0
        assert sum(actor.restarts for actor in self._actors) == self._failed

    async def _work(self) -> None:
        kinds = {
            self._plain: 60,
            self._array: 14,
            self._kept: 4,
            self._ref: 4,
            self._lent: 3,
            self._product: 4,
            self._stream: 3,
            self._cancelled: 8,
        }
        while self.calls < self._wanted:
            self._numbers += 1
            number = self._numbers % (1 << 20)
            one = self._random.choices(list(kinds), list(kinds.values()))[0]
            if self._failed * self._wanted < self._restarts * self.calls:
                self._failed += 1
                one = self._restart
            try:
                async with asyncio.timeout(BOUND):
                    await one(self._random.choice(self._actors), number)
            except TimeoutError:
                raise AssertionError(f"{one.__name__} {number} did not end within {BOUND} s") from None
            self.ends[one.__name__.strip("_")] += 1
            self._count()

    def _count(self) -> None:
        self.calls += 1
        if len(self.samples) < 10 and self.calls >= (len(self.samples) + 1) * self._wanted // 10:
            pid = self._dev.health().host_pid
            assert pid is not None
            self.samples.append(Sample(self.calls, _resident_bytes(os.getpid()), _resident_bytes(pid)))
            self._told(self.samples[-1])

    # -- kinds of calls ------------------------------------------------------------------------------------------------

    async def _plain(self, actor: "cb.ResidentRef[Worker]", number: int) -> None:
        assert await actor.call(Worker.double, number) == 2 * number

    async def _array(self, actor: "cb.ResidentRef[Worker]", number: int) -> None:
        array = np.full(self._random.choice(SIZES), number, np.float32)
        found = await actor.call(Worker.larger, array)
        assert found.shape == array.shape
        assert (found == number + 1).all()

    async def _kept(self, actor: "cb.ResidentRef[Worker]", number: int) -> None:
        last = await actor.call(Worker.keep, np.full(self._random.choice(SIZES), number, np.float32))
        assert -1 <= last < 1 << 20
        assert last == int(last)

    async def _ref(self, actor: "cb.ResidentRef[Worker]", number: int) -> None:
        x = self._dev.full(self._random.choice(SIZES), float(number), "f32")
        actor.call(Worker.increment, x)
        await actor.call(Worker.increment, x)
        self._count()
        assert (await self._dev.copy(x).get() == number + 2).all()

    async def _lent(self, actor: "cb.ResidentRef[Worker]", number: int) -> None:
        ref = await actor.call(Worker.lend, number)
        assert (await self._dev.copy(ref).get() == number).all()

    async def _product(self, actor: "cb.ResidentRef[Worker]", number: int) -> None:
        n = number % 1_000
        assert (await actor.call(Worker.product, n) == 16 * n).all()

    async def _stream(self, actor: "cb.ResidentRef[Worker]", number: int) -> None:
        """Take all items, or leave in the middle; a restart of the actor ends it."""
        until = self._random.randrange(2 * ITEMS)
        size = self._random.choice((0, 0, *SIZES))
        stream = actor.stream(Worker.items, number, size)
        at = 0
        try:
            async for item in stream:
                assert np.all(item == number + at)
                at += 1
                self._count()
                if at == until:
                    break
            else:
                assert at == ITEMS
        except LookupError:
            self.ends["stream of a restarted actor"] += 1
        if self._random.randrange(2):
            await stream.aclose()

    async def _cancelled(self, actor: "cb.ResidentRef[Worker]", number: int) -> None:
        reply: Any
        if self._random.randrange(2):
            reply = actor.call(Worker.double, number)
        else:
            reply = actor.call(Worker.larger, np.full(self._random.choice(SIZES), number, np.float32))
        if self._random.randrange(2):
            await asyncio.sleep(0)
        reply.cancel()
        try:
            await reply
        except cb.Withdrawn:
            self.ends["withdrawn"] += 1

    async def _restart(self, actor: "cb.ResidentRef[Worker]", number: int) -> None:
        try:
            await actor.call(Worker.fail)
        except LookupError:
            return
        raise AssertionError(f"call {number} was to fail")

    def grown(self) -> tuple[int, int]:
        """Bytes by which the application and the host have grown since the first tenth."""
        first, rest = self.samples[0], self.samples[1:]
        return max(s.application for s in rest) - first.application, max(s.host for s in rest) - first.host


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def soak(calls: int, restarts: int, seed: int, told: Any = lambda sample: None) -> ResidentSoak:
    """All of it, on a CPU; see what is left when it is over."""
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        run = ResidentSoak(dev, calls, restarts, seed, told)
        await run.run()
        assert dev.health().restarts == 0
        for actor in run._actors:
            await actor.stop_and_wait()
        async with asyncio.timeout(BOUND):
            while (await dev.stats()).staged_bytes:
                pass
    return run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("soak residents", description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000, help="how many (1,000,000)")
    parser.add_argument("--restarts", type=int, default=1_000, help="how many of them restart their actor (1,000)")
    parser.add_argument("--quick", action="store_true", help="20,000 calls and 20 restarts")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    if given.quick:
        given.calls, given.restarts = 20_000, 20
    logging.getLogger("callboard").setLevel(logging.CRITICAL)  # the failures are ours
    began = time.monotonic()
    run = asyncio.run(soak(given.calls, given.restarts, given.seed, lambda sample: print(sample, flush=True)))
    seconds = time.monotonic() - began
    application, host = (nbytes / 2**20 for nbytes in run.grown())
    print(f"{run.calls:,} calls in {seconds:.0f} s, {run.calls / seconds:,.0f} per second: {dict(run.ends)}")
    print(f"grown since the first tenth: application {application:.1f} MiB, host {host:.1f}, at most {GROWTH >> 20}")
    return 0 if max(run.grown()) <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
