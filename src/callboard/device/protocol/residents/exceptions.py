"""Exceptions of users' code on their way to the caller: the same class if the application has it.

Any exception can be sent: its :class:`FailureMessage` is created and encoded once, on the thread that raised it.
"""

import os
import traceback
import types
from typing import Any

import msgspec

from callboard.core import errors
from callboard.core.errors import AccelError, OutOfMemory
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import FailureMessage
from callboard.device.protocol.residents.classes import known_class, name_of
from callboard.device.protocol.wire import as_text

__all__ = ["described", "is_answer", "is_out_of_memory", "rebuilt", "trace_of"]

MAX_TEXT = 8 << 10
"""Bytes of a message, of a note and of each argument."""

MAX_TRACE = 16 << 10
"""Bytes of a traceback."""

MAX_ITEMS = 32
"""Arguments, attributes and notes of one exception."""

MAX_FAILURE = 60 << 10
"""Bytes of one exception in all, so that a frame holds 1,024 of them."""

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_VENDORS = frozenset({"torch", "cupy", "cupy_backends", "warp", "numba", "cuda", "pycuda", "jax", "jaxlib"})
_OUT_OF_MEMORY = (
    "CUDA out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "RESOURCE_EXHAUSTED",
)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement


def is_answer(error: BaseException) -> bool:
    """True if the error is an answer, after which the actor continues unchanged."""
    return isinstance(error, AccelError) or is_out_of_memory(error)


def is_out_of_memory(error: BaseException) -> bool:
    """True if host or device memory was exhausted, in the wording of any package."""
    if isinstance(error, MemoryError):
        return True
    classes = type(error).__mro__
    if any(c.__name__ == "OutOfMemoryError" and str(c.__module__).partition(".")[0] in _VENDORS for c in classes):
        return True
    return isinstance(error, RuntimeError) and any(text in _text(error) for text in _OUT_OF_MEMORY)


def described(id: int, error: BaseException) -> FailureMessage:
    """The error as plain data for :func:`rebuilt`. Long texts are shortened."""
    try:
        failure = _described(id, error)
        if len(msgspec.msgpack.encode(failure)) > MAX_FAILURE:
            failure.attributes = {k: v for k, v in failure.attributes.items() if k in ("type", "message", "traceback")}
            failure.notes = failure.notes[-1:]
    except BaseException as e:  # users' code runs here: __str__, properties
        text = f"(the exception cannot be described: {type(e).__name__})"
        name = as_text(type(error).__name__, MAX_TEXT)
        return FailureMessage(id, "RemoteError", text, {"type": name, "message": text, "traceback": ""})
    return failure


