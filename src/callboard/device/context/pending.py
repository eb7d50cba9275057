"""``Pending``: an op between its launch and its verdict."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.core.backend import Readback
from callboard.device.protocol import Failure

if TYPE_CHECKING:
    from callboard.device.context.plans import Plan

__all__ = ["FAILED", "FLYING", "OK", "Pending"]

FLYING, OK, FAILED = 0, 1, 2


class Pending(msgspec.Struct, eq=False):
    """An op that has been accepted: its own status, and the ops whose results it reads.

    It outlives its verdict while a buffer names it as its last writer, so that whoever reads that buffer later gets the
    root cause.

    Attributes:
        id: Of the op.
        ticket: On its track.
        sources: Writers of its operands whose verdicts were not known when it was launched.
        check: Raises the op's own failure, once the stream has passed it.
        readback: Its value on the way to the host.
        answer: Its value, when it is there already (a resident actor's turn).
        failure: Set when it failed.
    """

    id: int
    ticket: int
    plan: "Plan | None"
    sources: "Sequence[Pending]"
    check: Callable[[], None] | None = None
    readback: Readback | None = None
    answer: Any = None
    failure: Failure | None = None
    state: int = FLYING

    def fail(self, failure: Failure) -> None:
        self.failure = failure
        self.state = FAILED
        self.sources = ()

    @property
    def root(self) -> int:
        """Id of the op that failed first."""
        assert self.failure is not None
        return self.failure.cause or self.id
