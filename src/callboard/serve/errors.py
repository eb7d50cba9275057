"""Errors of the serving edge, and the HTTP status and the reason that clients get for each way to fail."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from callboard.actors.errors import printable
from callboard.core.errors import (
    AccelError,
    AskTimeout,
    BackendUnavailable,
    BudgetSpent,
    ContextLost,
    DeviceStopped,
    MailboxFull,
    ShapeError,
    Unrecoverable,
)
from callboard.patterns.batching.sequences.slots import SequenceLost
from callboard.patterns.fairshare.settings import UnknownTenant
from callboard.patterns.hotswap.errors import SwapFailed
from callboard.patterns.quarantine.errors import Quarantined
from callboard.patterns.replicas.errors import NoReplica
from callboard.patterns.requests.errors import DeadlineExceeded, ItemTooLarge, QueueFull, ServerStopped, SlowReader

__all__ = [
    "BadAppFile",
    "BadModelResult",
    "BadRequest",
    "CannotListen",
    "HttpError",
    "ModelStopped",
    "ModelUnloaded",
    "NotReady",
    "Refusal",
    "code_of",
    "needs_extra",
    "plain_key",
    "refusal_of",
]

LONGEST = 1000
"""Characters of a reason at most: it may repeat what the client has sent."""
RETRY_AFTER = 1
"""The default of ``Retry-After``, in seconds."""
CONTENT_KEY = re.compile(r"(?s:.*)/([0-9a-f]{16})")
"""A key that a server made of a request's content, behind the server's name."""
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


class ModelUnloaded(NotReady):
    """A model was unloaded: status 503, and waiting does not help until it is loaded again."""

    retryable = False


class ModelStopped(DeviceStopped):
    """A device or a server that a model needs has stopped for good: status 503, and repeating does not help."""


class HttpError(AccelError):
    """An answer for the client, with its text: of the edge, such as 413 for a body that is too long, or of a hook.

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
        told: The reason says all that is known of the error; else the log has more.
    """

    status: int
    reason: str
    retry_after: int | None = None
    told: bool = True


LATE = {
    "submit": "the queue alone would take longer than the deadline of the request",
    "queue": "the request waited beyond its deadline, and was not run",
    "run": "the request ran beyond its deadline",
}


def refusal_of(error: BaseException, model: str | None = None) -> Refusal:
    """The status of an error: 4xx if the request is at fault, 429 and 503 if it may be repeated later.

    The text of an error is for the client only if its class is made for that: ``HttpError``, ``BadRequest``,
    ``ShapeError``, ``BudgetSpent``, ``ItemTooLarge``, ``NotReady``, and what our servers raise where there is no room
    or no sequence. Other texts are the model's: they may hold data of other requests, paths or secrets, and are for the
    log.

    A lost context is 500, not 503: the request may be the cause of the losses, so a client is not asked to repeat it.

    Args:
        error: The error.
        model: Name of the model that was asked, if known.
    """
    match error:
        case HttpError():
            return Refusal(error.status, _text(error))
        case BadRequest() | ShapeError():
            return Refusal(400, _text(error))
        case ItemTooLarge():
            return Refusal(413, _text(error))
        case UnknownTenant():
            return Refusal(403, "the tenant is not known" if error.tenant is None else _text(error))
        case SequenceLost():
            return Refusal(409, "the sequence does not exist" if error.sequence is None else _text(error))
        case MailboxFull() if not error.retryable:
            return Refusal(413, "the request needs more than the model's device can ever hold", told=False)
        case QueueFull():
            seconds = RETRY_AFTER if error.retry_after is None else max(1, math.ceil(error.retry_after))
            return Refusal(429, _text(error) if error.limit else "the queue is full", seconds)
        case MailboxFull():
            return Refusal(429, "the model has no room for the request now", RETRY_AFTER, told=False)
        case NotReady():
            return Refusal(503, _text(error), RETRY_AFTER if error.retryable else None)
        case NoReplica():
            wait = RETRY_AFTER if error.retryable else None
            return Refusal(503, "no replica of the model takes requests", wait, told=False)
        case ServerStopped():
            return Refusal(503, "a server that the request needs has stopped", told=False)
        case ModelStopped():
            return Refusal(503, _text(error))
        case Unrecoverable():
            return Refusal(503, "a device that the model needs has stopped", told=False)
        case Quarantined():
            return Refusal(422, _refused(error, model))
        case SlowReader():
            return Refusal(408, "the response was not read in time")
        case DeadlineExceeded():
            return Refusal(504, LATE.get(error.stage, LATE["run"]))
        case BudgetSpent():
            return Refusal(504, _text(error))
        case AskTimeout():
            return Refusal(504, "the model did not answer in time", told=False)
        case ContextLost():
            return Refusal(500, "the model's device lost its context while the request ran", told=False)
        case BadModelResult():
            return Refusal(500, "the model returned something else than it declares", told=False)
        case SwapFailed():
            why = (
                "the version was withdrawn in its trial" if error.phase == "canary" else "the model could not be loaded"
            )
            return Refusal(500, f"{why}, and the model is as it was before", told=False)
    return Refusal(500, "the model failed" if model else "the request failed", told=False)


def code_of(error: BaseException) -> str:
    """The name of an error's class, if that is one of callboard's; else ``"ModelFailed"``."""
    ours = type(error).__module__.partition(".")[0] == __name__.partition(".")[0]
    return type(error).__name__ if ours else "ModelFailed"


def plain_key(key: str) -> str:
    """The key of a quarantine as clients see it: of one that was made from the content, its digits alone."""
    found = CONTENT_KEY.fullmatch(key)
    return key if found is None else found[1]


def _refused(error: Quarantined, model: str | None) -> str:
    """The reason for a request that is in quarantine."""
    which = "" if model is None else f"model {model!r}: "
    key = f"request {plain_key(error.key)!r}" if error.key else "the request"
    losses = f"was in flight at {len(error.generations)} losses of a context"
    return f"{which}{key} {losses}, and ran alone at the last; it is refused for {error.retry_after:.0f} s"


def _text(error: BaseException) -> str:
    text = (
        (printable(error) or type(error).__name__).encode(errors="replace").decode()
    )  # half of a surrogate pair is no text
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


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
