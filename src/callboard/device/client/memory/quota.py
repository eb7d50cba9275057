"""``Quota``: grants buffers within a limit, in the order of requests. Pure: no clock, no memory."""

from collections import OrderedDict
from collections.abc import Hashable

__all__ = ["Quota"]


class Quota:
    """Bounds the number of buffers that are out, and their bytes together.

    Requests are granted in their order: a small request does not overtake a large one, so large ones are not starved.

    Args:
        max_buffers: Most buffers.
        max_bytes: Most bytes; None for no bound.

    Attributes:
        out, bytes_out: Buffers, and bytes, that are granted and not returned.
        most_bytes: The most that ``bytes_out`` has been.
        waiting: Bytes of each request that waits, oldest first.
    """

    def __init__(self, max_buffers: int, max_bytes: int | None = None) -> None:
        self.max_buffers = max_buffers
        self.max_bytes = max_bytes
        self.out = 0
        self.bytes_out = 0
        self.most_bytes = 0
        self.waiting: OrderedDict[Hashable, int] = OrderedDict()

    def fits(self, nbytes: int) -> bool:
        """True if a request of ``nbytes`` can ever be granted."""
        return self.max_bytes is None or nbytes <= self.max_bytes

    def ask(self, who: Hashable, nbytes: int) -> bool:
        """Grant a request, or queue it; returns whether it is granted."""
        if self.waiting or not self._room(nbytes):
            self.waiting[who] = nbytes
            return False
        self._grant(nbytes)
        return True

    def again(self, who: Hashable, nbytes: int) -> None:
        """Return a grant that could not be used; the request is first in line for the next one."""
        self.give(nbytes)
        self.waiting[who] = nbytes
        self.waiting.move_to_end(who, last=False)

    def give_up(self, who: Hashable) -> bool:
        """A request waits no longer; False if it did not wait. Others may be granted now."""
        return self.waiting.pop(who, None) is not None

    def give(self, nbytes: int) -> None:
        """A buffer of ``nbytes`` was returned; :meth:`grant` selects the next request."""
        if self.out < 1 or self.bytes_out < nbytes:
            raise ValueError(f"{nbytes} bytes were returned, {self.bytes_out} in {self.out} buffers are out")
        self.out -= 1
        self.bytes_out -= nbytes

    def grant(self) -> list[tuple[Hashable, int]]:
        """The requests that are granted now, in order, with their bytes."""
        granted: list[tuple[Hashable, int]] = []
        while self.waiting:
            who, nbytes = next(iter(self.waiting.items()))
            if not self._room(nbytes):
                break
            del self.waiting[who]
            self._grant(nbytes)
            granted.append((who, nbytes))
        return granted

    def _room(self, nbytes: int) -> bool:
        return self.out < self.max_buffers and (self.max_bytes is None or self.bytes_out + nbytes <= self.max_bytes)

    def _grant(self, nbytes: int) -> None:
        self.out += 1
        self.bytes_out += nbytes
        self.most_bytes = max(self.most_bytes, self.bytes_out)
