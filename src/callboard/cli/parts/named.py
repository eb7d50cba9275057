"""Objects that a command is given as ``module:name``."""

import difflib
import importlib
import sys
from typing import Any, TypeVar, cast

__all__ = ["find"]

T = TypeVar("T")


def find(where: str, kind: type[T], what: str, example: str, known: str, also: tuple[type, ...] = ()) -> T:
    """What ``module:name`` names, in a module of the current folder.

    Args:
        where: As it was given.
        kind: Its class.
        what, example, known: The kind, an example, and its public name, for errors.
        also: Other classes that it may be of.

    Raises:
        ValueError: There is no such module, or nothing of that kind under the name in it.
    """
    module, _, name = where.partition(":")
    if not module or not name:
        raise ValueError(f"{where!r} does not name {what}; give MODULE:NAME, such as {example}")
    sys.path.insert(0, "")
    try:
        found: Any = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as e:
        if e.name != module:
            raise
        raise ValueError(f"there is no module {module!r} here") from e
    classes: tuple[type, ...] = (kind, *also)
    if not isinstance(found, classes):
        is_what = f"has no {name!r}" if found is None else f"has a {type(found).__name__} as {name!r}"
        names = vars(sys.modules[module])
        there = ", ".join(key for key, value in names.items() if isinstance(value, kind))
        near = difflib.get_close_matches(name, [key for key, value in names.items() if isinstance(value, classes)], 1)
        nearest = f" (did you mean {module}:{near[0]}?)" if near and found is None else ""
        raise ValueError(f"module {module} {is_what}{nearest}; its {known}: {there or 'none'}")
    return cast(T, found)
