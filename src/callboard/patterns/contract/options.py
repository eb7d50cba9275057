"""``RequestOptions``: what a caller may say of a request, to any server."""

from collections.abc import Hashable
from typing import TypedDict

__all__ = ["AskOptions", "RequestOptions"]


class AskOptions(TypedDict, total=False):
    """Options of a request beside its time limits.

    Attributes:
        priority: Larger is more urgent; 0 by default.
        cost: What it counts against bounds of cost; otherwise what the server's ``cost`` says of the item, or 1.
        tenant: Whose request it is, for a :class:`FairShareScheduler`: its name, or a tuple of the names of its groups
            and its own. None is a tenant like any other.
        sequence: Which sequence it belongs to, for a :class:`SequenceBatchingServer`.
        start: It begins that sequence.
        end: It ends that sequence.

    A server raises ``TypeError`` for an option that it has no use for.
    """

    priority: int
    cost: float | None
    tenant: Hashable
    sequence: Hashable
    start: bool
    end: bool


class RequestOptions(AskOptions, total=False):
    """All options of a request.

    Attributes:
        deadline: When the value is of no more use, in seconds of ``time.monotonic()``.
        timeout: The same, in seconds from now; the earlier of the two counts.
    """

    deadline: float | None
    timeout: float | None
