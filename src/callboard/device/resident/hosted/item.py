"""What passes between the admitting thread and an actor's: where it runs, a turn, and how that has ended."""

from typing import TYPE_CHECKING, NamedTuple

from callboard.core.backend import AccelDevice, AccelEvent
from callboard.core.layout import Layout
from callboard.device.context.blocks import Block
from callboard.device.context.pending import Pending
from callboard.device.context.tracks import Track
from callboard.device.protocol import Failure, Turn
from callboard.device.resident.hosted.staging import StagedTurn
from callboard.device.resident.operands import Adopted

if TYPE_CHECKING:
    from callboard.device.resident.hosted.turns import ActorThread

__all__ = ["Ended", "Item", "Site", "used"]


class Site(NamedTuple):
    """Where an actor runs, once there is a context."""

    device: AccelDevice
    track: Track
    on_host: bool
    """The device's memory is the process's own."""
    ordinal: int


class Item:
    """An admitted turn.

    Attributes:
        message: The call.
        op: What stands for it among the ops.
        holds: Others are kept off its device arrays until it ends.
        operands: ``(address, layout, writable)`` of its device arrays.
        blocks: ``(block, writable)`` of the same.
        start: On a CPU: what the thread waits for before it touches them.
        staged: The arrays that came beside it.
    """

    __slots__ = ("blocks", "holds", "message", "op", "operands", "staged", "start")

    def __init__(self, message: Turn, op: Pending, staged: StagedTurn | None) -> None:
        self.message = message
        self.op = op
        self.holds = False
        self.operands: list[tuple[int, Layout, bool]] = []
        self.blocks: list[tuple[Block, bool]] = []
        self.start: AccelEvent | None = None
        self.staged = staged


class Ended(NamedTuple):
    """How a turn ended, for the admitting thread."""

    actor: "ActorThread"
    item: Item
    value: bytes
    adopted: list[Adopted]
    failure: Failure | None = None
    trim: bool = False
    """Memory was short: give back what caches hold."""
    asked: bool = False
    """The actor waits to hear whether the failure was its own, or that of an op whose result it read."""


def used(turn: Turn) -> tuple[list[int], list[int]]:
    """Buffers that it reads only, and those that it may write."""
    reads: list[int] = []
    writes: list[int] = []
    for buffer, written in zip(turn.places[::2], turn.writes, strict=True):
        (writes if written else reads).append(buffer)
    return reads, writes
