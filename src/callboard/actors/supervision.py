"""Supervision: what to do with an actor that failed. Pure: no I/O and no clock, time is an argument."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from callboard.actors.errors import ActorInitError, ActorKilled, DeathPact, returned

__all__ = ["AllForOne", "Backoff", "Decision", "Directive", "OneForOne", "RestartLog", "Strategy", "unwrap"]


class Directive(IntEnum):
    """The action for a failed actor, in order of severity."""

    RESUME = 0
    """Keep the instance, drop the message."""
    RESTART = 1
    """Make a new instance; mailbox, identity and watchers stay."""
    STOP = 2
    """Stop it for good; watchers get ``Terminated`` with the cause."""
    ESCALATE = 3
    """The parent fails with the same cause."""


DIRECTIVES: Final = ", ".join(f"Directive.{directive.name}" for directive in Directive)

Rules = Mapping[type[BaseException], Directive]
Decider = Callable[[BaseException], Directive | None]

DEFAULT_RULES: Final[Rules] = {
    ActorInitError: Directive.STOP,
    ActorKilled: Directive.STOP,
    DeathPact: Directive.STOP,
    Exception: Directive.RESTART,
}


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def unwrap(error: BaseException) -> BaseException:
    """The only leaf of an exception group, else the error itself."""
    if isinstance(error, BaseExceptionGroup):
        leaves = list(_leaves(error))
        if len(leaves) == 1:
            return leaves[0]
    return error


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait before a restart: ``minimum * 2**n`` seconds, at most ``maximum``, plus up to ``jitter`` of it at random.

    ``n`` counts restarts in a row and starts again after ``reset`` quiet seconds (default: the mean of minimum and
    maximum).
    """

    minimum: float
    maximum: float
    jitter: float = 0.2
    reset: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.minimum <= self.maximum:
            raise ValueError(f"need 0 < minimum <= maximum, not {self.minimum} and {self.maximum}")
        if self.jitter < 0:
            raise ValueError(f"jitter must not be negative, but is {self.jitter}")

    def delay(self, n: int, random: float = 0.0) -> float:
        """Seconds before restart ``n`` (from 0); ``random`` is in [0, 1)."""
        doublings = min(n, 1000)  # 2.0 ** 1024 does not fit a float
        return min(self.maximum, self.minimum * 2.0**doublings) * (1.0 + random * self.jitter)

    @property
    def quiet(self) -> float:
        """Seconds without failure after which the count starts again."""
        return (self.minimum + self.maximum) / 2 if self.reset is None else self.reset


class RestartLog:
    """The restart times of an actor (or a group). Kept by the runtime, read by strategies."""

    __slots__ = ("in_a_row", "last", "times")

    def __init__(self) -> None:
        self.times: list[float] = []
        self.in_a_row = 0
        self.last: float | None = None

    def permit(self, now: float, max_restarts: int | None, within: float | None) -> bool:
        """Note a restart at ``now`` if fewer than ``max_restarts`` happened in the last ``within`` seconds."""
        if max_restarts is None:
            return True
        if within is not None:
            self.times = [time for time in self.times if now - time < within]
        if len(self.times) >= max_restarts:
            return False
        self.times.append(now)
        return True

    def next_in_row(self, now: float, quiet: float) -> int:
        """Number of this restart in its row, from 0; a row ends with ``quiet`` seconds without a restart."""
        if self.last is None or now - self.last >= quiet:
            self.in_a_row = 0
        n, self.in_a_row, self.last = self.in_a_row, self.in_a_row + 1, now
        return n


@dataclass(frozen=True, slots=True)
class Decision:
    """A directive, with the seconds to wait before a restart.

    ``exhausted`` when the budget turned a restart into a stop.
    """

    directive: Directive
    delay: float = 0.0
    exhausted: bool = False


