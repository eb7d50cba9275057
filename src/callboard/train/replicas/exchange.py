"""``Exchange``: collectives that an actor calls in the middle of a step.

The ranks are the actors themselves, in a communicator of their own: no message to the application lies between two of
them. The application ends it for all when one is lost, so none waits for another for ever.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.core.errors import LibraryError, WorldLost
from callboard.kernel.collective.library import JOINING
from callboard.kernel.collective.part import Part, ReduceOp, Step

if TYPE_CHECKING:
    from callboard.device.inside.device import LocalDevice

__all__ = ["Exchange"]

ALONE = 0
"""A number that no world has."""

LOOK, LOOKS = 0.01, 6000
"""Seconds between two looks whether one alone has connected, and how many at most: NCCL takes a second for it."""


class Exchange:
    """This actor among the others.

    Args:
        device: The actor's: collectives are enqueued behind its work. Or one beside it: work goes on meanwhile.

    Attributes:
        rank, size: Number of this actor, and of all.
    """

    def __init__(self, device: "LocalDevice") -> None:
        self.rank, self.size = 0, 1
        self._device = device
        self._world: int | None = None
        self._call = 0

    # -- its life ------------------------------------------------------------------------------------------------------

    def offer(self, world: int, rank: int, size: int) -> bytes:
        """Leave the communicator before, and begin the next one, as this rank of so many."""
        collective = self._device.collective
        if self._world is not None:
            with contextlib.suppress(LibraryError, WorldLost):  # of a step that has failed
                self.wait()
            collective.leave(world=self._world)
        self._world, self._call = world, 0
        self.rank, self.size = rank, size
        return collective.offer(world, rank, size).result()

    def join(self, offers: Sequence[bytes]) -> str:
        """Begin to connect to the others."""
        assert self._world is not None
        return self._device.collective.join(self._world, offers).result()

    def look(self) -> str:
        """``"ready"``, ``"joining"``, or why it is neither."""
        assert self._world is not None
        return self._device.collective.look(self._world).result()

    def wait(self) -> None:
        """Wait until all collectives are done.

        Raises:
            WorldLost, LibraryError: One has failed.
        """
        self._device.synchronize()

    def rehearse(self, x: Any) -> None:
        """Load what the first collective of a process loads.

        Args:
            x: Some tensor of the device.
        """
        state = self.join([self.offer(ALONE, 0, 1)])
        for _ in range(LOOKS):
            if state != JOINING:
                break
            time.sleep(LOOK)
            state = self.look()
        self._call_of([Step("all_reduce", op="sum", both=0)], inouts=(x,))
        self.wait()
        self._device.collective.leave(world=ALONE)

    # -- collectives ---------------------------------------------------------------------------------------------------

    def add_up(self, sums: Sequence[Any], averages: Sequence[Any]) -> None:
        """Have arrays become the sums of all actors', and others those of the first, in place and in one call."""
        self._take(sums, [(0, one) for one in averages])

    def hand_out(self, arrays: Sequence[tuple[int, Any]]) -> None:
        """Have arrays become those of the actor whose rank each one is given with, in place and in one call."""
        self._take([], arrays)

    def _take(self, sums: Sequence[Any], given: Sequence[tuple[int, Any]]) -> None:
        inouts, outs = list(sums), list[Any]()
        steps = [Step("all_reduce", op="sum", both=at) for at in range(len(sums))]
        for root, array in given:
            if root == self.rank:
                steps.append(Step("broadcast", root=root, both=len(inouts)))
                inouts.append(array)
            else:
                steps.append(Step("broadcast", root=root, target=len(outs)))
                outs.append(array)
        self._run(steps, inouts=inouts, outs=outs)

    def all_reduce(self, x: Any, op: ReduceOp = "sum") -> Any:
        """The sum (or maximum) of all actors' tensors, a new one."""
        own = x.detach().clone(memory_format=_torch().contiguous_format)
        self._run([Step("all_reduce", op=op, both=0)], inouts=(own,))
        return own

    def all_gather(self, x: Any, axis: int, lengths: Sequence[int]) -> Any:
        """All shards' tensors, one after the other along an axis.

        Args:
            x: This actor's.
            axis: The axis.
            lengths: Of each actor's tensor along the axis.
        """
        if self.size == 1:
            return x
        torch, most = _torch(), max(lengths)
        own = x.detach().movedim(axis, 0)
        if own.shape[0] < most:
            own = torch.cat([own, own.new_zeros(most - own.shape[0], *own.shape[1:])])
        own = own.contiguous()
        whole = own.new_empty(self.size * most, *own.shape[1:])
        self._run([Step("all_gather", source=0, target=0)], ins=(own,), outs=(whole,))
        if min(lengths) < most:
            whole = torch.cat([whole[rank * most : rank * most + length] for rank, length in enumerate(lengths)])
        return whole.movedim(0, axis)

    def reduce_scatter(self, x: Any, axis: int, lengths: Sequence[int]) -> Any:
        """This actor's part along an axis of the sum of all tensors.

        Args:
            x: A tensor with all parts.
            axis, lengths: As for :meth:`all_gather`.
        """
        if self.size == 1:
            return x
        most = max(lengths)
        whole = x.detach().movedim(axis, 0)
        if min(lengths) < most:
            padded = whole.new_zeros(self.size * most, *whole.shape[1:])
            for rank, part in enumerate(whole.split(list(lengths))):
                padded[rank * most : rank * most + len(part)] = part
            whole = padded
        own = whole.new_empty(most, *whole.shape[1:])
        self._run([Step("reduce_scatter", source=0, target=0)], ins=(whole.contiguous(),), outs=(own,))
        return own[: lengths[self.rank]].movedim(0, axis)

    def _run(
        self, steps: Sequence[Step], ins: Sequence[Any] = (), inouts: Sequence[Any] = (), outs: Sequence[Any] = ()
    ) -> None:
        if self.size > 1:
            self._call_of(steps, ins, inouts, outs)

    def _call_of(
        self, steps: Sequence[Step], ins: Sequence[Any] = (), inouts: Sequence[Any] = (), outs: Sequence[Any] = ()
    ) -> None:
        assert self._world is not None
        after, self._call = self._call, self._call + 1
        self._device.collective.run(
            part=Part(self.rank, self.size, tuple(steps)),
            world=self._world,
            call=self._call,
            after=after,
            ins=ins,
            inouts=inouts,
            outs=outs,
        )


def _torch() -> Any:
    import torch

    return torch
