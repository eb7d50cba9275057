"""``Scaling``: applies the decisions of ``Autoscale`` while a pool runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from callboard.actors.clock import Cancellable, Clock
from callboard.patterns.replicas.autoscale import Autoscale, Scaler

__all__ = ["Scaling"]

_log = logging.getLogger(__name__)


class Scaling:
    """Decides every interval, and scales; one change at a time.

    Args:
        name: Name of the pool, for the log.
        settings: When.
        capacity: Requests that a replica runs at once.
        clock: Tells the time.
        scale: Scales the pool to a number of replicas.
        look: Returns the number of replicas, and the submission time of the request that waits longest, or None.

    Attributes:
        scaled: Changes so far.
    """

    def __init__(
        self,
        name: str,
        settings: Autoscale,
        capacity: int,
        clock: Clock,
        scale: Callable[[int], Awaitable[None]],
        look: Callable[[], tuple[int, float | None]],
    ) -> None:
        self.scaled = 0
        self._name = name
        self._capacity = capacity
        self._clock = clock
        self._scale = scale
        self._look = look
        self._scaler = Scaler(settings, clock.time())
        self._timer: Cancellable | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Decide from now on."""
        self._timer = self._clock.call_later(self._scaler.settings.interval, self._decide)

    def began(self, waited: float) -> None:
        """A request has begun to run, after ``waited`` seconds in the queue."""
        self._scaler.began(waited)

    def running(self, count: int, now: float) -> None:
        """From now on ``count`` requests run."""
        self._scaler.running(count, now)

    def _decide(self) -> None:
        now = self._clock.time()
        count, oldest = self._look()
        wanted = self._scaler.decide(count, self._capacity, 0.0 if oldest is None else now - oldest, now)
        if wanted != count and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._change(wanted))
        self.start()

    async def _change(self, n: int) -> None:
        try:
            await self._scale(n)
            self.scaled += 1
        except Exception:  # of the user's `make`: it is tried again
            _log.exception("%s: scaling to %d replicas", self._name, n)
        finally:
            self._task = None

    def end(self) -> None:
        """Stop deciding; changes in progress continue."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
