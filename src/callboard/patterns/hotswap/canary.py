"""``Canary``: a share of the requests goes to a new version first. ``Trial``: what its requests have shown. No I/O."""

import random
from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["Canary", "Trial"]


@dataclass(frozen=True)
class Canary:
    """How a new version is tried on requests before it is activated.

    Attributes:
        share: Share of the requests that it gets, above 0 and at most 1.
        requests: Calls that end before the decision.
        max_error_rate: Share of them that may raise. Once more have, the version is withdrawn at once.
        seed: Of the draws. Requests of equal keys (``key`` of the server) all go to it, or none of them does.
    """

    share: float = 0.05
    requests: int = 100
    max_error_rate: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, but is {self.share}")
        if self.requests < 1:
            raise ValueError(f"requests must be at least 1, but is {self.requests}")
        if not 0 <= self.max_error_rate < 1:
            raise ValueError(f"max_error_rate must be at least 0 and below 1, but is {self.max_error_rate}")


class Trial:
    """Draws the requests of a canary and counts how they end."""

    def __init__(self, canary: Canary) -> None:
        self.canary = canary
        self.ended = self.failed = 0
        self._random = random.Random(canary.seed)

    def draws(self, key: Hashable) -> bool:
        """Whether a request goes to the canary: one without a key by chance, one with a key always alike."""
        chance = self._random if key is None else random.Random(f"{self.canary.seed} {key!r}")
        return chance.random() < self.canary.share

    def add(self, *, failed: bool) -> None:
        """A call has ended."""
        self.ended += 1
        self.failed += failed

    @property
    def passed(self) -> bool | None:
        """Whether the version is activated; None: it is not known yet."""
        if self.failed > self.canary.max_error_rate * self.canary.requests:
            return False
        return True if self.ended >= self.canary.requests else None
