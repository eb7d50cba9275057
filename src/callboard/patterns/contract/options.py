"""``RequestOptions``: options of a request, for every server."""

import math
import operator
from collections.abc import Hashable
from typing import Any, TypedDict

__all__ = ["COMMON", "AskOptions", "RequestOptions", "checked"]

COMMON = frozenset(("deadline", "timeout", "priority", "cost"))
"""Options of a request that all servers take."""


class AskOptions(TypedDict, total=False):
    """Options of a request other than its time limits.

    Attributes:
        priority: Larger is more urgent; 0 by default.
        cost: Cost of the request in bounds of cost; by default the server's ``cost`` of the item, or 1.
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


def checked(
    options: RequestOptions, now: float, takes: frozenset[str], server: Any
) -> tuple[float | None, int, float | None]:
    """Deadline, priority and cost of a request; None: none, and the server's own.

    Args:
        options: Options of the request.
        now: The time by the server's clock.
        takes: Options that the server accepts besides :data:`COMMON`.
        server: The server, for errors.

    Raises:
        TypeError: An option that the server does not take, a priority that is no integer, or a name, such as that of a
            tenant, that cannot be hashed.
        ValueError: A deadline that is NaN.
    """
    for name in () if COMMON.issuperset(options) else options:
        if name in COMMON:
            continue
        if name in takes:
            _check_hashable(name, options[name])  # type: ignore[literal-required]
            continue
        if name in AskOptions.__annotations__:
            raise TypeError(f"{server.name} is a {type(server).__name__}, which takes no option {name!r}")
        raise TypeError(f"{name!r} is not a request option; use one of {', '.join(sorted(COMMON | takes))}")
    deadline, timeout, priority = options.get("deadline"), options.get("timeout"), options.get("priority", 0)
    if type(priority) is not int:
        priority = operator.index(priority)
    if timeout is not None:
        deadline = now + timeout if deadline is None else min(deadline, now + timeout)
    if deadline is not None and math.isnan(deadline):
        raise ValueError("a deadline and a timeout must be numbers, not NaN")
    return deadline, priority, options.get("cost")


def _check_hashable(name: str, value: object) -> None:
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"{name} is {value!r}; it must be hashable, such as a str, an int, or a tuple of these"
        ) from None
