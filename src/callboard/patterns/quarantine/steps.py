"""``StepGuard``: finds the sequence that loses the context, among those that run in common steps."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from callboard.actors.clock import Clock
from callboard.core.errors import ContextLost
from callboard.patterns.batching.results import copies
from callboard.patterns.quarantine.guard import Quarantine, is_loss
from callboard.patterns.quarantine.keyring import Keyring
from callboard.patterns.quarantine.truce import Truce
from callboard.patterns.requests.entries import Entry, State

__all__ = ["StepGuard"]

MOST_LOSSES = 12
"""Losses in a row that a sequence takes part in, before it ends in their error."""

MOST_DOUBLINGS = 6
"""A suspect takes at most two to the power of this steps alone."""


class Sequence(Protocol):
    """A sequence of a server that runs in steps."""

    @property
    def entry(self) -> Entry: ...


S = TypeVar("S", bound=Sequence)


class _Suspect:
    """A sequence that took part in a loss.

    Attributes:
        losses: Number of such losses.
        alone: Steps that it has yet to take alone.
        common: Steps that it has yet to take with others after those, until its losses are forgotten.
        doubtful: True if it was alone at the last one, but work of others was in flight, too.
    """

    __slots__ = ("alone", "common", "doubtful", "losses")

    def __init__(self) -> None:
        self.losses = self.alone = self.common = 0
        self.doubtful = False

    def lost(self) -> None:
        self.losses += 1
        self.alone = self.common = 1 << min(self.losses, MOST_DOUBLINGS)


class StepGuard:
    """Chooses which sequences take part in the next step, so that the one that loses the context is found.

    After a loss each sequence that took part is a suspect. It takes ``2**losses`` steps alone; steps of suspects and
    of the others alternate. A suspect whose step alone loses the context is the cause: it ends in
    :class:`Quarantined`, and so does each request of its key for a time. All others go on; their losses are forgotten
    after as many steps with others.

    Args:
        key_of: See :class:`Keyring`.
        name: Name of the server, for keys.
        clock: Tells the time; for tests.
    """

    def __init__(self, key_of: Callable[[Any], str] | None, name: str, clock: Clock | None) -> None:
        self._quarantine = Quarantine[None](None, clock=clock)
        self._keyring = Keyring(key_of, name)
        self._suspects: dict[int, _Suspect] = {}  # by the number of the request
        self._others_next = True

    @property
    def quarantine(self) -> Quarantine[None]:
        """Refuses requests that have lost a context alone."""
        return self._quarantine

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
        if not self._suspects:
            return ready
        alone = {each.entry.number: each for each in ready if self._is_alone(each.entry)}
        if not alone or (len(alone) < len(ready) and self._others_next):
            self._others_next = False
            return [each for each in ready if each.entry.number not in alone]
        self._others_next = True
        return [next(alone[number] for number in self._suspects if number in alone)]

    def _is_alone(self, entry: Entry) -> bool:
        suspect = self._suspects.get(entry.number)
        return suspect is not None and suspect.alone > 0

    @asynccontextmanager
    async def step(self, entries: list[Entry]) -> AsyncIterator[None]:
        """``async with``: a step of these requests runs in this task, when other work allows it."""
        suspect = self._suspects.get(entries[0].number)
        if suspect is not None and suspect.doubtful and len(entries) == 1:
            async with Truce():
                self._keyring.mark()
                yield
        else:
            await Truce.none()
            self._keyring.mark()
            yield

    def succeeded(self, entries: list[Entry]) -> None:
        """The context outlived a step of these requests."""
        if not self._suspects:
            return
        for entry in entries:
            suspect = self._suspects.get(entry.number)
            if suspect is None:
                continue
            if not suspect.alone:
                suspect.common -= 1
                if not suspect.common:
                    del self._suspects[entry.number]
                continue
            suspect.alone -= 1
            if not suspect.alone and entry.state is State.RUNNING:
                self._quarantine.pardon(self._keyring.identity(entry).key)

    def lost(self, entries: list[Entry], error: ContextLost) -> dict[int, Exception]:
        """A step of these requests, none of which has ended, lost the context.

        Returns:
            The error of each request that is not to go on, by its number.
        """
        if not is_loss(error):
            return dict(zip((entry.number for entry in entries), copies(error, len(entries)), strict=True))
        alone = len(entries) == 1 and self._is_alone(entries[0])
        ends: dict[int, Exception] = {}
        for entry in entries:
            suspect = self._suspects.setdefault(entry.number, _Suspect())
            in_a_row = suspect.alone > 0
            suspect.lost()
            convicted = self._quarantine.blame(self._keyring.identity(entry), error, alone=alone)
            if convicted is not None:
                ends[entry.number] = convicted
            elif in_a_row and suspect.losses > MOST_LOSSES:
                ends[entry.number] = error
            suspect.doubtful = alone
        return ends

    def forget(self, entry: Entry, *, completed: bool) -> None:
        """The request ends; ``completed``: in its value."""
        suspect = self._suspects.pop(entry.number, None)
        if suspect is not None and suspect.alone and completed:
            self._quarantine.pardon(self._keyring.identity(entry).key)
