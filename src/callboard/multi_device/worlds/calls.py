"""``Collectives``: the methods that a world and a group of collectives have in common."""

import abc
from collections.abc import Sequence
from typing import Any, TypeVar

from callboard.core.ref import GpuRef
from callboard.kernel.collective.part import ReduceOp
from callboard.multi_device.worlds.reply import Collective
from callboard.multi_device.worlds.requests import PreMulSum, Request, Requests

__all__ = ["Collectives", "all_refs"]

Ref = GpuRef[Any]
Refs = tuple[Ref, ...]
T = TypeVar("T")


class Collectives(abc.ABC):
    """Collectives over the ranks of a world.

    Arrays are passed as a sequence with the ref of each rank, in the order of the ranks; all have one shape and dtype,
    and no gaps. Results are new arrays unless ``out`` names the arrays to receive in. In place: ``out`` is the sent
    array, or, if one is a part of the other, the rows that belong to the rank, as in NCCL.

    Reductions take f16, bf16, f32, f64, i8, i32, i64, u8, u32, u64, f8_e4m3 and f8_e5m2; all else takes every dtype.

    These are raised at the call by all collectives, before anything is sent to any rank: ``TypeError``, ``ShapeError``,
    ``DeviceMismatch``, ``GpuRefStale``, ``MailboxFull``, ``WorldStopped``, and ``WorldLost`` while the world is forming
    (``await world.ready()``). The reply fails with ``WorldLost`` if a rank was lost, or with the error of a rank's
    part.
    """

    _requests: Requests

    @abc.abstractmethod
    def _call(self, request: Request, result: Any) -> Any:
        """Accept a request; ``result`` makes the reply's value of its refs."""

    def _each(self, kind: str, xs: Sequence[Ref], out: Sequence[Ref] | None, *op: Any) -> Collective[Refs]:
        """A collective that takes an array of each rank and gives each rank one."""
        return self._refs(getattr(self._requests, kind)(xs, *op, out))

    def all_reduce(
        self, xs: Sequence[Ref], op: ReduceOp | PreMulSum = "sum", *, out: Sequence[Ref] | None = None
    ) -> Collective[Refs]:
        """Every rank gets the reduction of all ranks' arrays, element by element; the same bits on every rank.

        Args:
            xs: One array for each rank.
            op: ``"sum"``, ``"prod"``, ``"min"``, ``"max"``, ``"avg"`` (integers: rounded towards 0), or a
                :class:`PreMulSum`.
            out: One array for each rank, like ``xs``; new arrays when None.
        """
        return self._each("all_reduce", xs, out, op)

    def reduce(
        self, xs: Sequence[Ref], op: ReduceOp | PreMulSum = "sum", *, root: int = 0, out: Ref | None = None
    ) -> Collective[Ref]:
        """One rank gets the reduction.

        Args:
            xs, op: See :meth:`all_reduce`.
            root: The rank.
            out: Array of the root's device; a new one when None.
        """
        return self._ref(self._requests.reduce(xs, op, root, out))

    def broadcast(self, x: Ref, *, out: Sequence[Ref] | None = None) -> Collective[Refs]:
        """Every rank gets a copy of an array, also the rank that has it.

        Args:
            x: Array of any rank, which is the root.
            out: One array for each rank, like ``x``; new arrays when None.
        """
        return self._refs(self._requests.broadcast(x, out))

    def all_gather(self, xs: Sequence[Ref], *, out: Sequence[Ref] | None = None) -> Collective[Refs]:
        """Every rank gets the arrays of all ranks, one after the other along the first axis.

        Args:
            xs: One array for each rank, ``[m, ...]`` or 0-d.
            out: One array ``[ranks * m, ...]`` for each rank; new arrays when None.
        """
        return self._each("all_gather", xs, out)

    def reduce_scatter(
        self, xs: Sequence[Ref], op: ReduceOp | PreMulSum = "sum", *, out: Sequence[Ref] | None = None
    ) -> Collective[Refs]:
        """Each rank gets its rows of the reduction.

        Args:
            xs: One array ``[ranks * m, ...]`` for each rank.
            op: See :meth:`all_reduce`.
            out: One array ``[m, ...]`` for each rank; new arrays when None.
        """
        return self._each("reduce_scatter", xs, out, op)

    def gather(self, xs: Sequence[Ref], *, root: int = 0, out: Ref | None = None) -> Collective[Ref]:
        """One rank gets the arrays of all ranks, as of :meth:`all_gather`."""
        return self._ref(self._requests.gather(xs, root, out))

    def scatter(self, x: Ref, *, out: Sequence[Ref] | None = None) -> Collective[Refs]:
        """Each rank gets its rows of an array.

        Args:
            x: Array ``[ranks * m, ...]`` of any rank, which is the root.
            out: One array ``[m, ...]`` for each rank; new arrays when None.
        """
        return self._refs(self._requests.scatter(x, out))

    def all_to_all(self, xs: Sequence[Ref], *, out: Sequence[Ref] | None = None) -> Collective[Refs]:
        """Rank ``j`` gets the ``j``-th part of each rank's array, in the order of the ranks. Not in place.

        Args:
            xs: One array ``[ranks * m, ...]`` for each rank.
            out: One array for each rank, like ``xs``; new arrays when None.
        """
        return self._each("all_to_all", xs, out)

    def all_to_all_v(
        self, xs: Sequence[Ref], counts: Sequence[Sequence[int]], *, out: Sequence[Ref] | None = None
    ) -> Collective[Refs]:
        """Like :meth:`all_to_all`, with parts of any size. Not in place.

        Args:
            xs: One array for each rank; rank ``i`` has ``sum(counts[i])`` rows, of one shape on all ranks.
            counts: The number of rows rank ``i`` sends to rank ``j``: ``counts[i][j]``.
            out: One array for each rank; rank ``j`` gets ``sum(counts[i][j] for i)`` rows. New arrays when None.
        """
        return self._refs(self._requests.all_to_all_v(xs, counts, out))

    def send(self, x: Ref, *, to: int, out: Ref | None = None) -> Collective[Ref]:
        """One rank sends an array, another one receives it; the others take no part.

        Args:
            x: Array of any rank.
            to: The rank that gets it.
            out: Array of the receiving rank, like ``x``; a new one when None.
        """
        return self._ref(self._requests.send(x, to, out))

    def barrier(self) -> Collective[None]:
        """It is done when every rank has done all collectives called before."""
        done: Collective[None] = self._call(self._requests.barrier(), _nothing)
        return done

    def _refs(self, request: Request) -> Collective[Refs]:
        reply: Collective[Refs] = self._call(request, all_refs)
        return reply

    def _ref(self, request: Request) -> Collective[Ref]:
        reply: Collective[Ref] = self._call(request, _first)
        return reply


def all_refs(refs: Refs) -> Refs:
    """The value of a collective that gives a ref to each rank."""
    return refs


def _first(refs: Refs) -> Ref:
    return refs[0]


def _nothing(refs: Refs) -> None:
    return None
