"""``CpuModule``: rejects GPU binaries, which a CPU cannot run."""

from typing import ClassVar

from callboard.core.library import Library
from callboard.kernel.module import Inspect, Launch, Link

__all__ = ["CpuModule"]


class CpuModule(Library):
    """Serves nothing of :mod:`callboard.kernel.module`."""

    name = "module"
    refused: ClassVar = dict.fromkeys((Inspect, Launch, Link), "a CPU runs no binaries of a GPU; see @cb.kernel")
