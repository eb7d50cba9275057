"""The shapes that a template may have: tiles, clusters and schedules, those that are worth a measurement."""

from typing import NamedTuple

__all__ = ["Tiling", "tilings_of", "tilings_of_groups"]

FEW = 128
"""Rows of a group on average, or columns, up to which the tiles of groups are narrow."""


class Tiling(NamedTuple):
    """How a template divides its result.

    Attributes:
        rows, columns: Of the tile that a block computes at a time.
        depth: Bytes of a row of a factor that are loaded at a time.
        cluster: Blocks down and across that share what they load.
        schedule: ``"Cooperative"``: two groups of warps compute a tile together; ``"Pingpong"``: each one of its own,
            and one is at its epilogue while the other multiplies.
        swizzle: Neighbouring clusters across the raster that are computed at a time, so that they share the L2 cache;
            an argument of the launch, like ``raster``.
        raster: Order of the tiles: 0 as CUTLASS chooses it, 1 down the columns, 2 along the rows.
    """

    rows: int
    columns: int
    depth: int
    cluster: tuple[int, int]
    schedule: str
    swizzle: int = 1
    raster: int = 0

    def __str__(self) -> str:
        return (
            f"{self.rows}x{self.columns} tiles, {self.cluster[0]}x{self.cluster[1]} clusters, {self.schedule.lower()}"
        )


WIDE = (
    Tiling(128, 128, 128, (2, 1), "Pingpong", raster=2),
    Tiling(64, 256, 128, (2, 1), "Pingpong"),
    Tiling(128, 256, 128, (2, 1), "Cooperative", raster=1),
)
SMALL = (Tiling(128, 128, 128, (2, 1), "Cooperative"), Tiling(64, 128, 128, (2, 1), "Pingpong"))
"""Of factors of one byte: their sums are held twice, and larger tiles do not fit into the registers."""
MANY = (
    Tiling(128, 256, 128, (1, 1), "Cooperative", raster=1),
    Tiling(128, 128, 128, (1, 2), "Pingpong", raster=1),
)
"""No cluster spans rows: where a group has an odd number of tiles, half of it would have nothing to do."""
NARROW = (Tiling(64, 128, 256, (1, 2), "Pingpong", raster=1), Tiling(64, 256, 128, (1, 1), "Pingpong", raster=1))
"""Likewise; the second is better where most groups have several tiles of rows."""

GROUPED_SMALL = (
    Tiling(128, 128, 128, (1, 1), "Cooperative", raster=1),
    Tiling(64, 128, 128, (1, 2), "Pingpong", raster=1),
)
"""Of groups of factors of one byte, few rows or many."""


def tilings_of(itemsize: int) -> tuple[Tiling, ...]:
    """The tilings of a product, by the bytes of an element of its factors; the first serves where none is measured."""
    return SMALL if itemsize == 1 else WIDE


def tilings_of_groups(rows: int, groups: int, columns: int, itemsize: int = 2) -> tuple[Tiling, ...]:
    """The tilings of a product of groups, by extents and factors; the first serves where none is measured."""
    if itemsize == 1:
        return GROUPED_SMALL
    return NARROW if rows <= FEW * groups or columns <= FEW else MANY
