"""Names of models and versions, as parts of URLs."""

from callboard.events.names import check_name as check_text

__all__ = ["NAME", "check_name"]

BEHIND = ("versions", "infer", "ready", "config", "stats", "trace", "generate", "generate_stream", "load", "unload")
"""What follows a name in URLs, and so is no further part of it."""

NAME = rf"[^/]+(?:/(?!(?:{'|'.join(BEHIND)})(?:/|$))[^/]+)*"
"""A name in a URL, as a regular expression: parts with slashes between them, as in ``org/model``."""


def check_name(name: str, version: str) -> None:
    """Raise unless a model can be asked by its name and version.

    Raises:
        TypeError, ValueError: It cannot; says why.
    """
    check_text("a model", name)
    check_text("a version", version)
    first, *others = name.split("/")
    if not version or "/" in version or not first or not all(others):
        raise ValueError(f"a model's name and version are parts of URLs, but are {name!r} and {version!r}")
    taken = next((part for part in others if part in BEHIND), None)
    if taken is not None:
        raise ValueError(f"model {name!r}: {taken!r} follows a model's name in URLs, and is no part of one")
    if {".", ".."} & {first, *others}:
        raise ValueError(f"model {name!r}: '.' and '..' are no parts of a name, as clients remove them from URLs")
