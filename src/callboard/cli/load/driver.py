"""Timing of requests: a closed loop of clients, or an open one at random times. No HTTP here."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from callboard.actors.clock import Clock
from callboard.cli.load.streams import Stream

__all__ = ["Sample", "Samples", "drive_closed", "drive_open"]

Send = Callable[[], Awaitable[tuple[str, Stream | None] | str]]
"""Sends a request and returns its outcome: ``"200"``, another status, or a word such as ``"timeout"``; with the
parts of a streamed response."""


@dataclass(frozen=True)
class Sample:
    """A request.

    Attributes:
        due: When it was to be sent, in seconds of the clock.
        seconds: Seconds from ``due`` to the end. This includes the wait of a request that was sent late because earlier
            ones took long; otherwise a stalled server would slow down its own measurement (coordinated omission).
        end: Result: the status, or the reason why there is none.
        stream: Parts of a streamed response; None for others.
    """

    due: float
    seconds: float
    end: str
    stream: Stream | None = None


@dataclass
class Samples:
    """Recorded samples: requests that were due after ``since`` and have ended.

    Attributes:
        since: Requests that were due earlier were warm-up.
        kept: The others.
        warm: Number of warm-up requests.
        errors: What the first request that ended so was told, by outcome.
        until: When the last one ended.
    """

    since: float
    kept: list[Sample] = field(default_factory=list)
    warm: int = 0
    until: float = 0.0
    errors: dict[str, str] = field(default_factory=dict)

    def add(self, due: float, now: float, outcome: tuple[str, Stream | None] | str) -> None:
        """Note a request."""
        end, stream = (outcome, None) if isinstance(outcome, str) else outcome
        if due < self.since:
            self.warm += 1
        else:
            self.kept.append(Sample(due, now - due, end, stream))
            self.until = max(self.until, now)


async def drive_closed(send: Send, samples: Samples, clock: Clock, *, clients: int, end: float) -> None:
    """Run ``clients`` clients, each of which sends its next request when the previous one has ended.

    Args:
        send: Sends one request.
        samples: Filled with the samples, even if this is cancelled.
        clock: Tells the time.
        clients: The number of clients.
        end: Time after which no request is sent; requests already sent are awaited.
    """

    async def client() -> None:
        while (due := clock.time()) < end:
            how = await send()
            samples.add(due, clock.time(), how)

    await _all([asyncio.ensure_future(client()) for _ in range(clients)])


async def drive_open(send: Send, samples: Samples, clock: Clock, *, rate: float, end: float, seed: int) -> None:
    """Requests at random times, however long they take: a Poisson process.

    Args:
        send: Sends one request.
        samples: Filled with the samples, even if this is cancelled.
        clock: Tells the time.
        rate: Requests per second on average.
        end: Time after which no request is sent; requests already sent are awaited.
        seed: Seed of the random times.
    """
    chance = random.Random(seed)
    open_requests: set[asyncio.Future[None]] = set()

    async def one(due: float) -> None:
        how = await send()
        samples.add(due, clock.time(), how)

    try:
        due = clock.time()
        while (due := due + chance.expovariate(rate)) < end:
            if (left := due - clock.time()) > 0:
                await _sleep(clock, left)
            task = asyncio.ensure_future(one(due))
            open_requests.add(task)
            task.add_done_callback(open_requests.discard)
    except BaseException:  # cancelled
        for request in open_requests:
            request.cancel()
        raise
    finally:
        await _all(list(open_requests))


async def _sleep(clock: Clock, seconds: float) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()


async def _all(tasks: "list[asyncio.Future[None]]") -> None:
    """Wait for all of them; if this is cancelled or one fails, cancel the rest."""
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
