"""``convert``: that of msgspec, for types that several threads may be the first to use."""

import threading
from typing import Any

import msgspec

__all__ = ["convert"]

_lock = threading.RLock()  # converting can run code of the type, which may convert


def convert(value: Any, hint: Any) -> Any:
    """The value as the type.

    msgspec describes a type to itself when it is first used. Two threads that do so at the same time crash the
    interpreter: the hosts of two devices in one process, for example, which read a first message of one kind.

    Raises:
        msgspec.ValidationError: It does not fit.
    """
    with _lock:
        return msgspec.convert(value, hint)
