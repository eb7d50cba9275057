"""``Entry``: one request inside a server, from its submission to its end."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from callboard.patterns.requests.passage import Passage

__all__ = ["Entry", "RequestFuture", "State"]

R = TypeVar("R")

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class State(Enum):
    """The state of a request."""

    NEW = "new"
    BLOCKED = "blocked"
    """It waits for room in the queue."""
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class Entry:
    """One request. Policies order entries by their attributes and use neither loops nor futures.

    Attributes:
        number: Position in the order of submission.
        item: The submitted item; None once the request has ended.
        arrived: When it was submitted, in seconds of the server's clock.
        deadline: When the value becomes useless, on that clock; None: never.
        admit_by: When it must have found room in the queue; None: there is no such limit.
        priority: Larger is more urgent.
        cost: Cost of the request in bounds of cost.
        key: Key of the batch: only entries of equal keys run together.
        state: State of the request.
        clear: True while a quarantine lets it run beside all others, with nothing held against it.
        caller_key: The :func:`callboard.request_key` of its caller, where a quarantine needs it.
        repeated: True if it runs, or is to run, again after a lost context.
        started: When it was taken out of the queue to run.
        future: Receives the end; left alone by policies.
        passage: Its way through several servers; None where that interests nothing.
        outlet: Receives the parts of its answer; None: its caller waits for all of it.
        options: The options that only some servers take, by name.
        trace: Its trace context, if telemetry is on.
        parent: The trace context that it came with.
        request_id: Id of the HTTP request that it belongs to.
    """

    __slots__ = (
        *("admit_by", "arrived", "caller_key", "clear", "cost", "deadline", "future", "item", "key", "number"),
        *("options", "outlet", "parent", "passage", "priority", "repeated", "request_id", "started", "state", "trace"),
    )

    def __init__(
        self,
        number: int,
        item: Any,
        arrived: float,
        deadline: float | None = None,
        priority: int = 0,
        cost: float = 1,
        key: Hashable = None,
    ) -> None:
        self.number = number
        self.item = item
        self.arrived = arrived
        self.deadline = deadline
        self.admit_by: float | None = None
        self.priority = priority
        self.cost = cost
        self.key = key
        self.state = State.NEW
        self.clear = False
        self.caller_key: str | None = None
        self.repeated = False
        self.started = arrived
        self.trace: str | None = None
        self.parent: str | None = None
        self.request_id: str | None = None
        self.future: Any = None
        self.outlet: Any = None
        self.passage: Passage | None = None
        self.options: Mapping[str, Any] = NO_OPTIONS

    @property
    def has_parts(self) -> bool:
        """True if part of the answer has been delivered, which would be repeated if it ran again."""
        return self.outlet is not None and bool(self.outlet.count)

    def __repr__(self) -> str:
        return f"<Entry {self.number} {self.state.value}, priority {self.priority}, key {self.key!r}>"


class RequestFuture(asyncio.Future[R]):
    """The future of a request: the request leaves its server at once when this is cancelled.

    Attributes:
        entry: Entry of the request.
        left: Called with the entry when this is cancelled.
    """

    __slots__ = ("entry", "left")

    entry: Entry
    left: Callable[[Entry], None]

    def cancel(self, msg: Any = None) -> bool:
        done = super().cancel(msg)
        if done:
            self.left(self.entry)
        return done
