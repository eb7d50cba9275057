"""The messages of collectives. The application numbers worlds and calls; the host has a communicator for each world."""

from typing import ClassVar

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import Fence, Op, StructOutputs
from callboard.core.operand import In, InOut, Number, Out, Whole
from callboard.core.ref import GpuRef
from callboard.kernel.collective.actor import CollectiveActor
from callboard.kernel.collective.part import Part, arrays_of

__all__ = ["Join", "Leave", "Look", "Offer", "Run"]


class Offer(Op[CollectiveActor, bytes], tag="collective.offer"):
    """Return the address of this rank for the other ranks: with NCCL, rank 0 makes the unique id.

    Args:
        world: Number of the world, never used before.
        rank, size: Rank of this device in the world, and number of ranks.
    """

    returns: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[type[bytes]] = bytes

    world: Whole
    rank: int
    size: int

    @property
    def fence(self) -> Fence | None:
        return "ahead"

    def infer(self) -> StructOutputs:
        if not 0 <= self.rank < self.size:
            raise ShapeError(f"collective.offer: rank is {self.rank}; it must lie in 0 to {self.size - 1}")
        return {}


class Join(Op[CollectiveActor, str], tag="collective.join"):
    """Begin to connect to the other ranks; answered as :class:`Look`, at once.

    Args:
        world: Number of an offered world.
        offers: Offers of all ranks, in order of rank.
        timeout: Seconds without a completed collective after which the host ends the world by itself, if the
            application has not.
    """

    returns: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[type[str]] = str

    world: Whole
    offers: tuple[bytes, ...]
    timeout: float = 600.0

    @property
    def fence(self) -> Fence | None:
        return "ahead"

    def infer(self) -> StructOutputs:
        if not self.timeout > 0:
            raise ShapeError(f"collective.join: timeout is {self.timeout}; it must be more than 0")
        return {}


class Look(Op[CollectiveActor, str], tag="collective.look"):
    """Say how a world is here: ``"joining"``, ``"ready"``, or why it is not.

    Args:
        world: Number of a world that was joined.
    """

    returns: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[type[str]] = str

    world: Whole

    @property
    def fence(self) -> Fence | None:
        return "ahead"

    def infer(self) -> StructOutputs:
        return {}


class Leave(Op[CollectiveActor, bool], tag="collective.leave"):
    """End a world here: its running ops fail, later ones are rejected; returns whether it existed.

    The op overtakes parked messages, and is answered before the communicator is released.

    Args:
        world: Number of the world.
        lost: The rank that is lost; -1 if none is.
        reason: The reason; empty if nothing runs any more.
        formation: The number of times the world had formed, for the error.
    """

    returns: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[type[bool]] = bool

    world: Whole
    lost: int = -1
    reason: str = ""
    formation: int = 0

    @property
    def fence(self) -> Fence | None:
        return "ahead"

    def infer(self) -> StructOutputs:
        return {}


class Run(Op[CollectiveActor, tuple[GpuRef, ...]], tag="collective.run"):
    """This rank's part of a collective, or of a group; returns the arrays it writes, ``outs`` first.

    Calls that two ranks have parts of are run by both in the order of their numbers.

    Args:
        part: Collectives to perform on the arrays, which have no gaps.
        world: Number of the world.
        call: Number of the call in the world, from 1.
        after: Number of this rank's previous call; 0 for the first.
        ins: Arrays that are sent.
        inouts: Arrays that are sent and received in place.
        outs: Arrays that are received in; new ones of ``part.makes`` when None.
        factors: Numbers, or 0-d arrays of the dtype that is reduced.
    """

    returns: ClassVar[tuple[str, ...]] = ("outs", "inouts")

    part: Part
    world: Whole
    call: Whole
    after: Whole
    ins: tuple[In, ...] = ()
    inouts: tuple[InOut, ...] = ()
    outs: tuple[Out, ...] | None = None
    factors: tuple[Number, ...] = ()

    def infer(self) -> StructOutputs:
        part = self.part
        if self.outs is None:
            outs = tuple(layout_of(DTYPES[dtype], shape) for dtype, shape in part.makes)
        else:
            outs = tuple(out.layout for out in self.outs)
        ins, inouts = [x.layout for x in self.ins], [x.layout for x in self.inouts]
        for step in part.steps:
            arrays = arrays_of("collective.run", part, step, ins, outs, inouts)
            if step.factor >= 0:
                self._check_factor(step.factor, arrays.source)
        return {"outs": outs}

    def _check_factor(self, at: int, source: object) -> None:
        if at >= len(self.factors):
            raise ShapeError(f"collective.run: factor {at} is named; factors has {len(self.factors)}")
        factor = self.factors[at]
        layout = getattr(factor, "layout", None)
        if layout is not None and (layout.ndim or layout.dtype is not getattr(source, "dtype", None)):
            raise ShapeError(f"collective.run: factors[{at}] is {layout!r}; pass a number, or a 0-d array as reduced")
        if isinstance(factor, complex):
            raise ShapeError(f"collective.run: factors[{at}] is {factor}; it must be real")
