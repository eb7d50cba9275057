"""Backend checks of arrays in managed memory."""

from collections.abc import Iterable

from callboard.core.backend import Memory
from callboard.core.errors import UnsupportedOp

__all__ = ["check_managed"]


def check_managed(what: str, managed: Iterable[Memory], address: int) -> None:
    """See that an address is of managed memory.

    Raises:
        UnsupportedOp: It is of other memory.
    """
    if not any(memory.address <= address < memory.address + memory.nbytes for memory in managed):
        raise UnsupportedOp(f"{what}: x is not in managed memory; make it with dev.managed.allocate")
