"""``python -m tests.faults.collective_soak``: a million collectives over four processes, which are killed meanwhile.

Two worlds share the devices, in different orders. Every collective has numbers of its own. It must end in time: with
the right numbers on every rank, or in the loss of a context or of the world; and the memory of the application must
stay flat.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

import callboard as cb
from callboard.core.dtype import DTYPES

__all__ = ["CollectiveSoak", "soak"]

RANKS = 4
BOUND = 120.0
"""Seconds within which everything must end, on a machine that does other things, too."""
AT_ONCE = 16
"""Collectives that a worker has in flight."""
GROWTH = 32 << 20
"""Bytes by which the application may grow after its first fifth."""
LARGE = 50_000
"""Elements of one array in a hundred: several chunks."""
KINDS = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"),
    *("send", "barrier", "factors", "group", "in place"),
)
LOST = (cb.ContextLost, cb.WorldLost)

Array = np.ndarray[Any, Any]


class Begun(NamedTuple):
    """A collective in flight.

    Attributes:
        reply: Of it.
        want: What each of its refs must hold; empty for a barrier.
    """

    reply: Any
    want: list[Array]


class CollectiveSoak:
    """Collectives over two worlds, and what became of them.

    Args:
        devices: With hosts that are processes, and no limit of restarts.
        worlds: Over them.
        collectives: How many at least; they go on until the last kill.
        kills: How often a host is killed.

    Attributes:
        ends: How many collectives ended how: by ``"right"``, or the class of the error; ``"refused"`` where the world
            was forming.
        resident_bytes: Of this process, after each twentieth of the collectives.
    """

    def __init__(
        self, devices: list[cb.Device], worlds: list[cb.World], collectives: int, kills: int, seed: int
    ) -> None:
        self.ends: Counter[str] = Counter()
        self.killed = 0
        self.resident_bytes: list[int] = []
        self._devices = devices
        self._worlds = worlds
        self._collectives = collectives
        self._kills = kills
        self._random = Random(seed)
        self._begun = 0
        self._due = asyncio.Event()
        self._due_at = 0
        self._sampled = 0

    @property
    def ended(self) -> int:
        """How many have ended."""
        return self.ends.total()

    async def run(self) -> None:
        """Call all of them.

        Raises:
            AssertionError: One ended otherwise than it should, or not at all.
        """
        workers = [self._work(world) for world in self._worlds for _ in range(2)]
        async with asyncio.TaskGroup() as group:
            killer = group.create_task(self._kill())
            for worker in [group.create_task(work) for work in workers]:
                await worker
            await killer

    # -- collectives ---------------------------------------------------------------------------------------------------

    async def _work(self, world: cb.World) -> None:
        while self._begun < self._collectives or self.killed < self._kills:  # hosts may be slower to come back
            begun: list[Begun] = []
            for _ in range(AT_ONCE):
                self._begun += 1
                try:
                    begun.append(self._call(world, self._begun))
                except LOST:
                    self._end("refused")
            try:
                async with asyncio.timeout(BOUND):
                    for one in begun:
                        self._end(await _ended(one))
                    await world.ready()
            except TimeoutError:
                left = [repr(one.reply) for one in begun if not one.reply.done()]
                raise AssertionError(f"not ended within {BOUND} s: {left}, {world!r}") from None

    def _end(self, how: str) -> None:
        self.ends[how] += 1
        if self.ended >= self._due_at:
            self._due.set()
        if self.ended * 20 >= self._collectives * (self._sampled + 1):
            self._sampled += 1
            self.resident_bytes.append(_resident_bytes())

    def _call(self, world: cb.World, number: int) -> Begun:
        """Call one, of a kind that is drawn; each has numbers of its own."""
        draw, n, devices = self._random, world.size, world.devices
        dtype = DTYPES[draw.choice(("f32", "f64", "i32", "i64"))].np
        rows = LARGE if draw.random() < 0.01 else draw.choice((1, 3, 70))
        numbers = [number % 9973 + r for r in range(n)]
        kind = draw.choice(KINDS)
        root = draw.randrange(n)

        def each(of: int) -> list[cb.GpuRef]:
            return [device.full(of, value, dtype) for device, value in zip(devices, numbers, strict=True)]

        def one(rank: int, of: int) -> cb.GpuRef:
            return devices[rank].full(of, numbers[rank], dtype)

        def full(value: float, of: int = rows) -> Array:
            return np.full(of, value, dtype)

        parts = np.concatenate([full(value) for value in numbers])
        total = sum(numbers)
        if kind == "all_reduce":
            op, value = draw.choice((("sum", total), ("min", numbers[0]), ("max", numbers[-1])))
            return Begun(world.all_reduce(each(rows), op), [full(value)] * n)  # type: ignore[arg-type]
        if kind == "in place":
            xs = each(rows)
            return Begun(world.all_reduce(xs, out=xs), [full(total)] * n)
        if kind == "factors":
            wanted = sum((r + 1) * value for r, value in enumerate(numbers))
            return Begun(world.all_reduce(each(rows), cb.PreMulSum([r + 1 for r in range(n)])), [full(wanted)] * n)
        if kind == "reduce":
            return Begun(world.reduce(each(rows), root=root), [full(total)])
        if kind == "broadcast":
            return Begun(world.broadcast(one(root, rows)), [full(numbers[root])] * n)
        if kind == "all_gather":
            return Begun(world.all_gather(each(rows)), [parts] * n)
        if kind == "gather":
            return Begun(world.gather(each(rows), root=root), [parts])
        if kind == "reduce_scatter":
            return Begun(world.reduce_scatter(each(n * rows)), [full(total)] * n)
        if kind == "all_to_all":
            return Begun(world.all_to_all(each(n * rows)), [parts] * n)
        if kind == "scatter":
            return Begun(world.scatter(one(root, n * rows)), [full(numbers[root])] * n)
        if kind == "send":
            return Begun(world.send(one(root, rows), to=(root + 1) % n), [full(numbers[root])])
        if kind == "barrier":
            return Begun(world.barrier(), [])
        with world.group() as group:
            group.send(one(root, rows), to=(root + 1) % n)
            sums = group.all_reduce(each(rows))
        return Begun(sums, [full(total)] * n)

    # -- kills ---------------------------------------------------------------------------------------------------------

    async def _kill(self) -> None:
        """Kill the host of a rank again and again, whatever it is doing."""
        every = self._collectives / (self._kills + 1)
        while self.killed < self._kills:
            self._due.clear()
            self._due_at = int(every * (self.killed + self._random.random()))
            await self._due.wait()
            async with asyncio.timeout(BOUND):
                victim = await self._random.choice(self._devices).ready()
            pid = victim.health().host_pid
            if pid is not None and pid != os.getpid():
                with suppress(ProcessLookupError):  # it has ended, which is not known yet
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1

    def grown(self) -> int:
        """Bytes by which this process has grown since a fifth of the collectives had ended."""
        first = self.resident_bytes[len(self.resident_bytes) // 5]
        return max(self.resident_bytes[-3:]) - first


async def _ended(one: Begun) -> str:
    """How a collective ended.

    Raises:
        AssertionError: With wrong numbers.
    """
    try:
        await one.reply
    except LOST as e:
        return type(e).__name__
    try:
        found = [await ref.get() for ref in one.reply.refs]
    except LOST:  # it was right, and a context is gone since
        return "right, and lost since"
    assert len(found) == len(one.want)
    for rank, (got, want) in enumerate(zip(found, one.want, strict=True)):
        assert got.tobytes() == want.tobytes(), f"{one.reply.kind}: result {rank} is {got[:4]}, not {want[:4]}"
    return "right"


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def soak(collectives: int, kills: int, seed: int) -> CollectiveSoak:
    """All of it; afterwards both worlds still work, and nothing is in flight."""
    os.environ["CALLBOARD_CPU_DEVICES"] = str(RANKS)
    how: dict[str, Any] = {"isolation": "process", "standby": "warm", "max_restarts": None}
    async with cb.System("soak") as system:
        devices = list(await asyncio.gather(*(system.device(f"cpu:{i}", **how) for i in range(RANKS))))
        async with cb.world(devices) as all_of_them, cb.world([devices[i] for i in (2, 0, 3)]) as three:
            run = CollectiveSoak(devices, [all_of_them, three], collectives, kills, seed)
            await run.run()
            for world in (all_of_them, three):
                await _still_works(world)
    return run


async def _still_works(world: cb.World) -> None:
    async with asyncio.timeout(BOUND):
        while True:
            try:
                await world.ready()
                xs = [device.full(3, 1.0) for device in world.devices]
                for ref in await world.all_reduce(xs):
                    np.testing.assert_array_equal(await ref.get(), np.full(3, float(world.size)))
                break
            except LOST:  # a kill that is noticed only now
                continue
    assert world.stats().in_flight == 0
    assert world.formation == world.stats().losses + 1


def main() -> int:
    parser = argparse.ArgumentParser(
        "collectives", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--collectives", type=int, default=1_000_000, help="how many at least (1,000,000)")
    parser.add_argument("--kills", type=int, default=1000, help="how many hosts are killed (1,000)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("callboard").setLevel(logging.CRITICAL)  # the losses are ours
    began = time.monotonic()
    run = asyncio.run(soak(given.collectives, given.kills, given.seed))
    sizes = " ".join(str(size >> 20) for size in run.resident_bytes)
    print(f"{run.ended:,} collectives, {run.killed} kills, {time.monotonic() - began:.0f} s: {dict(run.ends)}")
    print(f"resident memory: {sizes} MiB; grown by {run.grown() / 2**20:.1f} MiB, at most {GROWTH >> 20}")
    return 0 if run.grown() <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
