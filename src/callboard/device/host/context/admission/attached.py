"""``Attached``: memory of other processes that is open in this one."""

from collections.abc import Iterable, Sequence
from typing import Any

from callboard.core.backend import AccelDevice
from callboard.core.layout import Layout, layout_from_wire
from callboard.device.host.context.admission.arenas import Arenas
from callboard.device.protocol.residents.regions import NOWHERE

__all__ = ["Attached"]


class Attached:
    """Finds the regions that are lent for calls and for copies (:mod:`callboard.device.protocol.residents.regions`).

    An opened allocation stays open until the application reports that the host which owns it frees it.

    Args:
        device: Opens the allocations.
        arenas: Arenas of the context.
    """

    def __init__(self, device: AccelDevice, arenas: Arenas) -> None:
        self._device = device
        self._arenas = arenas
        self._open: dict[bytes, int] = {}  # addresses by handle

    def operands(self, regions: Sequence[Sequence[Any]], arrays: Iterable[Any]) -> list[tuple[int, Layout, bool]]:
        """Address of element 0, layout, and whether it may be written, of each array of a call.

        Raises:
            OutOfMemory, UnsupportedOp, DriverError: A region cannot be opened.
        """
        found = [self.address(where, offset) for where, offset in regions]
        operands = []
        for region, offset, wire, written in arrays:
            base = 0 if region == NOWHERE else found[region]
            operands.append((base + offset, layout_from_wire(*wire), written))
        return operands

    def address(self, where: int | bytes, offset: int) -> int:
        """Address of a region in this process. Raises as :meth:`operands`."""
        if isinstance(where, int):
            base, size = self._arenas.find(where)
            assert offset <= size
            return base + offset
        if where not in self._open:
            self._open[where] = self._device.attach(where)
        return self._open[where] + offset

    def close(self, handles: Iterable[bytes]) -> bool:
        """Close allocations that the host which has them is about to free; nothing uses them any more."""
        for handle in handles:
            address = self._open.pop(handle, None)
            if address is not None:
                self._device.detach(address)
        return True
