"""``StepGuard``: finds the sequence that loses the context, or fails, among those that run in common steps."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from callboard.actors.clock import Clock
from callboard.core.errors import ContextLost, ContextPoisoned
from callboard.patterns.batching.continuous.isolating import StepIsolation
from callboard.patterns.batching.results import copies
from callboard.patterns.batching.running import OF_ALL
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
    """Chooses which sequences take part in the next step, so that the one that makes it fail is found.

    After a loss each sequence that took part is a suspect. It takes ``2**losses`` steps alone; steps of suspects and
    of the others alternate. A suspect whose step alone loses the context is the cause: it ends in
    :class:`Quarantined`, and so does each request of its key for a time. All others go on; their losses are forgotten
    after as many steps with others.

    After another error, the sequences of that step run apart from the others in the groups of :class:`StepIsolation`;
    the one whose step alone fails ends in its error. An error that no single sequence causes ends them all.

    Args:
        name: Name of the server, for keys.
        clock: Tells the time; for tests.
        idempotent: False: a step that failed does not run again, and ends all its sequences.
    """

    def __init__(self, name: str, clock: Clock | None, *, idempotent: bool = True) -> None:
        self._idempotent = idempotent
        self._isolation = StepIsolation()
        self._quarantine = Quarantine[None](None, clock=clock)
        self._keyring = Keyring(None, name)
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

    @property
    def isolates(self) -> bool:
        """True if sequences of a failed step have given no part since."""
        return self._isolation.active

    def choose(self, ready: list[S]) -> list[S]:
        """Those of the sequences that take part in the next step, in their order; at least one."""
        if not (self._suspects or self._isolation.active):
            return ready
        others = [each for each in ready if not self._is_apart(each.entry)]
        if len(others) == len(ready) or (others and self._others_next):
            self._others_next = False
            return others
        self._others_next = True
        numbers = {each.entry.number for each in ready}
        suspect = next((number for number in self._suspects if number in numbers and self._is_alone(number)), None)
        apart = self._isolation.choose(numbers) if suspect is None else [suspect]
        return [each for each in ready if each.entry.number in apart]

    def _is_apart(self, entry: Entry) -> bool:
        return self._is_alone(entry.number) or self._isolation.holds(entry.number)

    def _is_alone(self, number: int) -> bool:
        suspect = self._suspects.get(number)
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

    def succeeded(self, entries: list[Entry], silent: Collection[int] = ()) -> None:
        """A step of these requests gave results.

        Args:
            entries: The requests.
            silent: The numbers of those that got no part and have not ended.
        """
        if self._isolation.active:
            self._isolation.passed([entry.number for entry in entries], silent)
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

    def failed(self, entries: list[Entry], error: Exception) -> dict[int, Exception]:
        """A step of these requests failed; some may have ended meanwhile.

        Returns:
            The error of each request that is not to go on, by its number; also of some that were not in the step. All
            others of the step are to begin again, and after a ``ContextLost`` all others of the server.
        """
        running = [entry for entry in entries if entry.state is State.RUNNING]
        if self._idempotent and isinstance(error, ContextLost) and is_loss(error):
            return self._lost(running, error)
        numbers = [entry.number for entry in running]
        if self._idempotent and not isinstance(error, OF_ALL):
            return self._isolation.failed(numbers, error, alone=len(entries) == 1)
        return dict(zip(numbers, copies(error, len(numbers)), strict=True))

    def _lost(self, entries: list[Entry], error: ContextLost) -> dict[int, Exception]:
        if isinstance(error, ContextPoisoned) and error.unsent:
            return {}
        alone = len(entries) == 1 and self._is_alone(entries[0].number)
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
        self._isolation.forget(entry.number)
        suspect = self._suspects.pop(entry.number, None)
        if suspect is not None and suspect.alone and completed:
            self._quarantine.pardon(self._keyring.identity(entry).key)
