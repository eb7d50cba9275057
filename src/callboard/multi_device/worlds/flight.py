"""``Flight``: one call that has been submitted to ranks: its parts, and the replies that end with them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callboard.core.reply import Reply
from callboard.multi_device.worlds.reply import Collective

__all__ = ["Flight"]


class Flight:
    """The parts of a collective, or of a group, in flight.

    Args:
        world, call: The numbers of the formation, and of the call in it.
        collectives: The replies.
        part_failed: Called with this, the rank and the error of each part that fails before all have ended.
        ended: Called with this and whether it succeeded, once.

    Attributes:
        pending: The ranks whose parts have not ended.
        held: Rank and error of a part that failed of another rank, whose own error is waited for; None: there is none.
        overdue: That has been waited for long enough.
    """

    __slots__ = ("_ended", "_part_failed", "call", "collectives", "done", "held", "overdue", "pending", "world")

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
        self.pending: set[int] = set()
        self.held: tuple[int, BaseException] | None = None
        self.overdue = False
        self._part_failed = part_failed
        self._ended = ended

    def begin(self, parts: Mapping[int, Reply[Any]]) -> None:
        """Wait for these parts, by rank."""
        self.pending.update(parts)
        for rank, part in parts.items():
            self._await(rank, part)

    def fail(self, make: Callable[[], BaseException]) -> None:
        """Fail what has no completion."""
        if not self.done:
            self.done = True
            for collective in self.collectives:
                collective.fail(make)
            self._ended(self, False)

    def _await(self, rank: int, part: Reply[Any]) -> None:
        part.when_done(lambda: self._part_done(rank, part))

    def _part_done(self, rank: int, part: Reply[Any]) -> None:
        error = part.exception()  # looked at here, so that it does not go to dead letters, too
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
