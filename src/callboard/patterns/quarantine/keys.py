"""Keys of requests in a quarantine: by what an item contains, found when they are first needed."""

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

__all__ = ["Identity", "content_key"]


class Identity:
    """The key of a request, which is computed when it is first read.

    Args:
        label: Text for errors; also the key if there is no ``find``.
        find: Returns the key.
    """

    __slots__ = ("_find", "_key", "label")

    def __init__(self, label: str, find: Callable[[], str] | None = None) -> None:
        self.label = label
        self._find = find
        self._key: str | None = None

    @property
    def lazy(self) -> bool:
        """True if the key has not been read."""
        return self._key is None and self._find is not None

    @property
    def key(self) -> str:
        """Equal for requests that would cause the same loss."""
        if self._key is None:
            self._key = self.label if self._find is None else self._find()
            self._find = None  # and with it the item
        return self._key


def content_key(item: Any) -> str | None:
    """A text that is equal for equal items: 16 hexadecimal digits of BLAKE2b over their contents.

    Args:
        item: Numbers, texts, bytes, NumPy arrays, functions (by name), structs, dataclasses, models of pydantic,
            and lists, tuples, sets and dicts of these.

    Returns:
        The text; None if the item contains anything else, such as an array on a device.
    """
    try:
        content = msgspec.msgpack.encode(item, enc_hook=_plain, order="deterministic")
    except Exception:  # of a property or a length of an object of the caller's
        return None
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return [str(value.dtype), value.shape, value.tolist()]
        content = np.ascontiguousarray(value).view(np.uint8).data if value.size else b""
        return [str(value.dtype), value.shape, hashlib.sha256(content).digest()]
    if isinstance(value, np.generic):
        return [str(value.dtype), value.tobytes()]
    if isinstance(getattr(type(value), "model_fields", None), dict):  # of pydantic
        fields: Any = value
        return [type(value).__qualname__, dict(fields)]
    if inspect.isfunction(value):
        return value.__qualname__
    raise NotImplementedError(type(value))
