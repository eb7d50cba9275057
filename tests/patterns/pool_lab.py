"""Shared by the tests of the replica pool: replicas that the test answers, and a simulation of the routing."""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from batching_lab import turns

from callboard.actors import ManualClock
from callboard.patterns.replicas.ejection import Ejection, Outcome
from callboard.patterns.replicas.member import Member
from callboard.patterns.replicas.picking import PeakEwmaChoices, Picker
from callboard.patterns.replicas.router import Router
from callboard.patterns.replicas.server import ModelReplicaPool


class Copy:
    """A replica that answers when the test says so; ``items`` are those that it was given, in order."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.gates: list[tuple[Any, asyncio.Future[Any]]] = []
        self.cancelled = 0

    async def __call__(self, item: Any) -> Any:
        self.items.append(item)
        gate = asyncio.get_running_loop().create_future()
        self.gates.append((item, gate))
        try:
            return await gate
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.gates.remove((item, gate))

    @property
    def running(self) -> list[Any]:
        """The items without an answer."""
        return [item for item, gate in self.gates if not gate.done()]

    async def release(self, outcome: Any = None) -> None:
        """Answer the oldest item: with ``<item>``, with this value, or with this exception."""
        item, gate = next(pair for pair in self.gates if not pair[1].done())
        if isinstance(outcome, BaseException):
            gate.set_exception(outcome)
        else:
            gate.set_result(f"<{item}>" if outcome is None else outcome)
        await turns()


@contextmanager
def no_broken_callback(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """In the block no callback on the loop raises: a pool does its work in such, and asyncio only logs it."""
    found: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: found.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)
    assert [each for each in found if "never retrieved" not in each["message"]] == []


@asynccontextmanager
async def pool_lab(replicas: Any, clock: ManualClock, **options: Any) -> AsyncIterator[ModelReplicaPool[Any, Any]]:
    """A pool in virtual time; stopped at the end, whatever the test left."""
    pool: ModelReplicaPool[Any, Any] = ModelReplicaPool(replicas, clock=clock, **options)
    with no_broken_callback(asyncio.get_running_loop()):
        await pool.start()
        try:
            yield pool
        finally:
            await pool.stop()


def simulate(
    speeds: Sequence[float],
    load: float,
    *,
    picker: Picker | None = None,
    ejection: Ejection | None = Ejection(),  # noqa: B008 -- frozen
    max_ongoing: int = 4,
    requests: int = 4000,
    draw: Callable[[random.Random], float] = lambda rng: rng.uniform(0.005, 0.015),
) -> tuple[list[float], Router]:
    """Poisson arrivals at ``load`` times what the replicas can do together; their latencies, in virtual seconds.

    A request takes what ``draw`` gives (10 ms in the mean), times the replica's entry of ``speeds``; each replica runs
    ``max_ongoing`` at once.
    """
    rng = random.Random(1)
    router = Router(picker or PeakEwmaChoices(None, rng.random), ejection)
    for number in range(len(speeds)):
        router.add(Member(f"replica-{number}", number, max_ongoing))
    rate = load * sum(max_ongoing / (0.010 * speed) for speed in speeds)
    now, arrived = 0.0, 0
    due = rng.expovariate(rate)
    waiting: deque[float] = deque()
    running: list[tuple[float, int, float, float, Member]] = []
    latencies: list[float] = []
    while len(latencies) < requests:
        if running and running[0][0] <= due:
            now, _, begun, came, member = heapq.heappop(running)
            router.end(member, Outcome.OK, now - begun, now)
            latencies.append(now - came)
        else:
            now = due
            waiting.append(now)
            due += rng.expovariate(rate)
        while waiting and (member_ := router.pick(None, None, frozenset(), now)) is not None:
            router.begin(member_)
            arrived += 1
            ends = now + draw(rng) * speeds[member_.number]
            heapq.heappush(running, (ends, arrived, now, waiting.popleft(), member_))
    return latencies, router


def p99(latencies: Sequence[float]) -> float:
    return sorted(latencies)[len(latencies) * 99 // 100]
