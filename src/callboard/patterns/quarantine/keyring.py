"""``Keyring``: the keys and labels of a server's requests in a quarantine."""

import itertools
from collections.abc import Callable
from typing import Any

from callboard.device.client.line.entries import GuardedRun
from callboard.device.client.line.port import request_key
from callboard.patterns.quarantine.keys import Identity, content_key
from callboard.patterns.requests.entries import Entry

__all__ = ["Keyring"]

_runs = itertools.count(1)
"""Numbers of the runs of all servers, so that the label of each is its own."""


class Keyring:
    """Finds the key of each request.

    Args:
        key_of: Key of an item; None: that of the caller's :func:`callboard.request_key`, else one by the item's
            content, or one of its own if the content cannot be read.
        name: Name of the server.
    """

    def __init__(self, key_of: Callable[[Any], str] | None, name: str) -> None:
        self._key_of = key_of
        self._name = name

    def read(self, entry: Entry) -> None:
        """Keep the key that its caller gives a new entry; called in the caller's context.

        Raises:
            TypeError: It is not a str.
            Exception: Raised by the user's function.
        """
        found: object = request_key.get() if self._key_of is None else self._key_of(entry.item)
        if found is not None and not isinstance(found, str):
            raise TypeError(f"item_key returned {found!r}; it must be a str, as it appears in errors and in the log")
        entry.caller_key = found

    def identity(self, entry: Entry) -> Identity:
        """The key of an entry that has not ended."""
        if entry.caller_key is not None:
            return Identity(entry.caller_key)
        item, name, label = entry.item, self._name, f"{self._name}:{entry.number}"

        def find() -> str:
            content = content_key(item)
            return label if content is None else f"{name}/{content}"

        return Identity(label, find)

    def mark(self, entry: Entry | None = None) -> None:
        """Mark the calls of this task from now on as one guarded run, of one request or several, in suspects."""
        key = entry and entry.caller_key
        request_key.set(GuardedRun(key or f"{self._name}#{next(_runs)}"))