def trace_of(error: BaseException) -> str:
    """Return the formatted traceback of an error, shortened."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException as e:  # likewise
        text = f"(its traceback failed: {type(e).__name__})"
    return as_text(text, MAX_TRACE)


def _described(id: int, error: BaseException) -> FailureMessage:
    trace = trace_of(error)
    if isinstance(error, AccelError) and getattr(errors, type(error).__name__, None) is type(error):
        failure = as_failure(id, error)
        failure.message = as_text(failure.message, MAX_TEXT)
        failure.attributes = _plain_items(failure.attributes)
        failure.notes = _notes(error)
        return failure
    if is_out_of_memory(error) and not isinstance(error, AccelError):
        failure = as_failure(id, OutOfMemory(f"{type(error).__name__}: {_text(error)}"))
    else:
        cls, text = type(error), _text(error)
        name = as_text(f"{cls.__module__}.{cls.__qualname__}", MAX_TEXT)
        attributes = {"type": name, "message": text, "traceback": trace, **_parts(error)}
        failure = FailureMessage(id, "RemoteError", text, attributes)
    failure.notes = _notes(error)
    if error.__traceback__ is not None:  # it was raised, and not only made
        failure.notes.append(f"in the context host:\n{trace}")
    return failure


def _parts(error: BaseException) -> dict[str, Any]:
    """The arguments for :func:`rebuilt`; empty if an argument cannot be sent."""
    if not isinstance(error, Exception) or len(error.args) > MAX_ITEMS:
        return {}
    try:
        args = [_plain(a) for a in error.args]
    except TypeError:
        return {}
    cls = type(error)
    members = {name: getattr(error, name, None) for name in _members(cls)}
    paths = {k: os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in members.items() if v is not None}
    state = _plain_items(paths | vars(error))
    return {"class": name_of(cls, with_code=False), "args": args, "state": state}


def rebuilt(attributes: dict[str, Any]) -> Exception | None:
    """The exception in its own class; None if this process does not have that class.

    The attributes come from a host: no module is imported, and only subclasses of ``Exception`` are created, from plain
    arguments.
    """
    try:
        cls = known_class(attributes["class"])
        args, state = tuple(attributes["args"]), attributes["state"]
        if not issubclass(cls, Exception) or not _PLAIN.issuperset(map(type, args)):
            return None
        try:
            error = cls(*args)
            if error.args != args:
                raise TypeError
        except Exception:  # its constructor takes other arguments than it passes to its base
            if not cls.__flags__ & _HEAP_TYPE:
                return None
            error = _without_init(cls, args)
        vars(error)["__notes__"] = []  # add_note would set it, which a frozen class refuses
        members = _members(cls)
        for name, value in _plain_items(state).items():
            if name in members:
                BaseException.__setattr__(error, name, value)
            else:
                vars(error)[name] = value
    except Exception:  # no such class here, or a message that is malformed
        return None
    return error


def _without_init(cls: type[Exception], args: tuple[Any, ...]) -> Exception:
    builtin: Any = cls
    while builtin.__flags__ & _HEAP_TYPE:
        builtin = builtin.__base__  # whose memory layout the class has
    error: Exception = builtin.__new__(cls, *args)
    error.args = args
    return error


def _members(cls: type) -> set[str]:
    """Names of the attributes outside ``__dict__``: ``OSError.filename``, ``ImportError.name``, slots."""
    return {
        name
        for base in cls.__mro__
        for name, value in vars(base).items()
        if isinstance(value, types.MemberDescriptorType) and _may_travel(name)
    }


def _may_travel(name: Any) -> bool:
    """True if an exception may be given an attribute of this name: not if it hides a method that callboard calls."""
    return (
        isinstance(name, str) and name.isidentifier() and not name.startswith("__") and not hasattr(BaseException, name)
    )


def _plain_items(values: dict[str, Any]) -> dict[str, Any]:
    """The first :data:`MAX_ITEMS` that can travel."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if len(plain) < MAX_ITEMS and _may_travel(name):
            try:
                plain[name] = _plain(value)
            except TypeError:
                continue
    return plain


def _plain(value: Any) -> Any:
    """The value as exactly one of :data:`_PLAIN`, shortened if it is long.

    Raises:
        TypeError: It is of another type, or an integer of more than 64 bits.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):  # also numpy.str_ and enums, which the encoder does not take
        return as_text(str.__str__(value), MAX_TEXT)
    if isinstance(value, bytes):
        return bytes.__getitem__(value, slice(MAX_TEXT))
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int.__int__(value)
    raise TypeError(type(value).__name__)


def _text(error: BaseException) -> str:
    try:
        return as_text(str(error), MAX_TEXT)
    except BaseException as e:  # a user's __str__ may raise anything
        return f"(its text failed: {type(e).__name__})"


def _notes(error: BaseException) -> list[str]:
    """Return its notes, including the number of bytes of its arguments that are not sent."""
    notes = [as_text(str(n), MAX_TEXT) for n in list(getattr(error, "__notes__", ()))[:MAX_ITEMS]]
    cut = sum(len(a) - MAX_TEXT for a in error.args if isinstance(a, bytes) and len(a) > MAX_TEXT)
    return [*notes, f"{cut:,} bytes of its arguments were left out"] if cut else notes
