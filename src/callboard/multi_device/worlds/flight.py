"""``Flight``: one call that has been submitted to ranks: its parts, and the replies that end with them."""

from collections.abc import Callable, Sequence
from typing import Any

from callboard.core.ref import GpuRef
from callboard.core.reply import OpFailure
from callboard.multi_device.worlds.reply import Collective

__all__ = ["Flight", "PartReply"]


class PartReply:
    """The part of one rank in a call: settles the refs that it writes, and reports its completion to the flight.

    Args:
        flight: Flight of the call.

    Attributes:
        rank: The rank.
        port: Port of the rank's device.
        refs: Refs that the part writes.
    """

    __slots__ = ("_done", "_flight", "port", "rank", "refs")

    def __init__(self, flight: "Flight", rank: int, port: Any) -> None:
        self._flight = flight
        self.rank = rank
        self._done = False
        self.port = port
        self.refs: tuple[GpuRef[Any], ...] = ()

    def done(self) -> bool:
        """True if its completion is known."""
        return self._done

    def _resolve(self) -> None:
        self._done = True
        for ref in self.refs:
            ref._resolve()
        self._flight.part_ended(self.rank, None)

    def _reject(self, failure: OpFailure) -> None:
        self._done = True
        for ref in self.refs:
            ref._reject(failure)
        self._flight.part_ended(self.rank, failure.error())  # seen here, so that it does not also become a dead letter


class Flight:
    """The parts of a collective, or of a group, in flight.

    Args:
        world, call: The numbers of the formation, and of the call in it.
        collectives: The replies.
        part_failed: Called with this, the rank and the error of each part that fails before all have ended.
        ended: Called with this and whether it succeeded, once.

    Attributes:
        parts: Parts of the participating ranks.
        pending: The ranks whose parts have not ended.
        held: Rank and error of a part that failed because of another rank, whose own error is awaited; None: there is
            none.
        overdue: True when the wait for that error has taken long enough.
    """

    __slots__ = (
        *("_begun", "_early", "_ended", "_part_failed", "call", "collectives", "done", "held", "overdue", "parts"),
        *("pending", "world"),
    )

    def __init__(
        self,
        world: int,
        call: int,
        collectives: Sequence[Collective[Any]],
        part_failed: "Callable[[Flight, int, BaseException], None]",
        ended: "Callable[[Flight, bool], None]",
    ) -> None:
        self.world = world
        self.call = call
        self.collectives = collectives
        self.done = False
        self.parts: list[PartReply] = []
        self.pending: set[int] = set()
        self.held: tuple[int, BaseException] | None = None
        self.overdue = False
        self._begun = False
        self._early: list[tuple[int, BaseException | None]] = []
        self._part_failed = part_failed
        self._ended = ended

    def part(self, rank: int, port: Any) -> PartReply:
        """The part of a rank, which is about to be submitted."""
        made = PartReply(self, rank, port)
        self.parts.append(made)
        self.pending.add(rank)
        return made

    def begin(self) -> None:
        """All parts have been submitted, maybe by another thread than the loop's: some may have ended."""
        self._begun = True
        for rank, error in self._early:
            self.part_ended(rank, error)

    def fail(self, make: Callable[[], BaseException]) -> None:
        """Fail the parts that have no completion."""
        if not self.done:
            self.done = True
            for collective in self.collectives:
                collective.fail(make)
            self._ended(self, False)

    def part_ended(self, rank: int, error: BaseException | None) -> None:
        """Count the part of a rank. On the loop's thread."""
        if not self._begun:
            self._early.append((rank, error))
            return
        if self.done:
            return
        self.pending.discard(rank)
        if error is not None:
            self._part_failed(self, rank, error)
        elif self.held is not None:
            self._part_failed(self, *self.held)
        elif not self.pending:
            self.done = True
            for collective in self.collectives:
                collective.succeed()
            self._ended(self, True)
