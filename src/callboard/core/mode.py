"""Modes: whether ``ref.get()`` returns a reply to await, or waits and returns the array (:mod:`callboard.sync`).

Known to type checkers only: the classes of refs and APIs are the same in both, so an op is written once.
"""

from typing import TYPE_CHECKING, TypeVar

__all__ = ["Asynchronous", "Blocking", "Mode"]


class Asynchronous:
    """Mode in which methods return at once and replies are awaited; the default of ``GpuRef``."""


class Blocking:
    """Methods that have to wait block the calling thread."""


if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # typing's own has defaults from Python 3.13 on

    Mode = TypeVarWithDefault("Mode", default=Asynchronous)
else:
    Mode = TypeVar("Mode")
