"""Host regions: parts of arenas as operands of uploads and downloads."""

from typing import Any

from callboard.core.layout import Layout
from callboard.core.operand import Operand

__all__ = ["HostRegion"]


class _ArenaName:
    """Stands in for a buffer's owner: arenas are named like buffers, and never freed by an op."""

    __slots__ = ("freed", "id")

    def __init__(self, id: int) -> None:
        self.id = id
        self.freed = False


class HostRegion(Operand):
    """A part of an arena.

    Args:
        port: Op line of the device.
        arena: Id of the arena.
        offset: Bytes from its start.
        layout: dtype, shape and strides.
        generation: The current one (arenas outlive contexts).
    """

    __slots__ = ("_port", "allocation", "generation", "layout", "offset")

    def __init__(self, port: Any, arena: int, offset: int, layout: Layout, generation: int) -> None:
        self._port = port
        self.allocation = _ArenaName(arena)
        self.offset = offset
        self.layout = layout
        self.generation = generation
