"""Names of a package that are loaded on first use: its ``__init__.pyi`` says where each is defined."""

import functools
import importlib
import threading
from types import ModuleType

from callboard.events.forking import after_fork

__all__ = ["load", "where"]

_loading = threading.RLock()


def _renew() -> None:
    """In a forked child: the thread that holds the lock is not there."""
    global _loading
    _loading = threading.RLock()


after_fork(_renew)


def load(module: str) -> ModuleType:
    """Import a module that is loaded on first use; those of callboard, one thread at a time.

    Where two threads import the modules of a package in different orders, each waits for a module that the other is
    importing, and CPython ends one of the waits with an error. Modules of callboard do not call this while they are
    imported: a thread that imports one with a statement would wait for the thread that loads it here.

    Raises:
        ImportError
    """
    if not module.startswith("callboard."):  # it may do so
        return importlib.import_module(module)
    with _loading:
        return importlib.import_module(module)


@functools.cache
def where(package: str) -> dict[str, str]:
    """The module of each public name of a package, from the imports of its ``__init__.pyi``.

    Raises:
        ImportError: The package is installed without that file.
    """
    import ast
    import pkgutil

    stub = pkgutil.get_data(package, "__init__.pyi")  # from a zip archive, too
    if stub is None:
        file = f"{package.replace('.', '/')}/__init__.pyi"
        raise ImportError(f"callboard is installed without {file}, the list of public names")
    imports = (node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom))
    return {name.name: str(node.module) for node in imports for name in node.names}
