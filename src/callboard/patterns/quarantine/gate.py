"""``Gate``: which requests may run at the same time, by their standing. No clock, no I/O."""

import asyncio
from collections import OrderedDict

from callboard.patterns.quarantine.blame import Standing

__all__ = ["Gate", "Ticket"]


class Ticket:
    """A request that waits or runs.

    Attributes:
        standing: Standing of the request when it entered.
        running: True if it may run.
        turn: Resolved when it may run; not used by the gate.
    """

    __slots__ = ("running", "standing", "turn")

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.running = False
        self.turn: asyncio.Future[None] | None = None


class Gate:
    """Lets requests run: all that are clear together, with at most one suspect among them, and others alone.

    While a request waits to run alone, none is let in before it. Each step is O(1) per request let in.

    Args:
        spare: True if those that run alone do so elsewhere: then they wait for each other only, and hold up none.
    """

    def __init__(self, *, spare: bool) -> None:
        self._spare = spare
        self._lanes: dict[Standing, OrderedDict[Ticket, None]] = {standing: OrderedDict() for standing in Standing}
        self._running = dict.fromkeys(Standing, 0)

    @property
    def running(self) -> int:
        """The number of running requests."""
        return sum(self._running.values())

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return sum(map(len, self._lanes.values()))

    @property
    def quiet(self) -> bool:
        """True if only requests that are clear run, and none waits: another of them may run at once."""
        running = self._running
        return not (running[Standing.SUSPECT] or running[Standing.ALONE] or any(self._lanes.values()))

    def begin(self) -> None:
        """A request that is clear runs, without a ticket."""
        self._running[Standing.CLEAR] += 1

    def end(self) -> list[Ticket]:
        """A request without a ticket has ended; returns those that may run now."""
        self._running[Standing.CLEAR] -= 1
        return self._let_in() if any(self._lanes.values()) else []

    def enter(self, ticket: Ticket) -> list[Ticket]:
        """Add a request; returns the tickets that may run now, with or without this one."""
        self._lanes[ticket.standing][ticket] = None
        return self._let_in()

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """A request has ended, or waits no more; returns those that may run now."""
        if ticket.running:
            ticket.running = False
            self._running[ticket.standing] -= 1
        else:
            del self._lanes[ticket.standing][ticket]
        return self._let_in()

    def _let_in(self) -> list[Ticket]:
        found: list[Ticket] = []
        alone, suspects, clear = (self._lanes[each] for each in (Standing.ALONE, Standing.SUSPECT, Standing.CLEAR))
        if alone and not self._running[Standing.ALONE] and (self._spare or not self.running):
            self._start(alone, found)
        if (alone or self._running[Standing.ALONE]) and not self._spare:
            return found
        if suspects and not self._running[Standing.SUSPECT]:
            self._start(suspects, found)
        while clear:
            self._start(clear, found)
        return found

    def _start(self, lane: OrderedDict[Ticket, None], found: list[Ticket]) -> None:
        ticket, _ = lane.popitem(last=False)
        ticket.running = True
        self._running[ticket.standing] += 1
        found.append(ticket)
