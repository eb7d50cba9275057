"""What may be set for a node: time-out, retries, cache."""

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from callboard.actors.errors import AccelError
from callboard.core.ref.handle import GpuRef

__all__ = ["CachePolicy", "NodeCache", "RetryPolicy", "checked_timeout", "retries_by_default"]

BUGS = (
    ValueError,
    TypeError,
    ArithmeticError,
    ImportError,
    LookupError,
    NameError,
    SyntaxError,
    RuntimeError,
    ReferenceError,
    StopIteration,
    StopAsyncIteration,
    OSError,
)


def retries_by_default(error: Exception) -> bool:
    """True for errors that may not occur again: lost connections and contexts, and those that are no bug's."""
    if isinstance(error, AccelError):
        return bool(error.retryable)
    return isinstance(error, ConnectionError) or not isinstance(error, BUGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Calls a node again when it fails.

    Attributes:
        initial_interval: Seconds before the second attempt.
        backoff_factor: Each pause is this much longer than the one before it.
        max_interval: Seconds of a pause at most.
        max_attempts: Calls at most, with the first one.
        jitter: Add up to one second at random to each pause, so that runs do not repeat their calls together.
        retry_on: The errors: a class, several, or a function of the error. The default repeats lost connections, errors
            of devices with ``retryable``, and others that do not look like a bug.
    """

    initial_interval: float = 0.5
    backoff_factor: float = 2.0
    max_interval: float = 128.0
    max_attempts: int = 3
    jitter: bool = True
    retry_on: type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool] = retries_by_default

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is {self.max_attempts}; it must be at least 1")
        for name in ("initial_interval", "max_interval"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value}; it must be a number of seconds from 0")
        if not self.backoff_factor >= 1:
            raise ValueError(f"backoff_factor is {self.backoff_factor}; it must be at least 1")

    def repeats(self, error: Exception, attempt: int) -> bool:
        """True if the call is to be made again after this many attempts."""
        if attempt >= self.max_attempts:
            return False
        on = self.retry_on
        if isinstance(on, type):
            return isinstance(error, on)
        if isinstance(on, Sequence):
            return isinstance(error, tuple(on))
        return bool(on(error))

    def pause(self, attempt: int) -> float:
        """Seconds to wait after this many attempts."""
        pause = min(self.max_interval, self.initial_interval * self.backoff_factor ** (attempt - 1))
        return pause + random.random() if self.jitter else pause


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """Keeps results of a node, for inputs that occur again.

    Attributes:
        key_func: Gives the key of the node's arguments; by default from their contents, which must be plain data and
            arrays.
        ttl: Seconds that a result is kept; None for no limit.
        max_entries: Results at most; the one that was not used for longest leaves.
    """

    key_func: Callable[..., Hashable] | None = None
    ttl: float | None = None
    max_entries: int = 1024

    def __post_init__(self) -> None:
        if self.ttl is not None and not self.ttl > 0:
            raise ValueError(f"ttl is {self.ttl}; it must be positive, or None for no limit")
        if self.max_entries < 1:
            raise ValueError(f"max_entries is {self.max_entries}; it must be at least 1")


@dataclass(slots=True)
class NodeCache:
    """The results of one node."""

    policy: CachePolicy
    key_of: Callable[..., Hashable]
    kept: "OrderedDict[Hashable, tuple[Any, float]]" = field(default_factory=OrderedDict)

    def find(self, key: Hashable, now: float) -> tuple[Any] | None:
        """The result in a tuple, if there is one that is neither too old nor of a lost context."""
        found = self.kept.get(key)
        if found is None:
            return None
        value, until = found
        if now >= until or (isinstance(value, GpuRef) and value.is_stale):
            del self.kept[key]
            return None
        self.kept.move_to_end(key)
        return (value,)

    def keep(self, key: Hashable, value: Any, now: float) -> None:
        """Keep a result."""
        self.kept[key] = value, math.inf if self.policy.ttl is None else now + self.policy.ttl
        self.kept.move_to_end(key)
        while len(self.kept) > self.policy.max_entries:
            self.kept.popitem(last=False)


def checked_timeout(name: str, seconds: Any) -> float | None:
    """A time-out of a node or a run.

    Raises:
        ValueError: It is not positive.
    """
    if seconds is not None and not seconds > 0:
        raise ValueError(f"{name} is {seconds}; it must be positive, or None for no limit")
    return None if seconds is None else float(seconds)
