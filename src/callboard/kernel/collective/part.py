"""``Part``: the part of one rank in a collective, or in a group of them, and the checks of its arrays."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from callboard.core.dtype import dtypes_of
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout

__all__ = ["REDUCED", "REDUCTIONS", "Arrays", "Kind", "Part", "ReduceOp", "Step", "arrays_of", "counts_between"]

Kind = Literal[
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_to_all_v",
    "gather",
    "scatter",
    "send",
    "recv",
    "barrier",
]
ReduceOp = Literal["sum", "prod", "min", "max", "avg"]

REDUCTIONS = frozenset({"all_reduce", "reduce", "reduce_scatter"})
REDUCED = dtypes_of("f16 bf16 f32 f64 i8 i32 i64 u8 u32 u64 f8_e4m3 f8_e5m2")
"""Dtypes that can be reduced: those of NCCL. Data that is only moved may have any dtype."""


class Step(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """One collective, in the view of one rank.

    Attributes:
        kind: The kind.
        op: Operation of a reduction.
        root: Root rank of ``reduce``, ``broadcast``, ``gather`` and ``scatter``; the other rank of ``send`` and
            ``recv``.
        source, target: Positions of the arrays that are sent, among ``ins``, and received, among ``outs``; -1: none.
        both: Position among ``inouts`` of the array that is both, in place; -1: not in place.
        factor: Position among ``factors`` of the number that this rank's elements are multiplied by; -1: none.
        counts: For ``all_to_all_v``: the number of elements from rank ``i`` to rank ``j``, at ``i * size + j``.
    """

    kind: Kind
    op: ReduceOp = "sum"
    root: int = 0
    source: int = -1
    target: int = -1
    both: int = -1
    factor: int = -1
    counts: tuple[int, ...] = ()


class Part(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """The part of one rank in a call: its steps, which begin together.

    Attributes:
        rank, size: Rank in the world, and number of ranks.
        steps: The steps, in the same order on all ranks; a rank's part leaves out the steps that do not involve it.
        makes: Dtype and shape of each of ``outs`` that is to be made.
    """

    rank: int
    size: int
    steps: tuple[Step, ...]
    makes: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Arrays(NamedTuple):
    """The arrays of a step; in place, both are one.

    Attributes:
        source, target: Layouts; None: this rank sends, or receives, nothing.
    """

    source: Layout | None
    target: Layout | None


def counts_between(counts: Sequence[int], size: int, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Elements that a rank sends to each, and receives from each."""
    return tuple(counts[rank * size : (rank + 1) * size]), tuple(counts[rank::size])


def arrays_of(
    tag: str, part: Part, step: Step, ins: Sequence[Layout], outs: Sequence[Layout], inouts: Sequence[Layout]
) -> Arrays:
    """The checked arrays of a step.

    Raises:
        ShapeError: Rank, root, an array that is missing or not taken, its dtype, size or gaps.
    """
    what = f"{tag}: {step.kind} on rank {part.rank} of {part.size}"
    if not (0 <= part.rank < part.size and 0 <= step.root < part.size):
        raise ShapeError(f"{what}: root or peer is {step.root}; ranks are 0 to {part.size - 1}")
    found: dict[str, Layout | None] = {}
    for name, at, layouts in (("source", step.source, ins), ("target", step.target, outs), ("both", step.both, inouts)):
        if not -1 <= at < len(layouts):
            raise ShapeError(f"{what}: {name} is {at}; there are {len(layouts)} such arrays")
        layout = found[name] = layouts[at] if at >= 0 else None
        if layout is not None and not layout.contiguous:
            raise ShapeError(f"{what}: {name} is {layout!r}; it must have no gaps (dev.copy)")
    source, target, both = found["source"], found["target"], found["both"]
    if both is not None and (source is not None or step.kind in ("all_to_all", "all_to_all_v", "send", "recv")):
        raise ShapeError(f"{what}: it cannot be done in place; pass another array to receive in")
    sends, receives = _takes(part, step)
    for name, takes, given in (("sent", sends, source or both), ("received", receives, target or both)):
        if takes != (given is not None):
            raise ShapeError(f"{what}: an array to be {name} is {'missing' if takes else 'given, and not used'}")
    arrays = Arrays(source or (both if sends else None), target or (both if receives else None))
    if source is not None and target is not None and source.dtype is not target.dtype:
        raise ShapeError(f"{what}: {source!r} is sent and {target!r} received; they must have one dtype")
    _check_sizes(what, part, step, arrays, in_place=both is not None)
    if step.kind in REDUCTIONS and arrays.source is not None and arrays.source.dtype not in REDUCED:
        raise ShapeError(
            f"{what}: dtype {arrays.source.dtype} cannot be reduced; these can: {', '.join(map(str, REDUCED))}"
        )
    return arrays


def _takes(part: Part, step: Step) -> tuple[bool, bool]:
    """Return whether this rank sends an array, and whether it receives one."""
    here = part.rank == step.root
    table = {
        "reduce": (True, here),
        "gather": (True, here),
        "broadcast": (here, True),
        "scatter": (here, True),
        "send": (True, False),
        "recv": (False, True),
        "barrier": (False, False),
    }
    return table.get(step.kind, (True, True))


def _check_sizes(what: str, part: Part, step: Step, arrays: Arrays, *, in_place: bool) -> None:
    n, kind = part.size, step.kind
    sent = None if arrays.source is None else arrays.source.size
    received = None if arrays.target is None else arrays.target.size
    if kind == "all_to_all_v":
        if len(step.counts) != n * n or any(c < 0 for c in step.counts):
            raise ShapeError(f"{what}: counts has {len(step.counts)} numbers; it must have {n} x {n}, each >= 0")
        to, of = counts_between(step.counts, n, part.rank)
        if (sent, received) != (sum(to), sum(of)):
            raise ShapeError(f"{what}: {sent} and {received} elements; by counts they are {sum(to)} and {sum(of)}")
        return
    if sent is None or received is None:
        return
    if in_place and kind in ("all_gather", "reduce_scatter", "gather", "scatter"):
        fits = received % n == 0
    elif kind in ("all_gather", "gather"):
        fits = received == n * sent
    elif kind in ("reduce_scatter", "scatter"):
        fits = sent == n * received
    elif kind == "all_to_all":
        fits = sent == received and sent % n == 0
    else:
        fits = sent == received
    if not fits:
        raise ShapeError(f"{what}: {sent} elements are sent and {received} received; they do not fit {n} ranks")
