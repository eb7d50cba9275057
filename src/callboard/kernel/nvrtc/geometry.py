"""Launch geometry of a kernel: grid, blocks, clusters; checked before anything is sent."""

from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.core.errors import ShapeError
from callboard.core.layout import shape_of
from callboard.kernel.nvrtc.tensormap import TensorMap

__all__ = ["HARD_CLUSTER", "PORTABLE_CLUSTER", "ClusterDim", "Geometry", "LaunchSpec", "geometry"]

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SHARED = 1 << 20
"""Upper bound in bytes, more than any GPU has; the host checks the device's own limit."""
PORTABLE_CLUSTER, HARD_CLUSTER = 8, 16
"""Blocks of a cluster that every GPU with clusters takes, and that some take."""

Dim = tuple[int, int, int]
ClusterDim = Dim


class Geometry(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """A launch's threads.

    Attributes:
        grid: Blocks along x, y, z; 0 somewhere: there is nothing to do, and nothing is launched.
        block: Threads of a block along x, y, z.
        shared: Bytes of dynamic shared memory of a block.
        cluster: Blocks of a cluster along x, y, z (compute capability 9.0 and later); ``()``: no clusters.
    """

    grid: Dim
    block: Dim
    shared: int = 0
    cluster: tuple[int, ...] = ()


class LaunchSpec(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """A launch without its operands and numbers.

    Attributes:
        name: Name of the kernel: a name expression (``"axpy<float>"``) for a source, the plain name for a module.
        kinds: Kinds of the parameters in order: ``"in"``, ``"out"`` or ``"inout"`` followed by a space and the dtype,
            as ``"in f32"``; for a number only the dtype. Without a dtype, any is accepted.
        names: Names of the parameters in the NumPy body, in order; ``""`` for one that it does not take.
        shapes: Shapes of the outputs to allocate, in order.
        geometry: Geometry of the launch.
        cooperative: All blocks run at once, so that they can wait for each other.
        maps: Positions, among the parameters, of arrays that are passed as tensor maps, and the maps.
    """

    name: str
    kinds: tuple[str, ...]
    geometry: Geometry
    names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    cooperative: bool = False
    maps: tuple[tuple[int, TensorMap], ...] = ()


def geometry(tag: str, grid: Any, block: Any, shared: int = 0, cluster: Any = None) -> Geometry:
    """A geometry, checked against the limits of all GPUs.

    Args:
        tag: Names the kernel in errors.
        grid, block, cluster: Up to three numbers, or one; the rest is 1.
        shared: Bytes.

    Raises:
        ShapeError: A number is out of range; names it.
    """
    made = Geometry(_dim(tag, "grid", grid), _dim(tag, "block", block), _whole(tag, "shared", shared))
    for name, value, limits, least in (("grid", made.grid, MAX_GRID, 0), ("block", made.block, MAX_BLOCK, 1)):
        for axis, n, most in zip("xyz", value, limits, strict=True):
            if not least <= n <= most:
                raise ShapeError(f"{tag}: {name}.{axis} is {n}; it must lie between {least} and {most}")
    x, y, z = made.block
    if x * y * z > MAX_THREADS:
        raise ShapeError(f"{tag}: block {list(made.block)} has {x * y * z} threads, at most {MAX_THREADS}")
    if not 0 <= made.shared <= MAX_SHARED:
        raise ShapeError(f"{tag}: shared is {made.shared} bytes; it must lie between 0 and {MAX_SHARED}")
    if cluster is None:
        return made
    return msgspec.structs.replace(made, cluster=_cluster(tag, _dim(tag, "cluster", cluster), made.grid))


def _cluster(tag: str, cluster: Dim, grid: Dim) -> Dim:
    x, y, z = cluster
    if min(cluster) < 1:
        raise ShapeError(f"{tag}: cluster is {list(cluster)}; a cluster has at least one block along each axis")
    if x * y * z > HARD_CLUSTER:
        raise ShapeError(
            f"{tag}: cluster {list(cluster)} has {x * y * z} blocks; every GPU with clusters takes {PORTABLE_CLUSTER}, "
            f"none more than {HARD_CLUSTER}"
        )
    for axis, blocks, one in zip("xyz", grid, cluster, strict=True):
        if blocks % one:
            raise ShapeError(f"{tag}: grid.{axis} is {blocks}, which clusters of {one} do not divide")
    return cluster


def _dim(tag: str, name: str, value: Any) -> Dim:
    try:
        given: Sequence[int] = shape_of(value, name)
    except ShapeError as e:
        raise ShapeError(f"{tag}: {e}") from None
    if not 1 <= len(given) <= 3:
        raise ShapeError(f"{tag}: {name} is {value!r}; pass one to three numbers")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _whole(tag: str, name: str, value: Any) -> int:
    (n,) = shape_of(value, f"{tag}: {name}") or (0,)
    return n
