"""Records that the admitting thread and an actor's thread exchange: site, call, and result."""

import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from callboard.core.backend import AccelDevice, AccelEvent
from callboard.core.errors import AccelError
from callboard.core.layout import Layout
from callboard.device.host.context.blocks import Block
from callboard.device.host.context.libraries import Libraries
from callboard.device.host.context.pending import Pending
from callboard.device.host.context.timelines import Timeline
from callboard.device.host.residents.operands import Adopted
from callboard.device.host.residents.staging import HostMemory, StagedCall
from callboard.device.protocol.messages import ActorCall, FailureMessage

if TYPE_CHECKING:
    from callboard.device.host.residents.apart.holder import Holder
    from callboard.device.host.residents.thread.thread import ActorThread

__all__ = ["EndedCall", "Item", "Outcome", "Site", "used"]


class Site(NamedTuple):
    """The location of an actor; known once there is a context."""

    device: AccelDevice
    timeline: Timeline
    on_host: bool
    """The device's memory is host memory of this process."""
    ordinal: int
    libraries: Libraries
    """The libraries of the context that the backend provides."""
    memory_limit: int | None


class Item(msgspec.Struct, eq=False):
    """An admitted call.

    Attributes:
        message: The call.
        op: Entry among the pending ops.
        staged: Host arrays of the call that are in an arena.
        holds: True if its device arrays are held until it ends.
        operands: ``(address, layout, writable)`` of its device arrays.
        blocks: ``(block, writable)`` of the same.
        start: Event that the actor's thread waits for before it accesses the operands; CPU only.
        room: Memory for the arrays of its result, if the call provided some.
        method: Name of the method, or of the message's class; empty until the actor has read it.
        stream: The stream that it makes an item of; 0 for other calls.
        cancelled: The reply for a call that was cancelled before it began; None while the call is wanted.
        behind: Earlier calls of the same actor that had not ended when it was admitted, and whose results it uses.
        claims: Those who took the call, of whom the first one counts: whether it refuses the call.
        trace: Trace context of the request that it is for; known with ``method``.
        began, ended: Monotonic seconds: the actor's thread has begun and ended it; 0 until then.
    """

    message: ActorCall
    op: Pending
    staged: StagedCall | None
    room: HostMemory | None = None
    operands: list[tuple[int, Layout, bool]] = []
    blocks: list[tuple[Block, bool]] = []
    behind: "list[Item]" = []
    claims: list[list[bool]] = []
    holds: bool = False
    start: AccelEvent | None = None
    method: str = ""
    stream: int = 0
    cancelled: AccelError | None = None
    trace: str | None = None
    began: float = 0.0
    ended: float = 0.0

    def claim(self, *, refuse: bool = False) -> bool:
        """Take the call, to run or to refuse it; True for the first claim. Any thread."""
        mine = [refuse]
        self.claims.append(mine)
        return self.claims[0] is mine

    def refuse(self) -> None:
        """Note that the call will not run, although it was claimed to be run."""
        self.claims[0][0] = True

    @property
    def claimed(self) -> bool:
        return bool(self.claims)

    @property
    def refused(self) -> bool:
        """True if the call will not run. Known before its op has failed."""
        return bool(self.claims) and self.claims[0][0]

    @property
    def is_wanted(self) -> bool:
        """True if it was not cancelled, and its deadline has not passed."""
        deadline = self.message.deadline
        return self.cancelled is None and not 0.0 < deadline <= time.monotonic()

    @property
    def seconds(self) -> float:
        """The duration of the call."""
        return self.ended - self.began


class EndedCall(msgspec.Struct, eq=False):
    """The end of a call, for the admitting thread."""

    actor: "ActorThread | Holder"
    item: Item
    value: bytes
    adopted: list[Adopted]
    failure: FailureMessage | None = None
    trim: bool = False
    """Memory was short: cached memory is to be released."""
    asked: bool = False
    """The actor is waiting for the host to decide whether the failure was its own, or that of an op whose result it
    read."""


class Outcome(msgspec.Struct, eq=False):
    """The outcome of a call, for the actor's own thread."""

    item: Item
    ended: EndedCall | None
    error: BaseException | None = None
    answer: bool = False
    """True if the error did not originate in the actor's own code."""


def used(call: ActorCall) -> tuple[list[int], list[int]]:
    """Buffers that a call only reads, and buffers that it may write."""
    reads: list[int] = []
    writes: list[int] = []
    for buffer, written in zip(call.bindings[::2], call.writes, strict=True):
        (writes if written else reads).append(buffer)
    return reads, writes
