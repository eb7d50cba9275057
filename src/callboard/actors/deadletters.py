"""Dead letters: undeliverable messages, counted by reason and kept for a while."""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from callboard.events.kinds import DEAD
from callboard.events.ring import EVENTS, now

__all__ = ["DeadLetter", "DeadLetterSuppression", "DeadLetters"]

_log = logging.getLogger("callboard.actors")


class DeadLetterSuppression:
    """Mix into a message class whose dead letters are of no interest: they are counted, and neither kept nor logged."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was not handled.

    Attributes:
        message: the message, or the reply value or error for ``late_reply``.
        target: path of the actor it was meant for (for ``late_reply`` the actor that replied).
        reason: ``stopped``, ``mailbox_full``, ``dropped_old``, ``cancelled`` (its asker gave up before it was started),
            ``late_reply``, ``unhandled``, ``reply_error`` (an answer to a ``tell``), ``stash_overflow`` or
            ``unretrieved`` (the error of an op whose result was not awaited).
    """

    message: Any
    target: str
    reason: str


class DeadLetters:
    """A bounded ring of dead letters with a counter per reason and subscribers. Safe to use from any thread.

    Args:
        capacity: letters kept for :meth:`recent`.
        log_first: letters that are logged (INFO); later ones are only counted.
    """

    def __init__(self, capacity: int = 1024, *, log_first: int = 10) -> None:
        self._ring: deque[DeadLetter] = deque(maxlen=capacity)
        self._counts: Counter[str] = Counter()
        self._subscribers: tuple[Callable[[DeadLetter], object], ...] = ()
        self._lock = threading.Lock()
        self._log_left = log_first

    def publish(self, message: Any, target: str, reason: str) -> None:
        """Count, keep, log and publish one letter. Subscribers run in this thread; their exceptions are logged."""
        letter = DeadLetter(message, target, reason)
        ring = EVENTS.ring
        if ring is not None:
            ring.append((next(ring.numbers), now(), DEAD, target, type(message), reason))
        quiet = isinstance(message, DeadLetterSuppression)
        with self._lock:
            self._counts[reason] += 1
            subscribers = self._subscribers
            log_now = False
            if not quiet:
                self._ring.append(letter)
                log_now = self._log_left > 0
                self._log_left -= log_now
            last = log_now and self._log_left == 0
        if log_now:
            more = "; further ones are only counted" if last else ""
            _log.info("dead letter (%s): %s for %s%s", reason, type(message).__qualname__, target, more)
        for subscriber in subscribers:
            try:
                subscriber(letter)
            except Exception:  # user code, and none of the publisher's business
                _log.exception("a dead letter subscriber failed")

    def subscribe(self, subscriber: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Call ``subscriber(letter)`` for each letter from now on; the returned function ends that."""
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(s for s in self._subscribers if s is not subscriber)

        return unsubscribe

    def recent(self) -> list[DeadLetter]:
        """The kept letters, oldest first."""
        with self._lock:
            return list(self._ring)

    @property
    def counts(self) -> dict[str, int]:
        """Number of letters so far, by reason."""
        with self._lock:
            return dict(self._counts)

    @property
    def total(self) -> int:
        """Number of letters so far."""
        with self._lock:
            return self._counts.total()
