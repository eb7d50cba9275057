"""What a library's package exports: the names that its modules export."""

import sys
from types import ModuleType

__all__ = ["export_all"]


def export_all(package: str) -> None:
    """Set ``__all__`` of a package to the names that it has imported, for ``help()`` and ``import *``.

    The package imports ``*`` from its modules with messages, so an op is named in its module only. Type checkers take
    these imports as exports; an ``__all__`` that is computed in the package itself would hide them.
    """
    names = vars(sys.modules[package])
    public = (name for name, value in names.items() if name[0] != "_" and not isinstance(value, ModuleType))
    names["__all__"] = sorted(public)
