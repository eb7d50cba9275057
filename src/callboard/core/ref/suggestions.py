"""Errors of names that an object lacks, which tell the nearest ones that it has."""

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = ["unknown_name"]


def unknown_name(told: str, name: str, there: Iterable[str], obj: Any = None) -> AttributeError:
    """The error for a name that an object lacks.

    Args:
        told: The first part of its text: ``"dev.blas has no 'gem'"``.
        name: The name.
        there: The names that the object has, for the nearest of them.
        obj: The object, for the interpreter's own advice.

    Tools ask every object for names with an underscore in front (``__wrapped__``, ``_repr_html_``): these get their
    answer at once, without the nearest names.
    """
    if name.startswith("_"):
        return AttributeError(told, name=name, obj=obj)
    near = difflib.get_close_matches(name, [each for each in there if not each.startswith("_")], n=3)
    text = f"{told}; the nearest names are {', '.join(near)}" if near else told
    return AttributeError(text, name=name, obj=obj)
