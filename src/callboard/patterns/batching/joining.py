"""``Joining``: decides which buckets of different lengths share a batch, from measured durations of batches. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from callboard.patterns.batching.estimate import BatchTimes
from callboard.patterns.requests.entries import Entry
from callboard.patterns.requests.waiting import Bucket

__all__ = ["Group", "Joining", "length_of", "partition"]

MOST = 32
"""Buckets that are considered at once: the next ones in length to that of the most urgent entry."""


def length_of(key: Any) -> float:
    """The key of a bucket as the length to which its items are padded.

    Raises:
        TypeError: It is not a number.
        ValueError: It is not positive and finite.
    """
    if isinstance(key, bool) or not isinstance(key, int | float):
        raise TypeError(f"with join_buckets=True a bucket's key is a length, but is {key!r}")
    if not 0 < key < float("inf"):
        raise ValueError(f"with join_buckets=True a bucket's key is a positive length, but is {key!r}")
    return float(key)


class Group:
    """Buckets that share batches; it reads like a single bucket.

    Args:
        buckets: Buckets, at least one.
    """

    __slots__ = ("buckets",)

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self.buckets = buckets

    @property
    def count(self) -> int:
        """Entries."""
        return sum(bucket.count for bucket in self.buckets)

    @property
    def cost(self) -> float:
        """Summed cost of the entries."""
        return sum(bucket.cost for bucket in self.buckets)

    @property
    def earliest(self) -> float:
        """No deadline is before this."""
        return min(bucket.earliest for bucket in self.buckets)

    def heads(self) -> Iterator[Entry]:
        """The oldest entry of each lane of each bucket."""
        for bucket in self.buckets:
            yield from bucket.heads()


class Joining:
    """Learns ``seconds = per_unit * n * longest + fixed`` from batches of ``n`` items padded to the longest one.

    A batch more costs ``fixed``; items in a batch with longer ones cost ``per_unit`` for each unit of padding. On a
    processor the first is small, and each length runs by itself. On a GPU that a batch does not fill it is most of a
    batch's time, and few batches of mixed lengths take least.
    """

    def __init__(self) -> None:
        self.times = BatchTimes()
        self._last: tuple[object, list[tuple[int, int]]] | None = None

    def finished(self, n: int, longest: float, seconds: float) -> None:
        """A batch has run without an error."""
        self.times.add(n * longest, seconds)
        self._last = None

    def groups(self, buckets: Sequence[Bucket], max_batch: int, max_cost: float | None) -> list[Group]:
        """The given buckets, the most urgent first, in groups that take least time in all; the order is kept.

        Args:
            buckets: Buckets whose keys are lengths.
            max_batch: Items of a batch at most.
            max_cost: Cost of a batch at most, where each item costs as much as the costliest.
        """
        per_unit, fixed = self.times.fit
        if len(buckets) < 2 or not fixed:
            return [Group([bucket]) for bucket in buckets]
        lengths = {id(bucket): length_of(bucket.key) for bucket in buckets}
        urgent = length_of(buckets[0].key)
        near = sorted(buckets, key=lambda bucket: abs(lengths[id(bucket)] - urgent))[:MOST]
        near.sort(key=lambda bucket: lengths[id(bucket)])
        sizes = [(bucket.count, bucket.cost / bucket.count, lengths[id(bucket)]) for bucket in near]
        asked = sizes, max_batch, max_cost
        if self._last is None or self._last[0] != asked:  # it is asked several times before a batch runs
            self._last = asked, partition(sizes, per_unit / fixed, max_batch, max_cost)
        parts = self._last[1]
        rank = {id(bucket): number for number, bucket in enumerate(buckets)}
        groups = [Group(near[start:end]) for start, end in parts]
        groups += [Group([bucket]) for bucket in buckets if all(bucket is not each for each in near)]
        groups.sort(key=lambda group: min(rank[id(bucket)] for bucket in group.buckets))
        return groups


def partition(
    sizes: Sequence[tuple[int, float, float]], per_unit: float, max_batch: int, max_cost: float | None
) -> list[tuple[int, int]]:
    """Ranges of buckets, ascending in length, whose batches take least time in all, a batch's fixed time being 1.

    Args:
        sizes: Items, mean cost of an item, and length.
        per_unit: Time of an item and a unit of length.
        max_batch: Items of a batch at most.
        max_cost: Cost of a batch at most, where each item costs as much as the costliest.
    """
    best: list[tuple[float, int]] = [(0.0, 0)]  # time of the first buckets, and where the last group of them begins
    for end in range(1, len(sizes) + 1):
        length, count, highest = sizes[end - 1][2], 0, 0.0
        options: list[tuple[float, int]] = []
        for start in range(end - 1, -1, -1):
            count += sizes[start][0]
            highest = max(highest, sizes[start][1])
            most = max_batch if max_cost is None or not highest else max(1, min(max_batch, int(max_cost / highest)))
            batches = -(-count // most)
            options.append((best[start][0] + batches + per_unit * count * length, -start))
        time, start = min(options)  # of equal ones the one that pads least
        best.append((time, -start))
    return list(_ranges(best))


def _ranges(best: Sequence[tuple[float, int]]) -> Iterable[tuple[int, int]]:
    found = []
    end = len(best) - 1
    while end:
        start = best[end][1]
        found.append((start, end))
        end = start
    return reversed(found)
