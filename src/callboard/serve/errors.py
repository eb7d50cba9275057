"""Errors of the serving edge, and the HTTP status that each way to fail has."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from callboard.core.errors import (
    AccelError,
    AskTimeout,
    BackendUnavailable,
    DeviceStopped,
    MailboxFull,
    ShapeError,
    Unrecoverable,
)
from callboard.patterns.batching.sequences.slots import SequenceLost
from callboard.patterns.fairshare.settings import UnknownTenant
from callboard.patterns.quarantine.errors import Quarantined
from callboard.patterns.requests.errors import DeadlineExceeded, ItemTooLarge, QueueFull, ServerStopped, SlowReader

__all__ = [
    "BadAppFile",
    "BadModelResult",
    "BadRequest",
    "CannotListen",
    "HttpError",
    "NotReady",
    "Refusal",
    "needs_extra",
    "refusal_of",
]

LONGEST = 1000
"""Characters of a reason at most: it may repeat what the client has sent."""
RETRY_AFTER = 1
"""The default of ``Retry-After``, in seconds."""
EXTRA = {"anyio", "click", "h11", "starlette", "uvicorn"}


class BadRequest(AccelError, ValueError):
    """The request is malformed. A model may raise it for input that it cannot use: the client gets status 400."""


class BadModelResult(AccelError):
    """A model returned something else than it declares: status 500."""


class CannotListen(OSError):
    """An app cannot be served: its port cannot be listened on, or a file of its TLS cannot be used."""


class BadAppFile(AccelError, ValueError):
    """A TOML file describes no app, or names a model that cannot be loaded."""


class NotReady(AccelError):
    """The application or the model's device is opening, or the application ends: status 503."""

    retryable = True


class HttpError(AccelError):
    """An answer of the edge itself, such as 413 for a body that is too long.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, message: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Refusal:
    """The body of an error response.

    Attributes:
        status: The HTTP status.
        reason: One sentence.
        retry_after: Whole seconds; None if repeating the request would not help.
    """

    status: int
    reason: str
    retry_after: int | None = None


def refusal_of(error: BaseException) -> Refusal:
    """The status of an error: 4xx if the request is at fault, 429 and 503 if it may be repeated later.

    A lost context is 500, not 503: the request may be the cause of the losses, so a client is not asked to repeat it.
    """
    text = (str(error) or type(error).__name__).encode(errors="replace").decode()  # half of a surrogate pair is no text
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} …"
    match error:
        case HttpError():
            return Refusal(error.status, text)
        case BadRequest() | ShapeError():
            return Refusal(400, text)
        case ItemTooLarge():
            return Refusal(413, text)
        case UnknownTenant():
            return Refusal(403, text)
        case SequenceLost():
            return Refusal(409, text)
        case MailboxFull() if not error.retryable:
            return Refusal(413, text)
        case QueueFull():
            seconds = RETRY_AFTER if error.retry_after is None else max(1, math.ceil(error.retry_after))
            return Refusal(429, text, seconds)
        case MailboxFull():
            return Refusal(429, text, RETRY_AFTER)
        case NotReady() | ServerStopped():
            return Refusal(503, text, RETRY_AFTER)
        case DeviceStopped() | Unrecoverable():
            return Refusal(503, text)
        case Quarantined():
            return Refusal(422, text)
        case SlowReader():
            return Refusal(408, text)
        case DeadlineExceeded() | AskTimeout():
            return Refusal(504, text)
    return Refusal(500, text if isinstance(error, AccelError) else f"{type(error).__name__}: {text}")


@contextmanager
def needs_extra() -> Iterator[None]:
    """Around imports of Starlette and uvicorn.

    Raises:
        BackendUnavailable: One of them, or a package that they need, is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as e:
        package = (e.name or "").partition(".")[0]
        if package not in EXTRA:
            raise
        raise BackendUnavailable(
            f"serving over HTTP needs the package {package!r}; install it with: pip install 'callboard[serve]'"
        ) from e
