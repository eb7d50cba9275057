"""The error of a pool that has no replica for a request."""

from callboard.actors.errors import AccelError

__all__ = ["NoReplica"]


class NoReplica(AccelError):
    """All replicas have stopped for good, or the one that ran the request was restarted before it was done."""

    retryable = True
