"""``ClothSnapshot``: a cloth on the host."""

import os
from typing import Any

import msgspec

from callboard.realtime.cloth.obj import write_obj

__all__ = ["ClothSnapshot"]


class ClothSnapshot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A cloth after a step. Its arrays are read only.

    Attributes:
        steps: Steps since the start.
        time: Seconds since the start.
        positions, velocities: f32 ``[particles, 3]``.
        triangles: i32 ``[triangles, 3]``.
        springs: i32 ``[springs, 2]``.
        stretch: Length of each spring relative to its length at rest, f32; NaN where it is broken.
        broken: Springs that are broken.
    """

    steps: int
    time: float
    positions: Any
    velocities: Any
    triangles: Any
    springs: Any
    stretch: Any
    broken: int = 0

    def write_obj(self, path: str | os.PathLike[str]) -> None:
        """Write the mesh as it hangs now, as a Wavefront OBJ file; see :func:`.write_obj`."""
        write_obj(path, self.positions, self.triangles)
