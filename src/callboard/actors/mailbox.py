"""Mailboxes: how many messages may wait for an actor, in which order, and the policy when there is no room.

Only the user lane is bounded. Stop, watch, restart and timers never fail for lack of room.
"""

import heapq
import itertools
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

from callboard.actors._runtime.envelopes import Kill, Obituary, Poison, Tick, message_of
from callboard.actors.errors import MailboxFull, returned

__all__ = ["BoundedLane", "Mailbox", "PriorityLane", "UnboundedLane", "UserLane"]

_log = logging.getLogger("callboard.actors")

Overflow = Literal["fail", "drop_new", "drop_old"]
Rejected = Callable[[Any, str], None]
_NEVER_DROPPED = (Tick, Obituary, Poison, Kill)


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The kind of mailbox of an actor.

    Args:
        capacity: messages that may wait; None for any number.
        overflow: ``fail``: ``tell`` raises :class:`MailboxFull` and an ask fails with it; ``drop_new``: the new message
            goes to the dead letters; ``drop_old``: the oldest one does. The asker of a dropped request gets
            :class:`MailboxFull`.
        priority: rank of a message, lowest first, first come first served within a rank. None: first come first served.

    Raises:
        ValueError: for a capacity below 1, an unknown overflow, or a priority together with a capacity.
    """

    capacity: int | None = None
    overflow: Overflow = "fail"
    priority: Callable[[Any], int] | None = None

    def __post_init__(self) -> None:
        if self.capacity is not None and self.capacity < 1:
            raise ValueError(f"capacity must be at least 1, but is {self.capacity}")
        if self.overflow not in ("fail", "drop_new", "drop_old"):
            raise ValueError(f"overflow must be fail, drop_new or drop_old, but is {self.overflow!r}")
        if self.priority is not None and self.capacity is not None:
            raise ValueError("a mailbox is bounded or has priorities, not both")

    def lane(self, path: str, rejected: Rejected) -> "UserLane":
        """Make the lane of the actor at ``path``; dropped items go to ``rejected(item, reason)``."""
        if self.priority is not None:
            return PriorityLane(self.priority)
        if self.capacity is not None:
            return BoundedLane(self.capacity, self.overflow, path, rejected)
        return UnboundedLane()


class UserLane(ABC):
    """The waiting messages of one actor. Any thread pushes, the actor's thread pops.

    Attributes:
        items: the container; true if a message waits.
        push: append one item; raises :class:`MailboxFull` if that is the policy.
        pop: take the next item; raises IndexError when empty.
        capacity: None when unbounded.
    """

    __slots__ = ("capacity", "items", "pop", "push")
    items: Any
    push: Callable[[Any], None]
    pop: Callable[[], Any]
    capacity: int | None

    @abstractmethod
    def push_always(self, item: Any) -> None:
        """Append beyond any bound: ticks, obituaries and pills."""

    @abstractmethod
    def push_front(self, items: Iterable[Any]) -> None:
        """Put items back in front, keeping their order, beyond any bound."""

    def wait_for_room(self, item: Any, admitted: Callable[[bool], object]) -> bool:
        """Push ``item`` now (True) or when there is room.

        Then ``admitted(True)`` is called, or ``admitted(False)`` when the actor stops before.
        """
        self.push(item)
        return True

    def give_up(self, admitted: Callable[[bool], object]) -> bool:
        """Withdraw the item that waits with this callback; False when it was admitted meanwhile."""
        return False

    def close(self) -> None:
        """Fail the senders that wait for room."""


class UnboundedLane(UserLane):
    """A deque; push and pop are its own methods, which is as fast as it gets."""

    __slots__ = ()

    def __init__(self) -> None:
        self.capacity = None
        self.items: deque[Any] = deque()
        self.push = self.items.append
        self.pop = self.items.popleft

    def push_always(self, item: Any) -> None:
        self.items.append(item)

    def push_front(self, items: Iterable[Any]) -> None:
        self.items.extendleft(reversed(list(items)))


class PriorityLane(UserLane):
    """A stable heap."""

    __slots__ = ("_front", "_lock", "_order", "_rank")

    def __init__(self, rank: Callable[[Any], int]) -> None:
        self.capacity = None
        self.items: list[tuple[float, int, Any]] = []
        self._rank = rank
        self._order = itertools.count()
        self._front = 0
        self._lock = Lock()
        self.push = self._push
        self.pop = self._pop

    def _push(self, item: Any) -> None:
        rank: Any = self._rank(message_of(item))
        if not isinstance(rank, int | float) or rank != rank:
            raise returned("priority", rank, "a number, the lowest first")
        with self._lock:
            heapq.heappush(self.items, (rank, next(self._order), item))

    def _pop(self) -> Any:
        with self._lock:
            return heapq.heappop(self.items)[2]

    def push_always(self, item: Any) -> None:
        if isinstance(item, Tick):
            try:
                self._push(item)
                return
            except Exception:  # of the user's function: a timer's message is not lost by that
                _log.exception("priority failed for the message of a timer, which comes first")
        rank = float("inf") if isinstance(item, Poison) else float("-inf")
        with self._lock:
            heapq.heappush(self.items, (rank, next(self._order), item))

    def push_front(self, items: Iterable[Any]) -> None:
        with self._lock:
            for item in reversed(list(items)):
                self._front -= 1
                heapq.heappush(self.items, (float("-inf"), self._front, item))


class BoundedLane(UserLane):
    """A bounded deque, with a queue of senders waiting for room.

    Senders on several threads and the actor use it at once, hence the lock: without it the bound would be approximate.
    """

    __slots__ = ("_bound", "_lock", "_overflow", "_path", "_rejected", "_waiting")

    def __init__(self, capacity: int, overflow: Overflow, path: str, rejected: Rejected) -> None:
        self.capacity = self._bound = capacity
        self.items: deque[Any] = deque()
        self._overflow = overflow
        self._path = path
        self._rejected = rejected
        self._waiting: deque[tuple[Any, Callable[[bool], object]]] = deque()
        self._lock = Lock()
        self.push = self._push
        self.pop = self._pop

    def _push(self, item: Any) -> None:
        with self._lock:
            if len(self.items) < self._bound:
                self.items.append(item)
                return
            oldest = item
            if self._overflow == "drop_old":
                # With nothing but timer ticks and the like waiting, the new message is the oldest that may go.
                index = next((i for i, old in enumerate(self.items) if not isinstance(old, _NEVER_DROPPED)), None)
                if index is not None:
                    oldest = self.items[index]
                    del self.items[index]
                    self.items.append(item)
        if self._overflow == "fail":
            raise MailboxFull(f"the mailbox of {self._path} is full ({self.capacity} messages)")
        if self._overflow == "drop_new":
            self._rejected(item, "mailbox_full")
        else:
            self._rejected(oldest, "dropped_old")

    def _pop(self) -> Any:
        admitted: Callable[[bool], object] | None = None
        with self._lock:
            item = self.items.popleft()
            if self._waiting and len(self.items) < self._bound:
                waiting, admitted = self._waiting.popleft()
                self.items.append(waiting)
        if admitted is not None:
            admitted(True)
        return item

    def push_always(self, item: Any) -> None:
        with self._lock:
            self.items.append(item)

    def push_front(self, items: Iterable[Any]) -> None:
        with self._lock:
            self.items.extendleft(reversed(list(items)))

    def wait_for_room(self, item: Any, admitted: Callable[[bool], object]) -> bool:
        with self._lock:
            # While senders wait there is no room: an item that leaves admits the first of them.
            if len(self.items) < self._bound:
                self.items.append(item)
                return True
            self._waiting.append((item, admitted))
            return False

    def give_up(self, admitted: Callable[[bool], object]) -> bool:
        with self._lock:
            for index, (_, callback) in enumerate(self._waiting):
                if callback is admitted:
                    del self._waiting[index]
                    return True
        return False

    def close(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        for _, admitted in waiting:
            admitted(False)
