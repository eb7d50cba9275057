"""``Restarts``: whether a failed resident actor continues, is restarted or stops."""

import random
import time
from typing import Any

from callboard.actors import Directive
from callboard.actors.supervision import RestartLog, Strategy
from callboard.device.protocol.residents.actor import ResidentActor

__all__ = ["Restarts", "forget_frames"]


class Restarts:
    """The restarts of one actor, by the strategy of its class.

    There is no parent, so ESCALATE is a restart, and it counts towards the same budget. After a failed ``setup`` there
    is not an instance to resume, so RESUME is one as well. What is no ``Exception``, such as ``SystemExit``, is decided
    like one where it would be escalated: requests of clients must not use up the restarts.
    """

    def __init__(self) -> None:
        self._log = RestartLog()

    def resumes(self, cls: Any, error: BaseException) -> bool:
        """True if the strategy of ``cls`` resumes after this exception."""
        try:
            return _directive(_strategy(cls), error) is Directive.RESUME
        except Exception:  # from a user's decider; `delay` calls it again once the caller has its error
            return False

    def delay(self, cls: Any, error: BaseException) -> float | None:
        """Seconds to wait before a restart; None if the actor stops instead.

        Raises:
            RuntimeError: The strategy failed, or decided nothing; with its exception as the cause.
        """
        strategy = _strategy(cls)
        try:
            directive = _directive(strategy, error)
        except Exception as e:  # from a user's decider: without a decision there is no other instance
            why = f"{e!r}; it was to decide about {error!r}"
            raise RuntimeError(f"supervision of {getattr(cls, '__qualname__', cls)} failed: {why}") from e
        if directive is Directive.STOP:
            return None
        decision = strategy.restart(self._log, time.monotonic(), random.random())
        return decision.delay if decision.directive is Directive.RESTART else None


def _directive(strategy: Strategy, error: BaseException) -> Directive:
    found = strategy.checked_directive(error)
    if found is Directive.ESCALATE and not isinstance(error, Exception):
        return strategy.checked_directive(Exception(f"{type(error).__name__}: no Exception"))
    return found


def _strategy(cls: Any) -> Strategy:
    strategy = getattr(cls, "supervision", None)
    return strategy if isinstance(strategy, Strategy) else ResidentActor.supervision


_cause: Any = BaseException.__cause__
_context: Any = BaseException.__context__
"""Descriptors: a class of a user may define attributes of these names."""


def forget_frames(error: BaseException) -> None:
    """Drop an error's frames: the frames of a failed method keep its arguments alive, and their memory."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            BaseException.with_traceback(one, None)  # not by an assignment, which a frozen class refuses
            waiting += (_cause.__get__(one), _context.__get__(one))
