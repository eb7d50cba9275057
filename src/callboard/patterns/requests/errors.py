"""Errors of requests to serving blueprints, other than those of the function."""

from typing import Literal

from callboard.actors.errors import AccelError, MailboxFull

__all__ = ["BadBatchResult", "DeadlineExceeded", "ItemTooLarge", "QueueFull", "ServerStopped", "SlowReader", "Stage"]

Stage = Literal["submit", "queue", "run"]


class QueueFull(MailboxFull):
    """The server's queue had no room: the request was refused, or dropped in favour of another one.

    Attributes:
        limit: The bound that was reached: of requests, or of their summed cost.
        depth: Number of requests, or their summed cost, in the queue.
        retry_after: Seconds until a batch is expected to have left the queue; None if nothing was measured yet.
    """

    def __init__(self, message: str = "", limit: float = 0, depth: float = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.depth = depth
        self.retry_after = retry_after


class DeadlineExceeded(AccelError, TimeoutError):
    """The request's deadline passed, or was certain to pass, before its value was available.

    Attributes:
        stage: ``"submit"``: refused, since the queue alone would take too long. ``"queue"``: it was never run.
            ``"run"``: it was running, and its value is dropped, or was to run again after a lost context. Batches and
            functions on threads continue; an async call for a single request is cancelled.
        waited: Seconds since it was submitted.
    """

    retryable = True

    def __init__(self, message: str = "", stage: Stage = "queue", waited: float = 0.0) -> None:
        super().__init__(message)
        self.stage: Stage = stage
        self.waited = waited


class BadBatchResult(AccelError):
    """A batch function did not return one result for each item.

    Attributes:
        expected: Number of results.
        got: Number of results; None if the value has no length.
    """

    def __init__(self, message: str = "", expected: int = 0, got: int | None = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.got = got


class ItemTooLarge(AccelError, ValueError):
    """The cost of one item exceeds the limit of a batch, or of the queue. Raised at the call."""


class ServerStopped(AccelError):
    """The server has stopped, or is draining and takes no more requests."""


class SlowReader(AccelError):
    """The reader of a stream has left its buffer full for longer than its ``patience``; the request has ended."""
