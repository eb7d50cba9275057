"""``BatchSettings``: time and size of batches."""

from collections.abc import Sized
from dataclasses import dataclass, field

from callboard.patterns.contract.checks import OneOf, check_whole
from callboard.patterns.requests.waiting import Limits

__all__ = ["BatchSettings", "Dispatch", "check_choice", "pow2_length"]


class Dispatch(OneOf):
    """The rule by which a free executor takes a batch that is not full. Members equal their texts."""

    ADAPTIVE = "adaptive"
    """At once, unless the next request is expected so soon that waiting for it costs the requests in the queue less
    than the fixed cost of a further batch; both are measured."""
    IDLE = "idle"
    """At once."""
    WINDOW = "window"
    """Once the oldest request has waited for ``max_wait``: reproducible batches, at the cost of that wait."""


@dataclass(frozen=True)
class BatchSettings:
    """Settings that decide when batches are formed; checked at construction.

    Attributes:
        max_batch: Items of a batch at most.
        max_wait: Seconds that a request waits, while an executor is free, for others to join its batch at most. Counted
            from the submission of the oldest one.
        max_batch_cost: Summed cost of a batch at most; None means no bound.
        preferred: Sizes that the function is fast at (such as those of captured graphs), ascending. A batch is filled
            up to the next of them where ``padded``, else cut to the largest that it reaches.
        padded: True if there is a hook that fills up a batch.
        dispatch: When a batch that is not full is taken.
        ageing: Seconds of waiting that count as much as one level of priority; None for strict priorities.
        max_concurrent_batches: Batches that run at once.
        limits: Bounds of the queue.
        by_deadline: Within a bucket and a priority, the earliest deadline comes first.
        join_buckets: Keys of buckets are lengths, and batches may mix them; see :class:`Joining`.
        delays: An entry whose deadline passes waits after all others; deadlines refuse nothing.
    """

    max_batch: int
    max_wait: float
    max_batch_cost: float | None = None
    preferred: tuple[int, ...] = ()
    padded: bool = False
    dispatch: Dispatch = Dispatch.ADAPTIVE
    ageing: float | None = 1.0
    max_concurrent_batches: int = 1
    limits: Limits = field(default_factory=Limits)
    by_deadline: bool = False
    join_buckets: bool = False
    delays: bool = False

    def __post_init__(self) -> None:
        check_whole(1, max_batch=self.max_batch, max_concurrent_batches=self.max_concurrent_batches)
        if not self.max_wait >= 0:
            raise ValueError(f"max_wait must be at least 0 seconds, but is {self.max_wait}")
        if self.max_batch_cost is not None and not self.max_batch_cost > 0:
            raise ValueError(f"max_batch_cost must be positive, but is {self.max_batch_cost}")
        if self.limits.count < self.max_batch:
            raise ValueError(
                f"max_queue is {self.limits.count}: no batch could reach max_batch, which is {self.max_batch}"
            )
        if list(self.preferred) != sorted(set(self.preferred)) or (self.preferred and self.preferred[0] < 1):
            raise ValueError(f"preferred must be ascending sizes from 1, but is {self.preferred}")
        if self.preferred and self.preferred[-1] > self.max_batch:
            raise ValueError(f"preferred has {self.preferred[-1]}, and max_batch is {self.max_batch}")

    def size_for(self, n: int) -> int:
        """The size of the batch for ``n`` waiting items: ``n`` if no size is preferred."""
        if self.padded:
            return next((size for size in self.preferred if size >= n), n)
        return max((size for size in self.preferred if size <= n), default=n)


def check_choice(name: str, given: str, *choices: str) -> None:
    """Check an argument that is one of some texts.

    Raises:
        ValueError: It is another one.
    """
    if given not in choices:
        *others, last = (f'"{choice}"' for choice in choices)
        raise ValueError(f"{name} must be {', '.join(others)} or {last}, but is {given!r}")


def pow2_length(item: Sized) -> int:
    """The length of an item, rounded up to a power of two: ``bucket=pow2_length`` batches texts of like lengths.

    It serves as ``cost`` too, where batches are bounded by the number of tokens after padding.
    """
    length = len(item)
    return 1 << (length - 1).bit_length() if length > 1 else 1