class Strategy:
    """Base of :class:`OneForOne` and :class:`AllForOne`.

    Args:
        rules: directives by exception class (the most specific class wins) or a function that returns a directive or
            None. Without rules: ``ActorInitError``, ``ActorKilled`` and ``DeathPact`` stop, any other ``Exception``
            restarts.
        default: directive for exceptions that no rule covers; escalate by default.
        max_restarts: restarts allowed within ``within`` seconds, one more stops. None: any number. 0: none.
        within: seconds of the sliding window. None: the actor's whole life.
        backoff: wait before each restart; the mailbox holds meanwhile.

    Raises:
        TypeError: for a rule that is not from an exception class to a :class:`Directive`.
        ValueError: for a negative ``max_restarts``, or a ``within`` that is not positive.
    """

    __slots__ = ("_decider", "_default", "_rules", "backoff", "max_restarts", "within")
    whole_group: bool = False

    def __init__(
        self,
        rules: Rules | Decider | None = None,
        *,
        default: Directive = Directive.ESCALATE,
        max_restarts: int | None = None,
        within: float | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        if max_restarts is not None and max_restarts < 0:
            raise ValueError(f"max_restarts must not be negative, but is {max_restarts}; None means any number")
        if within is not None and within <= 0:
            raise ValueError(f"within must be positive, but is {within}; None means the whole life")
        if not isinstance(default, Directive):
            raise TypeError(f"{type(self).__name__}: default is {default!r}; use one of {DIRECTIVES}")
        self._decider: Decider | None = None
        self._rules: Rules = DEFAULT_RULES
        if callable(rules):
            self._decider = rules
        elif rules is not None:
            self._rules = _checked(type(self).__name__, rules)
        self._default = default
        self.max_restarts = max_restarts
        self.within = within
        self.backoff = backoff

    @staticmethod
    def checked(given: Any) -> "Strategy":
        """``given``, if it is a strategy.

        Raises:
            TypeError: A class, or something else, was passed in its place.
        """
        if isinstance(given, Strategy):
            return given
        raise TypeError(f"supervision is {given!r:.200}; it must be a strategy, such as cb.OneForOne(max_restarts=3)")

    def directive(self, error: BaseException) -> Directive:
        """The directive for ``error``, budget aside; a group is decided by its worst leaf."""
        return max(self._leaf(leaf) for leaf in _leaves(error))

    def _leaf(self, error: BaseException) -> Directive:
        if self._decider is not None:
            found = self._decider(error)
            if found is not None and not isinstance(found, Directive):
                raise TypeError(
                    f"{type(self).__name__}: the rules returned {found!r}; return one of {DIRECTIVES}, or None"
                )
            return self._default if found is None else found
        for cls in type(error).__mro__:
            if cls in self._rules:
                return self._rules[cls]
        return self._default

    def checked_directive(self, error: BaseException) -> Directive:
        """:meth:`directive`, which a subclass may have defined.

        Raises:
            TypeError: It is something else.
        """
        found: Any = self.directive(error)
        if isinstance(found, Directive):
            return found
        raise returned(f"{type(self).__qualname__}.directive", found, f"one of {DIRECTIVES}")

    def decide(self, error: BaseException, log: RestartLog, now: float, random: float = 0.0) -> Decision:
        """Directive and delay for ``error`` at time ``now``; notes a permitted restart in ``log``."""
        directive = self.checked_directive(error)
        return self.restart(log, now, random) if directive is Directive.RESTART else Decision(directive)

    def restart(self, log: RestartLog, now: float, random: float = 0.0) -> Decision:
        """A restart at time ``now`` and its delay, noted in ``log``; a stop if the budget permits none."""
        if not log.permit(now, self.max_restarts, self.within):
            return Decision(Directive.STOP, exhausted=True)
        if self.backoff is None:
            return Decision(Directive.RESTART)
        n = log.next_in_row(now, self.backoff.quiet)
        return Decision(Directive.RESTART, self.backoff.delay(n, random))


def _checked(strategy: str, rules: Rules) -> Rules:
    given: Mapping[Any, Any] = rules
    for cls, directive in given.items():
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise TypeError(f"{strategy}: {cls!r} is not an exception class")
        if not isinstance(directive, Directive):
            raise TypeError(f"{strategy}: the rule for {cls.__name__} is {directive!r}; use one of {DIRECTIVES}")
    return dict(rules)


class OneForOne(Strategy):
    """Only the child that failed is concerned; each child has its own budget."""

    __slots__ = ()


class AllForOne(Strategy):
    """All children are restarted or stopped when one of them is; they share one budget."""

    __slots__ = ()
    whole_group = True
