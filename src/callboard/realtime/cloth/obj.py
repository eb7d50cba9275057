"""Meshes as Wavefront OBJ files, which modelling programs read and write."""

import itertools
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError
from callboard.realtime.base.checks import LARGEST, rows

__all__ = ["ObjMesh", "read_obj", "write_obj"]


class ObjMesh(NamedTuple):
    """A mesh of a file; ``ClothSimulationActor(gpu, config, **mesh._asdict())`` makes a cloth of it.

    Attributes:
        positions: f32 ``[particles, 3]``.
        triangles: i32 ``[triangles, 3]``.
    """

    positions: NDArray[np.float32]
    triangles: NDArray[np.int32]


def read_obj(path: str | os.PathLike[str]) -> ObjMesh:
    """Positions and faces of an OBJ file; faces of more corners become triangles around their first corner.

    Positions that no face has, and all but positions and faces (materials, normals, texture), are left out.

    Raises:
        ValueError: A line is not of the format, or there are no faces; names the line.
        OSError: The file cannot be read.
    """
    positions: list[list[float]] = []
    triangles: list[tuple[int, int, int]] = []
    lines = Path(path).read_text("utf-8-sig", "replace").split("\n")  # other ends of lines may be in comments
    for number, line in enumerate(lines, 1):
        kind, *words = line.split("#")[0].split() or [""]
        try:
            if kind == "v":
                positions.append([float(word) for word in words[:3]])
                if len(words) < 3 or not all(abs(value) <= LARGEST for value in positions[-1]):
                    raise ValueError
            elif kind == "f":
                corners = [int(word.split("/")[0]) for word in words]
                corners = [corner - 1 if corner > 0 else len(positions) + corner for corner in corners]
                if len(corners) < 3 or not all(0 <= corner < len(positions) for corner in corners):
                    raise ValueError
                triangles += [(corners[0], b, c) for b, c in itertools.pairwise(corners[1:])]
        except ValueError:
            raise ValueError(f"{path}, line {number}: {line.strip()[:60]!r} is no position or face of an OBJ") from None
    if not triangles:
        raise ValueError(f"{path} has no faces; export the mesh with its faces, as an OBJ file")
    used, corners_of = np.unique(np.array(triangles, "i4"), return_inverse=True)
    return ObjMesh(rows("positions", positions, 3)[used], corners_of.reshape(-1, 3).astype("i4"))


def write_obj(path: str | os.PathLike[str], positions: Any, triangles: Any) -> None:
    """Write a mesh as an OBJ file.

    Args:
        path: The file.
        positions: ``[particles, 3]``, finite.
        triangles: Indices, integers ``[triangles, 3]``.

    Raises:
        ShapeError, TypeError, ValueError: An array does not fit.
    """
    where, corners = rows("positions", positions, 3), np.asarray(triangles)
    if corners.ndim != 2 or corners.shape[1] != 3 or corners.dtype.kind not in "iu":
        raise ShapeError(f"triangles is {corners.dtype}{list(corners.shape)}; pass integers [triangles, 3]")
    if corners.size and not 0 <= corners.min() <= corners.max() < len(where):
        raise ValueError(f"triangles has indices {corners.min()} to {corners.max()}; there are {len(where)} positions")
    lines = [f"v {x:.9g} {y:.9g} {z:.9g}" for x, y, z in where.tolist()]
    lines += [f"f {a} {b} {c}" for a, b, c in (corners + 1).tolist()]
    Path(path).write_text("\n".join(lines) + "\n", "utf-8")
