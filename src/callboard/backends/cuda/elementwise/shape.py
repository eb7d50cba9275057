"""Division of a reduction among threads: lanes per result, results per block, splits of the terms."""

from typing import NamedTuple

__all__ = ["THREADS", "Shape", "power", "shape_of"]

THREADS = 256
BUSY = 1056
"""Blocks that keep a large GPU busy: eight for each of 132 multiprocessors."""
PER_LANE = 8
"""Packs of terms of a lane below which dividing them further costs more than it gains."""
MAX_SPLITS = 1024


class Shape(NamedTuple):
    """The launch of a reduction.

    Attributes:
        along: Neighbouring threads take neighbouring terms of one result; otherwise terms of neighbouring results.
        lanes: Threads for each result; a power of two.
        splits: Parts into which the terms of a result are divided, one for each block that works on it.
        share: Packs of terms in such a part.
    """

    along: bool
    lanes: int
    splits: int
    share: int

    @property
    def results(self) -> int:
        """Results of a block."""
        return THREADS // self.lanes

    def blocks(self, outputs: int) -> int:
        """The number of blocks for ``outputs`` results."""
        return -(-outputs // self.results)


def shape_of(outputs: int, packs: int, along: bool) -> Shape:
    """Return the launch for ``outputs`` results of ``packs`` packs of terms each; equal arguments give equal launches.

    Args:
        outputs: Number of results, > 0.
        packs: Packs of terms for each.
        along: See :class:`Shape`.
    """
    if along:
        lanes = power(min(THREADS, max(1, packs // 4)))
        if lanes < 32 and outputs * lanes < BUSY * THREADS // 4:
            lanes = power(min(32, max(1, packs)))  # few results: more lanes, with less to do each
    else:
        lanes = 1 if outputs >= BUSY * THREADS else power(max(1, min(8, packs // PER_LANE)))
    blocks = -(-outputs // (THREADS // lanes))
    splits = 1
    if blocks < BUSY:
        splits = max(1, min(-(-BUSY // blocks), packs // (lanes * PER_LANE), MAX_SPLITS))
    share = -(-packs // splits) if packs else 0
    return Shape(along, lanes, -(-packs // share) if share else 1, share)


def power(n: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << n.bit_length() - 1
