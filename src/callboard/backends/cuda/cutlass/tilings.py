"""The shapes that a template may have: tiles, clusters and schedules, those that are worth a measurement."""

from typing import NamedTuple

from callboard.kernel.cutlass import Gemm
from callboard.kernel.cutlass.fused import Problem

__all__ = ["BLOCKED", "SHARED", "SMALL", "TILINGS", "WIDE", "Tiling", "tilings_of", "tilings_of_groups"]

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
        splits: Blocks that share the inner axis of a tile (split-K), an argument of the launch; 1: all blocks share the
            work of all tiles evenly (stream-K); 0: a block computes whole tiles.
    """

    rows: int
    columns: int
    depth: int
    cluster: tuple[int, int]
    schedule: str
    swizzle: int = 1
    raster: int = 0
    splits: int = 0

    def __str__(self) -> str:
        shared = "" if not self.splits else ", stream-K" if self.splits == 1 else f", {self.splits} splits"
        cluster = f"{self.cluster[0]}x{self.cluster[1]} clusters"
        return f"{self.rows}x{self.columns} tiles, {cluster}, {self.schedule.lower()}{shared}"


WIDE = (
    Tiling(128, 128, 128, (2, 1), "Pingpong", raster=2),
    Tiling(64, 256, 128, (2, 1), "Pingpong"),
    Tiling(128, 256, 128, (2, 1), "Cooperative", raster=1),
)
SMALL = (Tiling(128, 128, 128, (2, 1), "Cooperative"), Tiling(64, 128, 128, (2, 1), "Pingpong"))
"""Of factors of one byte: their sums are held twice, and larger tiles do not fit into the registers."""
BLOCKED = (Tiling(128, 128, 128, (1, 2), "Cooperative"), Tiling(64, 128, 128, (2, 1), "Pingpong"))
"""Of factors with scales of blocks: the first where 128 rows of ``a`` share a scale, as a tile has no fewer."""
TILINGS = {"f8_e4m3": SMALL, "f32": WIDE[::2], "i8": WIDE[::2]}
"""By the dtype of the factors; WIDE for all others."""
SHARED = Tiling(128, 128, 128, (2, 1), "Cooperative", splits=1)
"""Its blocks share the inner axes of the tiles, which CUTLASS has for cooperative warps only."""
PROCESSORS = 132
"""Multiprocessors of an H100 or H200."""
LONG = 64
"""Steps along the inner axis from which it is worth sharing; each block has at least a quarter of them."""
MANY = (
    Tiling(128, 256, 128, (1, 1), "Cooperative", raster=1),
    Tiling(128, 128, 128, (1, 2), "Pingpong", raster=1),
)
"""No cluster spans rows: where a group has an odd number of tiles, half of it would have nothing to do."""
NARROW = (Tiling(64, 128, 256, (1, 2), "Pingpong", raster=1), MANY[1])
"""Likewise. The first reads the matrices faster, the second is for groups of more than one tile of 64 rows."""
GROUPED_SMALL = (
    Tiling(128, 128, 128, (1, 1), "Cooperative", raster=1),
    Tiling(64, 128, 128, (1, 2), "Pingpong", raster=1),
)
"""Of groups of factors of one byte, few rows or many."""


def tilings_of(op: Gemm, problem: Problem) -> tuple[Tiling, ...]:
    """The tilings of a product; the first serves where none is measured.

    Args:
        op: The message.
        problem: Its shapes.
    """
    if op.scale_a is not None and op.scale_a.ndim == 2:
        return BLOCKED if op.scale_a.shape[0] == op.a.shape[0] else BLOCKED[:1]
    return (*_shared(op, problem), *TILINGS.get(op.a.dtype.name, WIDE))


def _shared(op: Gemm, problem: Problem) -> tuple[Tiling, ...]:
    """Stream-K and split-K, where few tiles have a long inner axis."""
    *_, m, n = problem.result.shape
    tiles = -(-m // SHARED.rows) * -(-n // SHARED.columns) * max(problem.stacks, 1)
    steps = op.a.shape[-1] * op.a.dtype.itemsize // SHARED.depth
    if op.a.dtype.itemsize == 1 or 2 * tiles > PROCESSORS or steps < LONG:
        return ()
    splits = min(PROCESSORS // tiles, 4 * steps // LONG)
    return SHARED._replace(splits=splits), SHARED


def tilings_of_groups(rows: int, groups: int, columns: int, itemsize: int = 2) -> tuple[Tiling, ...]:
    """The tilings of a product of groups, by extents and factors; the first serves where none is measured."""
    if itemsize == 1:
        return GROUPED_SMALL
    return NARROW if rows <= FEW * groups or columns <= FEW else MANY
