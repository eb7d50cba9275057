"""Errors as plain data, and back."""

import builtins
from typing import Any

import msgspec

from callboard.core import errors
from callboard.core.errors import AccelError, RemoteError
from callboard.device.protocol import Failure

__all__ = ["as_error", "as_failure"]

_PLAIN = (str, int, float, bool, type(None))


def as_failure(id: int, error: BaseException, cause: int = 0) -> Failure:
    """The error as plain data. A class that the other end does not know becomes a :class:`RemoteError`."""
    name = type(error).__name__
    notes = [str(n) for n in getattr(error, "__notes__", ())]
    if isinstance(error, AccelError) and getattr(errors, name, None) is type(error):
        attributes = {k: v for k, v in vars(error).items() if isinstance(v, _PLAIN) and not k.startswith("_")}
        return Failure(id, name, str(error), attributes, cause, notes)
    if getattr(builtins, name, None) is type(error) and isinstance(error, Exception):
        return Failure(id, name, str(error), {}, cause, notes)
    import traceback

    text = "".join(traceback.format_exception(error))
    attributes = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": str(error),
        "traceback": text,
    }
    return Failure(id, "RemoteError", str(error), attributes, cause, notes)


def as_error(failure: Failure) -> Exception:
    """The error that a :class:`Failure` describes, of the same class."""
    cls: Any = getattr(errors, failure.error, None) or getattr(builtins, failure.error, None)
    if cls is RemoteError:
        from callboard.device.resident.exceptions import rebuilt

        given = failure.attributes
        error: Exception = rebuilt(given) or RemoteError(
            *(str(given.get(k, "")) for k in ("type", "message", "traceback")),
        )
    elif isinstance(cls, type) and issubclass(cls, Exception):
        error = cls(failure.message)
        for key, value in failure.attributes.items():
            setattr(error, key, value)
    else:
        error = RemoteError(failure.error, failure.message)
    for note in failure.notes:
        error.add_note(note)
    return error


def same_for(id: int, failure: Failure, cause: int, note: str) -> Failure:
    """The failure of an op that read what a failed op owed: same class and text, and a note of how it got there."""
    return msgspec.structs.replace(failure, id=id, cause=cause, notes=[*failure.notes, note])
