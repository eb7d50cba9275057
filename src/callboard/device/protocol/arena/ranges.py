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
        found, start = by_length[at]
        try:
            del by_length[at], self._by_start[start]
            if found > length:
                self._by_end[start + found] = start + length
                self._by_start[start + length] = found - length
                insort(by_length, (found - length, start + length))
            else:
                del self._by_end[start + found]
            self.free -= length
        except BaseException:  # Ctrl-C, too: nothing is taken
            self._by_start.pop(start + length, None)
            self._restore(start, found)
            raise
        return start

    def give(self, start: int, length: int) -> None:
        """Add a range that overlaps none of those that are free."""
        end = start + length
        left, right = self._by_end.get(start), self._by_start.get(end)
        first, last = start if left is None else left, end + (right or 0)
        try:
            self.free += length
            if left is not None:
                del self._by_end[start]
                self._forget(left, start - left)
            if right is not None:
                self._forget(end, right)
                del self._by_end[last]
            self._by_start[first] = last - first
            self._by_end[last] = first
            insort(self._by_length, (last - first, first))
        except BaseException:  # Ctrl-C, too: it is given
            self._by_start.pop(end, None)
            self._restore(first, last - first)
            raise

    def remove(self, start: int, length: int) -> bool:
        """Take exactly this range away; False, and nothing happens, unless it is one whole free range."""
        if self._by_start.get(start) != length:
            return False
        self._forget(start, length)
        del self._by_end[start + length]
        self.free -= length
        return True

    def _restore(self, start: int, length: int) -> None:
        """Make everything agree again with the ranges by their starts, this one among them."""
        self._by_start[start] = length
        self._by_end = {start + length: start for start, length in self._by_start.items()}
        self._by_length[:] = sorted((length, start) for start, length in self._by_start.items())
        self.free = sum(self._by_start.values())

    def _forget(self, start: int, length: int) -> None:
        del self._by_start[start]
        del self._by_length[bisect_left(self._by_length, (length, start))]
