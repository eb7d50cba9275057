"""Regions: device memory that the device's host lends to an actor in a separate process, for one call.

Each allocation that contains a call's arrays is one region: the bytes from the first to the last that they reach, so
that overlapping arrays also overlap in the other process. On the wire a region is ``[where, offset]``: the handle by
which the allocation is opened, and the region's offset in it; or the id of an arena, and the offset of a copy in it. An
array is ``[region, offset, layout, written]``; one without elements has the region -1.
"""

from collections.abc import Iterable, Sequence

__all__ = ["FRESH", "HERE", "NOWHERE", "places"]

FRESH = b"fresh"
"""Body of a call that holds memory whose contents do not matter."""

HERE = b"here"
"""Body of a call that holds memory for another device of this process: a region is ``[Memory, offset]``."""

NOWHERE = -1

GRANULE = 256


def places(sizes: Iterable[int]) -> tuple[Sequence[int], int]:
    """Offsets of consecutive regions of these sizes, and their bytes in all."""
    offsets: list[int] = []
    end = 0
    for size in sizes:
        offsets.append(end)
        end += -(-size // GRANULE) * GRANULE
    return offsets, end
