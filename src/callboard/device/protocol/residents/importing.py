"""Modules that open devices or start actors while they are being imported.

A context host must not import such a module: the import would open devices again. The module's classes and functions
are sent by value instead, during the import and after it. If a host does import such a module, opening a device in it
is refused.
"""

import sys
from types import FrameType

__all__ = ["MAIN", "enter_host", "note_importing", "opened_on_import", "refuse_nested"]

MAIN = frozenset({"__main__", "__mp_main__"})
"""Names of the main module, which no other process can import: multiprocessing's "spawn" gives it the second one."""

_noted: set[str] = set()
_host = ""  # the label of the context host that this process is


def note_importing() -> None:
    """Note the modules whose top level runs on the calling thread, ``__main__`` excepted."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            name = frame.f_globals.get("__name__")
            spec = getattr(sys.modules.get(name or ""), "__spec__", None)
            if spec is not None and getattr(spec, "_initializing", False):
                _noted.add(spec.name)
        frame = frame.f_back


def opened_on_import(module: str) -> bool:
    """True if importing ``module`` runs one of the noted modules: it is one, or is in a package that is."""
    return bool(_noted) and any(module == name or module.startswith(f"{name}.") for name in tuple(_noted))


def enter_host(label: str) -> None:
    """This process is a context host."""
    global _host
    _host = label


def refuse_nested(which: str) -> None:
    """Refuse to open a device in a context host.

    Raises:
        RuntimeError: This process is one.
    """
    if _host:
        raise RuntimeError(
            f"device {which!r} cannot be opened here: this process is the context host of {_host}. A host imports the "
            "module of a resident actor, so a module that opens devices at its top level opens them here again; put "
            'that code under  if __name__ == "__main__":  or into a function'
        )
