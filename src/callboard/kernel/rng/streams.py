"""Streams of random words: the generators, and positions in their streams.

A fill names its stream by ``kind`` and ``seed`` and its place in it by ``position``, so its numbers depend on nothing
that a lost context could take along: the same message gives the same numbers, and two fills of the halves of an array
give the numbers of one fill of the whole.

* Pseudo-random kinds are sequences of words of 32 bits; ``position`` counts words. An element takes one word (f32, f16,
  bf16, and integers of 32 bits) or two (f64, integers of 64 bits), low word first, and its first word is at a multiple
  of that number. Normal numbers are made in pairs, from aligned pairs of elements.
* Quasi-random kinds are sequences of points; ``position`` counts points. The last axis of an array with two or more
  axes is the dimension; an array with fewer axes has points of one dimension.

``philox`` is Philox4x32-10 in cuRAND's default order: words ``4 * (65536 * b + s) + i`` are the block of counter
``(b, s)`` under the key ``seed``. ``philox64`` is NumPy's Philox4x64-10, ``numpy.random.Philox(key=(seed, 0))``.
``xorwow``, ``mrg32k3a`` and ``mtgp32`` are cuRAND's, in its default order, which does not depend on how fills are
divided. These five and the Sobol sequences give the same words on every backend, and with them the same bits, uniform
numbers and integers; numbers computed with logarithms and angles may differ in the last bits. The words of ``mt19937``
differ.

``ordering`` chooses among cuRAND's orders: how the words of a generator that is many side by side follow each other.
Each order is a stream of its own. ``best`` is the default order, as in cuRAND; so is ``legacy``, the order of its
earlier versions, but for ``mrg32k3a``, which has 4096 lanes then, and ``mtgp32``, which has 64 in place of 192.
``seeded`` gives every lane of ``xorwow`` a seed of its own in place of a part of one sequence: sooner begun, but lanes
may overlap. ``dynamic`` is refused: its numbers depend on the GPU.
"""

import math
from typing import Literal, NamedTuple, get_args

from callboard.core.dtype import DType
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import Layout

__all__ = [
    "COUNTER_BASED",
    "KINDS",
    "LARGEST_DISCARD",
    "MAX_DIMENSIONS",
    "Kind",
    "RngOrdering",
    "check_discard",
    "is_kind",
    "max_dimensions",
    "order_of",
    "points_of",
    "words_per_element",
]


RngOrdering = Literal["default", "best", "legacy", "seeded", "dynamic"]
"""cuRAND's orders of pseudo-random words."""


class Kind(NamedTuple):
    """A generator.

    Attributes:
        name: ``RngGeneratorKind``.
        quasi: Its numbers are points.
        seeded: A seed means something.
        bits: Bits of a word.
        skips: Any position is reached at once.
        orders: Orders that it has in addition to the default one.
    """

    name: str
    quasi: bool = False
    seeded: bool = True
    bits: int = 32
    skips: bool = True
    orders: tuple[RngOrdering, ...] = ()


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("philox"),
        Kind("philox64"),
        Kind("xorwow", orders=("seeded",)),
        Kind("mrg32k3a", orders=("legacy",)),
        Kind("mtgp32", skips=False, orders=("legacy",)),
        Kind("mt19937", skips=False),
        Kind("sobol32", quasi=True, seeded=False),
        Kind("sobol64", quasi=True, seeded=False, bits=64),
        Kind("scrambled_sobol32", quasi=True),
        Kind("scrambled_sobol64", quasi=True, bits=64),
    )
}
"""Every generator by its name."""

COUNTER_BASED = ("philox", "philox64")
"""Kinds that have a subsequence for every element, which numbers made by rejection need."""

MAX_DIMENSIONS = 20_000
LARGEST_DISCARD = 2**31
"""Words that a generator which cannot skip draws for nothing to reach a position (seconds); then it refuses."""


def max_dimensions(kind: str) -> int:
    """The most dimensions that a generator has: 20,000 for Sobol sequences, 1 for others."""
    return MAX_DIMENSIONS if KINDS[kind].quasi else 1


def order_of(kind: str, ordering: RngOrdering) -> RngOrdering:
    """Resolve the order of a generator: one of :attr:`Kind.orders`, or ``"default"``, which may equal others.

    Raises:
        TypeError: There is no such order.
        UnsupportedOp: The kind does not have it; names the reason.
    """
    known, orders = KINDS[kind], get_args(RngOrdering)
    if ordering not in orders:
        raise TypeError(f"ordering = {ordering!r}: use one of {', '.join(map(repr, orders))}")
    if ordering == "default" or ordering in known.orders:
        return ordering
    if known.quasi:
        raise UnsupportedOp(f"ordering is {ordering!r}: the points of {kind} have one order; leave it out")
    if ordering == "dynamic":
        raise UnsupportedOp(
            "ordering is 'dynamic': its numbers depend on the GPU, and no position names them; leave it out"
        )
    if ordering == "seeded":
        raise UnsupportedOp(f"ordering is 'seeded': {kind} has no lanes with seeds of their own; use xorwow")
    if kind == "philox64" and ordering == "legacy":
        raise UnsupportedOp("ordering is 'legacy': philox64 is NumPy's, and has one order; leave it out")
    return "default"


def check_discard(kind: str, position: int, known: int) -> None:
    """Check that a generator that cannot skip can reach a position from its last known one.

    Raises:
        UnsupportedOp: It would have to discard more than :data:`LARGEST_DISCARD` words.
    """
    left = position - known
    if left > LARGEST_DISCARD:
        raise UnsupportedOp(
            f"{kind} cannot skip, and position {position} is {left} words after its last known position, more than the "
            f"{LARGEST_DISCARD} that it discards; use philox, or another seed"
        )


def words_per_element(dtype: DType) -> int:
    """Words of 32 bits that an element takes from a pseudo-random stream: 2 for types of 64 bits, else 1."""
    return 2 if dtype.itemsize == 8 else 1


def points_of(layout: Layout) -> tuple[int, int]:
    """The number of points that fill an array, and their dimensions."""
    if layout.ndim < 2:
        return layout.size, 1
    return math.prod(layout.shape[:-1]), layout.shape[-1]


def is_kind(kind: object) -> bool:
    """True if it names a generator."""
    return isinstance(kind, str) and kind in KINDS
