"""``Canary``: settings of the trial of a new version on a share of the requests.

``Trial``: the results so far. No I/O.
"""

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

from callboard.actors.errors import MailboxFull
from callboard.patterns.contract.hooks import truth
from callboard.patterns.hotswap.golden import finite, mismatch
from callboard.patterns.requests.errors import DeadlineExceeded, ItemTooLarge, SlowReader

__all__ = ["TRIAL_TIMEOUT", "Canary", "Trial", "is_failure"]

TRIAL_TIMEOUT = 600.0
"""Seconds of a trial at most by default, as many as Kubernetes gives a deployment to make progress: two versions take
up memory meanwhile, and a version that hangs keeps its share of the requests waiting."""

REFUSED = (MailboxFull, ItemTooLarge, SlowReader)
"""Errors of requests that were refused before they ran, or whose client did not read."""


def is_failure(error: BaseException) -> bool:
    """True if a request's error counts against the version that it was for.

    All do but those of a request that did not reach the version (a full queue, a deadline that passed in a queue), or
    that its own client ended. A request that is refused because it has lost contexts has reached it.
    """
    if isinstance(error, DeadlineExceeded):
        return error.stage == "run"
    return isinstance(error, Exception) and not isinstance(error, REFUSED)


def _alike(active: Any, canary: Any) -> bool:
    return mismatch(canary, active) is None


@dataclass(frozen=True)
class Canary:
    """The trial of a new version on live requests before it is activated.

    A call fails the trial if it raises, loses its context (also where its request is then refused as
    :class:`Quarantined`), or runs beyond the deadline of its request; if ``judge`` refuses its response or, with
    ``shadow``, if ``agree`` does. Requests that do not reach the version (its queue is full, their deadline passes
    there) and requests that their callers cancel do not count. An exception of ``judge`` or ``agree``, or another value
    than True or False, withdraws the version at once.

    Attributes:
        share: Share of the requests that it gets, above 0 and at most 1.
        requests: Calls that end before the decision.
        max_error_rate: Share of them that may fail. Once more have, the version is withdrawn at once.
        max_slowdown: Mean seconds of its calls at most, relative to those of the active version in the meantime, or
            before if that had none. Decided at the end. None: it may take any time.
        judge: Decides if a response is good: a function, or ``"finite"``, which refuses NaN and infinity.
        shadow: All requests run on the active version. The share runs on the new one as well, after the active one has
            answered; its answers are only compared.
        agree: ``agree(active, new)`` compares the two responses of a shadow call; by default their structure, shapes
            and dtypes, as for golden items.
        timeout: Seconds of the trial at most: a version that is undecided then is withdrawn. None: no limit.
        seed: Seed of the random choice. Requests of equal keys (``key`` of the server) all go to the canary, or none of
            them does.
    """

    share: float = 0.05
    requests: int = 100
    max_error_rate: float = 0.0
    max_slowdown: float | None = None
    judge: Callable[[Any], bool] | Literal["finite"] | None = None
    shadow: bool = False
    agree: Callable[[Any, Any], bool] = _alike
    timeout: float | None = TRIAL_TIMEOUT
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, but is {self.share}")
        if self.requests < 1:
            raise ValueError(f"requests must be at least 1, but is {self.requests}")
        if not 0 <= self.max_error_rate < 1:
            raise ValueError(f"max_error_rate must be at least 0 and below 1, but is {self.max_error_rate}")
        if self.max_slowdown is not None and not self.max_slowdown > 0:
            raise ValueError(f"max_slowdown must be positive, but is {self.max_slowdown}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout must be positive seconds, or None for no limit, but is {self.timeout}")
        if not (self.judge is None or self.judge == "finite" or callable(self.judge)):
            raise ValueError(f'judge must be a function, "finite" or None, but is {self.judge!r}')

    def good(self, response: Any) -> bool:
        """True if ``judge`` accepts a response.

        Raises:
            TypeError: ``judge`` returned something else.
            Exception: Raised by ``judge``.
        """
        if self.judge is None:
            return True
        return finite(response) if self.judge == "finite" else truth("judge", self.judge(response))

    def agrees(self, active: Any, new: Any) -> bool:
        """True if ``agree`` accepts two responses; raises as :meth:`good`."""
        return truth("agree", self.agree(active, new))


class Trial:
    """Draws the requests of a canary and counts how they end.

    Args:
        canary: Settings of the canary.
        before: Mean seconds of a call of the active version before; None: there was none.
    """

    def __init__(self, canary: Canary, before: float | None = None) -> None:
        self.canary = canary
        self.ended = self.failed = 0
        self.error: Exception | None = None  # of a hook that cannot judge
        self._seconds = self._baseline = 0.0
        self._baselines = 0
        self._before = before
        self._random = random.Random(canary.seed)

    def draws(self, key: Hashable) -> bool:
        """True if a request goes to the canary: at random without a key, consistently with one."""
        chance = self._random if key is None else random.Random(f"{self.canary.seed} {key!r}")
        return chance.random() < self.canary.share

    def add(self, *, failed: bool, seconds: float = 0.0, error: Exception | None = None) -> None:
        """A call has ended; with the error of a hook that was to judge it, the trial has failed."""
        self.error = self.error or error
        self.ended += 1
        self.failed += failed
        self._seconds += seconds

    def add_baseline(self, seconds: float) -> None:
        """A call of the active version has ended."""
        self._baselines += 1
        self._baseline += seconds

    @property
    def slowdown(self) -> float | None:
        """Mean seconds of its calls to those of the active version; None while one of them is not known."""
        normal = self._baseline / self._baselines if self._baselines else self._before
        return self._seconds / self.ended / normal if self.ended and normal else None

    @property
    def passed(self) -> bool | None:
        """True if the version is activated, False if not; None while undecided."""
        if self.error is not None or self.failed > self.canary.max_error_rate * self.canary.requests:
            return False
        if self.ended < self.canary.requests:
            return None
        most, slowdown = self.canary.max_slowdown, self.slowdown
        return most is None or slowdown is None or slowdown <= most

    @property
    def why(self) -> str:
        """The reason why a version has not passed, in the time that it had."""
        if self.failed > self.canary.max_error_rate * self.canary.requests:
            return f"{self.failed} of {self.ended} requests failed"
        if self.ended < self.canary.requests:
            ends = f"{self.ended} of {self.canary.requests} requests have ended"
            cure = "give it more time (timeout), a larger share or fewer requests"
            return f"undecided after {self.canary.timeout:g} s: {ends}; {cure}"
        return (
            f"its requests took {self.slowdown:.3g} times as long, and at most {self.canary.max_slowdown:g} is allowed"
        )
