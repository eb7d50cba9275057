"""``FluidSnapshot``: a fluid on the host."""

from typing import Any

import msgspec

__all__ = ["FluidSnapshot"]


class FluidSnapshot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A fluid after a step. Its arrays are read only.

    Attributes:
        steps: Steps since the start.
        time: Seconds since the start.
        density: Dye, f32 ``[channels, d, h, w]``.
        velocities: In the middle of cells, f32 ``[axes, d, h, w]``: along x, y, and z if there are several layers.
        faces: At the lower faces of cells.
        pressure: f32 ``[d, h, w]``; the pressure over the density, times the step over the spacing.
        solid: Cells without fluid.
        divergence: Greatest flow out of a cell or into it, over the greatest velocity; 0 at rest.
        masses: Dye of each channel, f64.
    """

    steps: int
    time: float
    density: Any
    velocities: Any
    faces: Any
    pressure: Any
    solid: Any
    divergence: float
    masses: Any
