"""``Pending``: an op between its launch and its completion."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.core.backend import Readback, Status
from callboard.device.protocol.messages import FailureMessage

if TYPE_CHECKING:
    from callboard.device.host.context.plans.plan import Plan

__all__ = ["FAILED", "FLYING", "OK", "Pending"]

FLYING, OK, FAILED = 0, 1, 2


class Pending(msgspec.Struct, eq=False):
    """An op that has been accepted: its own status, and the ops whose results it reads.

    It outlives its completion while a buffer names it as its last writer, so that a later reader of that buffer gets
    the root cause.

    Attributes:
        id: Id of the op.
        seq: Sequence number on its timeline.
        sources: Writers of its operands whose completions were not known when it was launched.
        status: Status of the op, None if it cannot fail by itself.
        outcome: Readback that the status is checked with, in transfer to the host; None when nothing has to be copied.
        readback: Value in transfer to the host.
        answer: Value of the op, if it is already known (a resident actor's call).
        once: It failed, and its operands are as they were: only the next op that reads them fails, too.
        failure: Set when it failed; that of the op that failed first, when this one would have read its result.
    """

    id: int
    seq: int
    plan: "Plan | None"
    sources: "Sequence[Pending]"
    status: Status | None = None
    outcome: Readback | None = None
    readback: Readback | None = None
    answer: Any = None
    failure: FailureMessage | None = None
    once: bool = False
    state: int = FLYING

    def fail(self, failure: FailureMessage) -> None:
        self.failure = failure
        self.state = FAILED
        self.sources = ()
