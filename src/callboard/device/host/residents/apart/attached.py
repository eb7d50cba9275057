"""``Attached``: memory of the device's own host, in the process of an actor that has one of its own."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.core.layout import Layout, layout_from_wire
from callboard.device.protocol.residents.regions import NOWHERE

if TYPE_CHECKING:
    from callboard.device.host.context.actor import ContextActor

__all__ = ["Attached"]


class Attached:
    """Finds the regions that are lent for calls (:mod:`callboard.device.protocol.residents.regions`).

    An allocation that was opened stays open until the application says that the device's own host frees it.

    Args:
        context: Open.
    """

    def __init__(self, context: "ContextActor") -> None:
        self._context = context
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
        """Where a region lies in this process. Raises as :meth:`operands`."""
        if isinstance(where, int):
            base, size = self._context.admission.arenas.find(where)
            assert offset <= size
            return base + offset
        if where not in self._open:
            self._open[where] = self._context.device.attach(where)
        return self._open[where] + offset

    def close(self, handles: Iterable[bytes]) -> bool:
        """Close allocations that the device's own host is about to free; no call uses them any more."""
        for handle in handles:
            address = self._open.pop(handle, None)
            if address is not None:
                self._context.device.detach(address)
        return True
