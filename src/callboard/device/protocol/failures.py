"""Errors as plain data, and back."""

import builtins
from typing import Any

from callboard.core import errors
from callboard.core.errors import AccelError, RemoteError
from callboard.device.protocol.messages import FailureMessage
from callboard.device.protocol.wire import as_text

__all__ = ["as_error", "as_failure"]

MAX_TEXT = 16 << 10
"""Bytes of a message, of a note, of a traceback."""
MAX_NOTES = 16
_PLAIN = (str, int, float, bool, type(None))
_CONTROL = (StopIteration, StopAsyncIteration)  # they end iterations and coroutines, instead of being raised there


def as_failure(id: int, error: BaseException) -> FailureMessage:
    """The error as plain data that can always be sent: long texts are shortened, odd characters escaped.

    A class that the other end does not have becomes a :class:`RemoteError`.
    """
    name = type(error).__name__
    message = as_text(str(error), MAX_TEXT)
    notes = [as_text(str(n), MAX_TEXT) for n in getattr(error, "__notes__", ())[:MAX_NOTES]]
    if isinstance(error, AccelError) and getattr(errors, name, None) is type(error):
        return FailureMessage(id, name, message, _attributes(error), notes)
    if getattr(builtins, name, None) is type(error) and isinstance(error, Exception):
        return FailureMessage(id, name, message, {}, notes)
    import traceback

    attributes = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": message,
        "traceback": as_text("".join(traceback.format_exception(error)), MAX_TEXT),
    }
    return FailureMessage(id, "RemoteError", message, attributes, notes)


def _attributes(error: AccelError) -> dict[str, Any]:
    """The public attributes that MessagePack carries as they are; texts shortened."""
    found: dict[str, Any] = {}
    for name, value in vars(error).items():
        kind = type(value)
        if name.startswith("_") or (kind is int and not -(2**63) <= value < 2**64):
            continue
        if kind in (int, float, bool, type(None)):
            found[name] = value
        elif kind is str:
            found[name] = as_text(value, MAX_TEXT)
    return found


def as_error(failure: FailureMessage) -> Exception:
    """The error that a :class:`FailureMessage` describes, of the same class. Never raises.

    A class that is not available here, or that cannot be constructed from the failure's data, becomes a
    :class:`RemoteError`.
    """
    try:
        error = _made(failure)
    except Exception:  # a constructor takes other arguments (UnicodeDecodeError), or attributes are of the wrong kind
        error = RemoteError(failure.error, failure.message)
    for note in failure.notes:
        error.add_note(note)
    return error


def _made(failure: FailureMessage) -> Exception:
    cls: Any = getattr(errors, failure.error, None) or getattr(builtins, failure.error, None)
    given = failure.attributes
    if cls is RemoteError:
        from callboard.device.protocol.residents.exceptions import rebuilt

        told = {"type": "", "message": failure.message, "traceback": "", **given}
        return rebuilt(given) or RemoteError(*(str(told[k]) for k in ("type", "message", "traceback")))
    if not (isinstance(cls, type) and issubclass(cls, Exception)) or issubclass(cls, _CONTROL):
        return RemoteError(failure.error, failure.message)
    error: Exception = cls(failure.message)
    own = vars(error)
    for key, value in given.items():
        if not key.startswith("_") and isinstance(value, _PLAIN):  # what `as_failure` sends
            if type(value) is not type(own.get(key, value)):
                raise TypeError(f"{key} is {value!r:.80}")
            own[key] = value
    return error
