"""Exceptions of users' code on their way to the asker: the same class where the application has it."""

import sys
import traceback
from typing import Any

from callboard.core import errors
from callboard.core.errors import AccelError, OutOfMemory
from callboard.device.failures import as_failure
from callboard.device.protocol import Failure
from callboard.device.resident.classes import class_named, name_of

__all__ = ["described", "is_answer", "is_out_of_memory", "rebuilt"]

_PLAIN = (str, bytes, int, float, bool, type(None))
_VENDORS = frozenset({"torch", "cupy", "cupy_backends", "warp", "numba", "cuda", "pycuda", "jax", "jaxlib"})
_OUT_OF_MEMORY = (
    "CUDA out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "RESOURCE_EXHAUSTED",
)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement


def is_answer(error: BaseException) -> bool:
    """Whether the error is an answer, after which the actor goes on as it is."""
    return isinstance(error, AccelError) or is_out_of_memory(error)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the host or the device had no room, in the words of any package."""
    if isinstance(error, MemoryError):
        return True
    classes = type(error).__mro__
    if any(c.__name__ == "OutOfMemoryError" and c.__module__.partition(".")[0] in _VENDORS for c in classes):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


def described(id: int, error: BaseException) -> Failure:
    """The error as plain data, with what :func:`rebuilt` needs."""
    text = "".join(traceback.format_exception(error))
    if is_out_of_memory(error) and not isinstance(error, AccelError):
        failure = as_failure(id, OutOfMemory(f"{type(error).__name__}: {error}"))
        return _noted(failure, error, text)
    if isinstance(error, AccelError) and getattr(errors, type(error).__name__, None) is type(error):
        return as_failure(id, error)
    cls = type(error)
    attributes: dict[str, Any] = {
        "type": f"{cls.__module__}.{cls.__qualname__}",
        "message": _text(error),
        "traceback": text,
    }
    if isinstance(error, Exception) and _all_plain(error.args):
        attributes["class"] = name_of(cls, with_code=False)
        attributes["args"] = list(error.args)
        attributes["state"] = {k: v for k, v in vars(error).items() if isinstance(v, _PLAIN) and k != "__notes__"}
    return _noted(Failure(id, "RemoteError", _text(error), attributes, 0, _notes(error)), error, text)


def rebuilt(attributes: dict[str, Any]) -> Exception | None:
    """The exception in its own class; None where the application does not have that class.

    A class counts as had when its module is loaded, belongs to a package that is loaded, or to the standard library: a
    failing call must not load a vendor's package into the application.
    """
    name = attributes.get("class")
    if name is None:
        return None
    try:
        if isinstance(name, str) and not _may_import(name.partition(":")[0]):
            return None
        cls = class_named(name)
    except Exception:  # whatever a module's import raises: the error itself is what the asker is to see
        return None
    if not issubclass(cls, Exception):
        return None
    args, state = tuple(attributes["args"]), attributes["state"]
    try:
        error = cls(*args)
        if error.args != args:
            raise TypeError
    except Exception:  # its constructor takes something else than what it hands on
        error = _without_init(cls, args)
    vars(error).update(state)
    return error


def _without_init(cls: type[Exception], args: tuple[Any, ...]) -> Exception:
    builtin: Any = cls
    while builtin.__flags__ & _HEAP_TYPE:
        builtin = builtin.__base__  # whose memory layout the class has
    error: Exception = builtin.__new__(cls, *args)
    error.args = args
    return error


def _may_import(module: str) -> bool:
    top = module.partition(".")[0]
    return module in sys.modules or top in sys.modules or top in sys.stdlib_module_names


def _all_plain(values: tuple[Any, ...]) -> bool:
    return all(isinstance(v, _PLAIN) and not (isinstance(v, int) and v.bit_length() > 63) for v in values)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as e:  # a user's __str__ may raise anything
        return f"(its text failed: {type(e).__name__})"


def _notes(error: BaseException) -> list[str]:
    return [str(n) for n in getattr(error, "__notes__", ())]


def _noted(failure: Failure, error: BaseException, trace: str) -> Failure:
    if error.__traceback__ is not None:  # it was raised, and not only made
        failure.notes = [*failure.notes, f"in the context host:\n{trace}"]
    return failure
