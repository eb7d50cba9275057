"""``BatchOptions``, ``BatchSettings``: time, size and contents of batches."""

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Literal

from callboard.patterns.contract.checks import OneOf, check_callable, check_choice, check_whole
from callboard.patterns.requests.waiting import QueueOptions

__all__ = ["BatchOptions", "BatchSettings", "Dispatch", "pow2_length"]


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
class BatchOptions:
    """How a server forms its batches: ``batches=`` of :class:`DynamicBatchingServer`.

    Attributes:
        dispatch: When an executor that is free takes a batch that is not full: ``"adaptive"``, ``"idle"`` or
            ``"window"``; see :class:`Dispatch`.
        preferred: Sizes that the function is fast at (such as those of captured graphs), ascending; see ``pad``.
        pad: ``pad(items, size)`` returns what the batch function gets. With it, a batch is filled up to the next
            preferred size, and that many results are expected, of which the first are used. Without it, a batch is cut
            to the largest preferred size that it reaches. With ``bucket``, it may pad the items to one length as well.
        ragged: The batch function gets a :class:`Ragged` in place of a list: arrays of unequal lengths, joined.
        join_buckets: Keys are lengths to which items are padded, and a batch takes items of several keys where padding
            them to the largest is expected to take less time than a further batch, by the batches that were measured.
            Each item of a batch then counts as much for ``max_batch_cost`` as the costliest one.
        preserve_order: Requests end in the order of their submission, whatever batches they were in. One that ends
            early waits for those before it; those that are cancelled, or too late, end at once.
        timeout_action: What becomes of a request whose deadline passes in the queue. ``"reject"``: it fails with
            :class:`DeadlineExceeded`, which it may do earlier, where it cannot be done in time. ``"delay"``: it goes
            behind all others, and runs when nothing else waits; deadlines then refuse nothing, and bound no run.
    """

    dispatch: Dispatch | Literal["adaptive", "idle", "window"] = Dispatch.ADAPTIVE
    preferred: Sequence[int] = ()
    pad: Callable[[list[Any], int], Any] | None = None
    ragged: bool = False
    join_buckets: bool = False
    preserve_order: bool = False
    timeout_action: Literal["reject", "delay"] = "reject"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dispatch", Dispatch(self.dispatch))
        sizes = tuple(self.preferred)
        object.__setattr__(self, "preferred", sizes)
        check_callable(pad=self.pad)
        check_choice("timeout_action", self.timeout_action, "reject", "delay")
        if list(sizes) != sorted(set(sizes)) or (sizes and sizes[0] < 1):
            raise ValueError(f"preferred must be ascending sizes from 1, but is {sizes}")
        if self.ragged and self.pad is not None:
            raise ValueError("ragged batches are not padded; give ragged or pad")

    @property
    def delays(self) -> bool:
        """True if a request whose deadline passes waits after all others; deadlines refuse nothing."""
        return self.timeout_action == "delay"

    def size_for(self, n: int) -> int:
        """The size of the batch for ``n`` waiting items: ``n`` if no size is preferred."""
        if self.pad is not None:
            return next((size for size in self.preferred if size >= n), n)
        return max((size for size in self.preferred if size <= n), default=n)


@dataclass(frozen=True)
class BatchSettings:
    """Settings that decide when batches are formed; checked at construction.

    Attributes:
        max_batch, max_wait, max_batch_cost, max_concurrent_batches, max_queue, form, queue: See
            :class:`DynamicBatchingServer <callboard.DynamicBatchingServer>`; ``form`` is its ``batches``.
    """

    max_batch: int
    max_wait: float
    max_batch_cost: float | None = None
    max_concurrent_batches: int = 1
    max_queue: int = 1024
    form: BatchOptions = field(default_factory=BatchOptions)
    queue: QueueOptions = field(default_factory=QueueOptions)

    def __post_init__(self) -> None:
        check_whole(
            1, max_batch=self.max_batch, max_queue=self.max_queue, max_concurrent_batches=self.max_concurrent_batches
        )
        if not self.max_wait >= 0:
            raise ValueError(f"max_wait must be at least 0 seconds, but is {self.max_wait}")
        if self.max_batch_cost is not None and not self.max_batch_cost > 0:
            raise ValueError(f"max_batch_cost must be positive, but is {self.max_batch_cost}")
        if self.max_queue < self.max_batch:
            raise ValueError(
                f"max_queue is {self.max_queue}: no batch could reach max_batch, which is {self.max_batch}"
            )
        largest = max(self.form.preferred, default=0)
        if largest > self.max_batch:
            raise ValueError(f"preferred has {largest}, and max_batch is {self.max_batch}")


def pow2_length(item: Sized) -> int:
    """The length of an item, rounded up to a power of two: ``bucket=pow2_length`` batches texts of like lengths.

    It serves as ``cost`` too, where batches are bounded by the number of tokens after padding.
    """
    length = len(item)
    return 1 << (length - 1).bit_length() if length > 1 else 1
