"""``FreeRanges``: free ranges of a line of integers, taken by best fit, merged with neighbours when released."""

from bisect import bisect_left, insort

__all__ = ["FreeRanges"]


class FreeRanges:
    """A set of disjoint free ranges ``[start, start + length)``.

    Best fit keeps long ranges long, and carving from the low end gives the most recently used memory first: its
        pages are present and its lines are in a cache.

    Attributes:
        free: Sum of the lengths.
    """

    __slots__ = ("_by_end", "_by_length", "_by_start", "free")

    def __init__(self) -> None:
        self._by_length: list[tuple[int, int]] = []  # (length, start), sorted
        self._by_start: dict[int, int] = {}  # start: length
        self._by_end: dict[int, int] = {}  # end: start
        self.free = 0

    def take(self, length: int) -> int | None:
        """The start of a range of this length, None if there is none."""
        by_length = self._by_length
        at = bisect_left(by_length, (length, -1))
        if at == len(by_length):
            return None
        found, start = by_length.pop(at)
        del self._by_start[start]
        if found > length:
            self._by_end[start + found] = start + length
            self._by_start[start + length] = found - length
            insort(by_length, (found - length, start + length))
        else:
            del self._by_end[start + found]
        self.free -= length
        return start

    def give(self, start: int, length: int) -> None:
        """Add a range that overlaps none of those that are free."""
        self.free += length
        end = start + length
        left = self._by_end.pop(start, None)
        if left is not None:
            self._forget(left, start - left)
            start = left
        right = self._by_start.get(end)
        if right is not None:
            self._forget(end, right)
            del self._by_end[end + right]
            end += right
        self._by_start[start] = end - start
        self._by_end[end] = start
        insort(self._by_length, (end - start, start))

    def remove(self, start: int, length: int) -> bool:
        """Take exactly this range away; False, and nothing happens, unless it is one whole free range."""
        if self._by_start.get(start) != length:
            return False
        self._forget(start, length)
        del self._by_end[start + length]
        self.free -= length
        return True

    def _forget(self, start: int, length: int) -> None:
        del self._by_start[start]
        del self._by_length[bisect_left(self._by_length, (length, start))]
