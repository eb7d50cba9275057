"""``RequestOptions``: options of a request, for every server."""

from collections.abc import Hashable
from typing import TypedDict

__all__ = ["AskOptions", "RequestOptions"]


class AskOptions(TypedDict, total=False):
    """Options of a request beside its time limits.

    Attributes:
        priority: Larger is more urgent; 0 by default.
        cost: Its share of bounds of cost; by default the server's ``cost`` of the item, or 1.
        tenant: The tenant, for a :class:`FairShareScheduler`: its name, or a tuple of the names of its groups
            and its own. None is a tenant like any other.
        sequence: The sequence of the request, for a :class:`SequenceBatchingServer`.
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
        deadline: When the value becomes useless, in seconds of ``time.monotonic()``.
        timeout: The same, in seconds from now; the earlier of the two counts.
    """

    deadline: float | None
    timeout: float | None
