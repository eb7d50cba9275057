"""The completion strategy of a context: polling beside the application's threads, and checks of a user's strategy."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from callboard.actors.errors import printable
from callboard.core.errors import ContextPoisoned, Unrecoverable
from callboard.device.host.context.timelines import Timeline
from callboard.device.strategies.carried import Carried, unpacked
from callboard.device.strategies.completion import (
    WATCHDOG,
    CompletionStrategy,
    HostFnCompletion,
    PolledCompletion,
    StreamWork,
    SyncCompletion,
)

__all__ = ["CheckedCompletion", "SharedPolledCompletion", "completion_for"]

log = logging.getLogger(__name__)

LONGEST = 3600.0
"""Seconds of a wait without ops in flight; more overflows the clocks of the system at some number."""

OURS = HostFnCompletion, PolledCompletion, SyncCompletion


class SharedPolledCompletion(PolledCompletion):
    """Polling for a host that shares the GIL with the application.

    A loop that polls in Python would keep the GIL from the code that uses the results. So the thread waits for short
    work inside the driver, which spins without the GIL. After a wait longer than ``SHORT``, it sleeps between polls for
    a while, so that a long op does not delay the admission of others.

    Args:
        spin, clock: See :class:`PolledCompletion`.
        looks: Never wait in the driver, so that an op that does not end can be detected.
    """

    inline = True

    SHORT = 200e-6
    """Seconds. Also the longest that a message waits for admission, except after the first long op."""
    PATIENCE = 64
    """Iterations without waiting in the driver after a long wait."""
    NAP = 20e-6
    """Seconds between polls in these iterations."""

    def __init__(self, spin: float, clock: Callable[[], float] = time.monotonic, *, looks: bool = False) -> None:
        super().__init__(spin, clock)
        self._rounds = 0
        self._looks = looks

    def wait(self, flying: bool) -> float | None:
        return self.NAP if flying else None

    def watch(self, timelines: Sequence[StreamWork]) -> None:
        if self._looks:
            return
        if self._rounds:
            self._rounds -= 1
            return
        all_timelines = cast(Sequence[Timeline], timelines)
        busy = [timeline for timeline in all_timelines if timeline.completed < timeline.issued]
        if len(busy) == 1 and len(busy[0].ops) <= 2:
            began = self._clock()
            busy[0].finish()
            if self._clock() - began > self.SHORT:
                self._rounds = self.PATIENCE


class CheckedCompletion(CompletionStrategy):
    """A user's strategy: what it raises or returns wrongly ends the device, and no wait for work is long."""

    def __init__(self, inner: CompletionStrategy) -> None:
        self._inner = inner
        self._name = type(inner).__qualname__

    def open(self, wake: Callable[[], None], enter: Callable[[], None]) -> None:
        self._call("open", self._inner.open, wake, enter)

    def wait(self, flying: bool) -> float | None:
        found = self._call("wait", self._inner.wait, flying)
        if found is None:
            return WATCHDOG if flying else None
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < math.inf:
            raise Unrecoverable(
                f"{self._name}.wait returned {found!r:.200}; return a finite number of seconds, not negative, or None"
            )
        return min(found, WATCHDOG if flying else LONGEST)

    def watch(self, timelines: Sequence[StreamWork]) -> None:
        self._call("watch", self._inner.watch, timelines)

    def came(self) -> None:
        self._call("came", self._inner.came)

    def close(self) -> None:
        try:
            self._inner.close()
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # of a user's strategy; the context closes all the same
            log.error("%s.close failed: %s: %s", self._name, type(e).__name__, printable(e))

    def _call(self, method: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except (ContextPoisoned, Unrecoverable, KeyboardInterrupt):  # of a stream that it has used
            raise
        except BaseException as e:  # sys.exit, a cancellation, ...: it would fail again in the next context
            raise Unrecoverable(f"{self._name}.{method} failed: {type(e).__name__}: {printable(e)}") from e


def completion_for(
    given: str | Carried, spin: float, wake: Callable[[], None], enter: Callable[[], None], *, shared: bool, looks: bool
) -> CompletionStrategy:
    """The strategy of this setting, open.

    Args:
        given: ``"polled"``, ``"host_fn"``, ``"sync"``, or a strategy.
        spin: Seconds that polling continues after the last op.
        wake: Wakes the admitting thread.
        enter: Makes the context current on a thread of the strategy.
        shared: The host shares the GIL with the application's threads.
        looks: The admitting thread must not block on an op that does not end.

    Raises:
        Unrecoverable: The strategy cannot be made here, or fails.
    """
    strategy = unpacked("completion", given) if isinstance(given, Carried) else _of_name(given, spin)
    if shared and type(strategy) is PolledCompletion:
        strategy = SharedPolledCompletion(strategy.spin, looks=looks)
    elif type(strategy) not in OURS:
        strategy = CheckedCompletion(strategy)
    strategy.open(wake, enter)
    return strategy


def _of_name(name: str, spin: float) -> CompletionStrategy:
    return {"host_fn": HostFnCompletion, "sync": SyncCompletion}.get(name, lambda: PolledCompletion(spin))()
