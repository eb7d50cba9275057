"""Cost of fair sharing: the policy alone with many tenants, and ``FairShareScheduler`` against a plain queue.

    python benchmarks/fair_share.py --json fair_share.json
    python benchmarks/fair_share.py --quick

The policy: seconds of this thread's CPU to add, take and finish one request, while each tenant has one waiting; the
least of many runs of 1,000 requests, since what others do on the machine only adds. A request: likewise, from 64
clients of 8 tenants, each of which submits its next request when it has its answer, to a function that does nothing;
the queue is an ``asyncio.Queue`` with one worker per slot. The throughput that follows is that of a function of 1 ms.
Shares: what a tenant of weight 3 gets beside one of weight 1, in seconds of their calls, which take 4 ms and 1 ms.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from _harness import Bar, arguments, interleave, ratios, spread, table, tell_bars
from _record import Record

import callboard as cb
from callboard.patterns.fairshare.policy import FairPolicy
from callboard.patterns.requests.entries import Entry

CLIENTS, TENANTS, SLOTS = 64, 8, 1
PER_CLIENT = 20
CALL = 1e-3


def policy(tenants: int, grouped: bool = False) -> Callable[[], float]:
    """CPU seconds per request."""

    def run(requests: int = 1000, runs: int = 20) -> float:
        fair = FairPolicy({}, cb.Tenant(), 10**9, cb.FairOverflow.REJECT)
        names = [(n % 10, n) if grouped else (n,) for n in range(tenants)]
        entries = (Entry(n, None, 0.0, None, 0, 1 + n % 7) for n in range(tenants + requests * runs))
        for name in names:
            fair.add(next(entries), name, 0.0)
        least = float("inf")
        for _ in range(runs):
            batch = [(next(entries), names[n % tenants]) for n in range(requests)]
            start = time.thread_time()
            for entry, name in batch:
                fair.add(entry, name, 0.0)
                taken = fair.take(0.0)
                assert taken is not None
                fair.finish(taken, taken.cost, 0.0)
            least = min(least, (time.thread_time() - start) / requests)
        return least

    return run


class Fifo:
    """First come, first served."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._queue: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()

    async def submit(self, item: Any, *, tenant: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((item, future))
        return await future

    async def _work(self) -> None:
        while True:
            item, future = await self._queue.get()
            future.set_result(await self._function(item))

    async def __aenter__(self) -> "Fifo":
        self._workers = [asyncio.create_task(self._work()) for _ in range(SLOTS)]
        return self

    async def __aexit__(self, *_: Any) -> None:
        for worker in self._workers:
            worker.cancel()


async def request(make: Callable[[Any], Any], runs: int) -> float:
    """CPU seconds per request to a function that does nothing."""

    async def model(item: Any) -> Any:
        await asyncio.sleep(0)
        return item

    async with make(model) as server:
        least = float("inf")
        for _ in range(runs):

            async def client(n: int) -> None:
                for _ in range(PER_CLIENT):
                    await server.submit(n, tenant=n % TENANTS)

            start = time.thread_time()
            await asyncio.gather(*(client(n) for n in range(CLIENTS)))
            least = min(least, (time.thread_time() - start) / CLIENTS / PER_CLIENT)
        return least


async def share(seconds: float) -> float:
    """Of the calls' time, by a tenant of weight 3 with calls of 4 ms, beside one of weight 1 and 1 ms."""
    takes = {"light": 1e-3, "heavy": 4e-3}

    def model(tenant: str) -> None:
        time.sleep(takes[tenant])

    weights = {"light": 1, "heavy": 3}
    async with cb.FairShareScheduler[str, None](
        model, tenants=weights, charge="seconds", cost=takes.__getitem__
    ) as scheduler:
        until = time.perf_counter() + seconds

        async def client(tenant: str) -> None:
            while time.perf_counter() < until:
                await scheduler.submit(tenant, tenant=tenant)

        await asyncio.gather(*(client(tenant) for tenant in takes for _ in range(4)))
        return scheduler.stats().tenants["heavy"].share


def main() -> None:
    given = arguments(__doc__, rounds=5)
    seconds = 0.3 if given.quick else 2.0
    record = Record("fair_share", given)
    sizes: dict[str, Callable[[], float]] = {f"{n} tenants": policy(n) for n in (1, 1000, 10_000)}
    sizes["1000 tenants, 10 groups"] = policy(1000, grouped=True)
    cost = interleave(sizes, given.rounds, "policy")
    record["policy, per request"] = table("policy, per request", cost, micros, "1 tenants")
    servers: dict[str, Callable[[Any], Any]] = {
        "callboard": lambda model: cb.FairShareScheduler[Any, Any](model, max_in_flight=SLOTS),
        "queue": Fifo,
    }
    runs = 10 if given.quick else 40
    subjects = {name: lambda make=make: asyncio.run(request(make, runs)) for name, make in servers.items()}
    requests = interleave(subjects, given.rounds, "request")
    record["request"] = table("request, CPU", requests, micros, "queue")
    rates = {name: [1 / (CALL + each) for each in values] for name, values in requests.items()}
    record["throughput"] = table("throughput of calls of 1 ms", rates, lambda rate: f"{rate:.0f} /s", "queue")
    shares = interleave({"weight 3": lambda: asyncio.run(share(seconds))}, given.rounds, "share")
    record["share of time"] = table("share of time, of weight 3 beside 1", shares, lambda x: f"{x:.1%}", "weight 3")
    off = abs(spread(shares["weight 3"])["median"] - 0.75)
    ratio = ratios(rates, "callboard", "queue")
    record.done(
        tell_bars(
            [
                Bar("policy at 1000 tenants, us", spread(cost["1000 tenants"])["median"] * 1e6, 5.0, at_least=False),
                Bar("throughput, to queue", ratio and ratio["median"], 0.98, at_least=True),
                Bar("share of weight 3, off by", off, 0.01, at_least=False),
            ]
        )
    )


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"


if __name__ == "__main__":
    main()
