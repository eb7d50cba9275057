"""Cost of a replica pool, and tail latency if one of four replicas is ten times slower.

    python benchmarks/replicas.py --json replicas.json
    python benchmarks/replicas.py --quick

The replicas are timers, so that nothing but the routing is measured: a request takes 5 to 15 ms, and ten times that on
the slow replica; each runs four at once. Requests are a Poisson process at 70 % of what the replicas of that pool can
do together, in virtual time: a neighbour on the machine changes nothing. The rival binds each request to the next
replica when it arrives; the slow one then gets more than it can do. The routing alone is measured in CPU time, without
a loop: pick a replica, begin on it, end. No device is used.
"""

import argparse
import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from _harness import Bar, arguments, interleave, ratios, spread, table, tell_bars
from _record import Record

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.replicas.ejection import Outcome
from callboard.patterns.replicas.member import Member
from callboard.patterns.replicas.picking import picker_of
from callboard.patterns.replicas.router import Router

SECONDS = 0.010
ONGOING = 4
LOAD = 0.7
POLICIES = ("round_robin", "least_outstanding", "p2c", "consistent_hash")
SIZES = (4, 16, 64)
SESSIONS = 1000
"""Keys, for consistent hashing."""
STEP = 0.0005
"""Seconds by which the virtual time moves."""
TURNS = 8
"""Iterations of the loop in each step: until everything that became due has been done."""
Replica = Callable[[int], Awaitable[int]]


class InTurn:
    """The usual rival: each request goes to the next replica at once, and waits there."""

    def __init__(self, replicas: list[Replica]) -> None:
        self._turn = itertools.cycle([(replica, asyncio.Semaphore(ONGOING)) for replica in replicas])

    async def __aenter__(self) -> "InTurn":
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    async def submit(self, item: int) -> int:
        """Run it on the next replica."""
        replica, room = next(self._turn)
        async with room:
            return await replica(item)


def pool_of(replicas: list[Replica], clock: ManualClock) -> Any:
    """Ours, with its defaults."""
    return cb.ModelReplicaPool(replicas, max_ongoing=ONGOING, max_queue=100_000, clock=clock)


def in_turn(replicas: list[Replica], clock: ManualClock) -> Any:
    """The rival, which needs no clock."""
    return InTurn(replicas)


Make = Callable[[list[Replica], ManualClock], Any]
SUBJECTS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "pool, all healthy": (pool_of, (1, 1, 1, 1)),
    "pool, one slow": (pool_of, (1, 1, 1, 10)),
    "in turn, all healthy": (in_turn, (1, 1, 1, 1)),
    "in turn, one slow": (in_turn, (1, 1, 1, 10)),
}


def replica_of(speed: float, rng: random.Random, clock: ManualClock) -> Replica:
    """A replica that takes so many times as long."""

    async def run(item: int) -> int:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        clock.call_later(rng.uniform(0.5, 1.5) * SECONDS * speed, over.set_result, None)
        await over
        return item

    return run


async def tail(make: Make, speeds: tuple[int, ...], seconds: float, seed: int) -> float:
    """99th percentile of the latency, in seconds of virtual time."""
    rate = LOAD * sum(ONGOING / (SECONDS * speed) for speed in speeds)
    dues = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, int(rate * seconds))).tolist()
    clock = ManualClock()
    latencies: list[float] = []
    replicas = [replica_of(speed, random.Random(seed + n), clock) for n, speed in enumerate(speeds)]
    async with make(replicas, clock) as server, asyncio.TaskGroup() as group:

        async def one(n: int) -> None:
            await server.submit(n)
            latencies.append(clock.time() - dues[n])

        begun = 0
        while len(latencies) < len(dues):
            while begun < len(dues) and dues[begun] <= clock.time():
                group.create_task(one(begun))
                begun += 1
            for _ in range(TURNS):
                await asyncio.sleep(0)
            clock.advance(STEP)
    return float(np.percentile(latencies, 99))


def routing(policy: str, replicas: int, count: int) -> float:
    """CPU seconds of one choice: pick a replica, begin on it, end on the one that began first."""
    router = Router(picker_of(policy, None, 1.25), cb.Ejection())
    for n in range(replicas):
        router.add(Member(f"replica-{n}", n, ONGOING))
    running = []
    none: frozenset[Member] = frozenset()
    for n in range(replicas * 2):  # half of the slots are taken
        member = router.pick(None, n, none, 0.0)
        assert member is not None
        router.begin(member)
        running.append(member)
    slot = itertools.cycle(range(len(running)))
    begun = time.process_time()
    for n in range(count):
        now = n * 1e-4
        member = router.pick(None, n % SESSIONS, none, now)
        assert member is not None
        router.begin(member)
        place = next(slot)
        router.end(running[place], Outcome.OK, SECONDS, now)
        running[place] = member
    return (time.process_time() - begun) / count


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load (default 5)")


def main() -> None:
    """Measure and print."""
    given: Any = arguments(__doc__, rounds=5, extend=_extend)
    record = Record("replicas", given)
    bars: list[Bar] = []
    count = 2_000 if given.quick else 50_000
    for size in SIZES:
        title = f"routing among {size}"
        found = interleave({p: lambda p=p, size=size: routing(p, size, count) for p in POLICIES}, given.rounds, title)
        record[title] = table(title, found, micros, "round_robin")
        if size == SIZES[0]:
            bars += [Bar(f"{title}, {p}, us", spread(found[p])["median"] * 1e6, 3.0, at_least=False) for p in POLICIES]
    seconds = min(given.seconds, 0.5) if given.quick else given.seconds
    seeds = dict.fromkeys(SUBJECTS, 0)

    def measured(name: str) -> float:
        seeds[name] += 1  # other arrivals in each round, the same for all
        return asyncio.run(tail(*SUBJECTS[name], seconds, seeds[name]))

    subjects = {name: lambda name=name: measured(name) for name in SUBJECTS}
    found = interleave(subjects, given.rounds, "p99")
    record["p99"] = table("p99 at 70 %", found, millis, "pool, all healthy")
    for subject, limit, at_least in (("pool, one slow", 1.3, False), ("in turn, one slow", 5.0, True)):
        ratio = ratios(found, subject, "pool, all healthy")
        value = None if given.quick or ratio is None else ratio["median"]  # too few requests to tell
        bars.append(Bar(f"p99, {subject}, to all healthy", value, limit, at_least))
    record.done(tell_bars(bars))


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}"


def millis(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


if __name__ == "__main__":
    main()
