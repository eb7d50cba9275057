"""``quoted``: values of clients in error messages, whatever their size."""

from typing import Any

__all__ = ["quoted"]

CHARACTERS = 40
"""Characters of a text at most."""
BITS = 64
"""Bits of a whole number at most."""
ENTRIES = 4
"""Entries of a list or an object at most."""


def quoted(value: Any, depth: int = 2) -> str:
    """A value that JSON can hold, for an error message: its size is named where the value is large.

    Args:
        value: The value. The time this takes does not depend on its size.
        depth: Lists and objects inside one another whose entries are named.
    """
    if isinstance(value, dict | list):
        if len(value) > (ENTRIES if depth else 0):
            return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)} entries"
        if isinstance(value, list):
            return f"[{', '.join(quoted(each, depth - 1) for each in value)}]"
        return f"{{{', '.join(f'{quoted(key)}: {quoted(each, depth - 1)}' for key, each in value.items())}}}"
    if isinstance(value, str) and len(value) > CHARACTERS:
        return f"{value[:CHARACTERS]!r}... ({len(value)} characters)"
    if isinstance(value, int) and value.bit_length() > BITS:
        return f"a number of {value.bit_length()} bits"
    return repr(value)
