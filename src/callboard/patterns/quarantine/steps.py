"""``StepGuard``: finds the sequence that loses the context, among those that run in common steps."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from callboard.actors.clock import Clock
from callboard.core.errors import ContextLost
from callboard.patterns.quarantine.guard import Quarantine, is_loss
from callboard.patterns.quarantine.keyring import Keyring
from callboard.patterns.requests.entries import Entry, State

__all__ = ["StepGuard"]

MOST_LOSSES = 6
"""Losses that a sequence takes part in, before it ends in their error."""


class Sequence(Protocol):
    """A sequence of a server that runs in steps."""

    @property
    def entry(self) -> Entry: ...


S = TypeVar("S", bound=Sequence)


class StepGuard:
    """Chooses which sequences take part in the next step, so that the one that loses the context is found.

    After a loss each sequence that took part is a suspect. It takes ``2**losses`` steps alone; steps of suspects and
    of the others alternate. A suspect whose step alone loses the context is the cause: it ends in
    :class:`Quarantined`, and so does each request of its key for a time. All others go on.

    Args:
        key_of: See :class:`Keyring`.
        name: Name of the server, for keys.
        clock: Tells the time; for tests.
    """

    def __init__(self, key_of: Callable[[Any], str] | None, name: str, clock: Clock | None) -> None:
        self._quarantine = Quarantine[None](None, clock=clock)
        self._keyring = Keyring(key_of, name)
        self._alone: OrderedDict[int, int] = OrderedDict()  # steps yet to take alone, by the number of the request
        self._losses: dict[int, int] = {}
        self._others_next = True

    def enter(self, entry: Entry) -> None:
        """A new request; called in its caller's context.

        Raises:
            Quarantined: Requests of its key are refused.
        """
        self._keyring.read(entry)
        if self._quarantine.has_records:
            self._quarantine.refuse_held(self._keyring.identity(entry))

    def choose(self, ready: list[S]) -> list[S]:
        """Those of the sequences that take part in the next step, in their order; at least one."""
        if not self._alone:
            return ready
        others = [each for each in ready if each.entry.number not in self._alone]
        if len(others) == len(ready) or (others and self._others_next):
            self._others_next = False
            return others
        self._others_next = True
        order = list(self._alone)
        suspects = [each for each in ready if each.entry.number in self._alone]
        return [min(suspects, key=lambda each: order.index(each.entry.number))]

    def begin(self) -> None:
        """A step begins in this task."""
        self._keyring.mark()

    def succeeded(self, entries: list[Entry]) -> None:
        """The context outlived a step of these requests."""
        if not self._alone or len(entries) != 1:
            return
        [entry] = entries
        left = self._alone.get(entry.number)
        if left is None:
            return
        if left > 1:
            self._alone[entry.number] = left - 1
            return
        del self._alone[entry.number]
        if entry.state is State.RUNNING:
            self._quarantine.pardon(self._keyring.identity(entry).key)

    def lost(self, entries: list[Entry], error: ContextLost) -> dict[int, Exception]:
        """A step of these requests, none of which has ended, lost the context.

        Returns:
            The error of each request that is not to go on, by its number.
        """
        if not is_loss(error):
            return {entry.number: error for entry in entries}
        alone = len(entries) == 1 and entries[0].number in self._alone
        ends: dict[int, Exception] = {}
        for entry in entries:
            who = self._keyring.identity(entry)
            losses = self._losses[entry.number] = self._losses.get(entry.number, 0) + 1
            convicted = self._quarantine.blame(who, error, alone=alone)
            if convicted is not None:
                ends[entry.number] = convicted
            elif losses > MOST_LOSSES:
                ends[entry.number] = error
            else:
                self._alone[entry.number] = 1 << losses
        return ends

    def forget(self, entry: Entry) -> None:
        """The request has ended."""
        if self._losses:
            self._alone.pop(entry.number, None)
            self._losses.pop(entry.number, None)
