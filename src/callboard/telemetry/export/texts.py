"""``utf8``, ``json_bytes``: texts and values for exporters, whatever a program has put into them.

Texts of errors, tenants and classes may have halves of surrogate pairs, as file names with undecodable bytes do.
"""

from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["json_bytes", "utf8"]


def utf8(text: str) -> str:
    """The text; halves of surrogate pairs, which UTF-8 does not have, are question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def json_bytes(value: Any, other: Callable[[Any], Any] = str) -> bytes:
    """A value as JSON.

    Args:
        value: The value.
        other: Returns a value that JSON has for one that it does not have.

    Raises:
        TypeError, ValueError, RecursionError: It cannot be written.
    """
    try:
        return msgspec.json.encode(value, enc_hook=other)
    except UnicodeEncodeError:
        return msgspec.json.encode(_clean(msgspec.to_builtins(value, str_keys=True, enc_hook=other)))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, dict):
        return {utf8(key): _clean(each) for key, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list | tuple) else value
