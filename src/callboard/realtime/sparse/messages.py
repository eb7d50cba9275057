"""Messages of :class:`.GpuSparseStructureActor`."""

from typing import TYPE_CHECKING, Any

from callboard.actors import Request

if TYPE_CHECKING:
    from callboard.realtime.sparse.actor import GpuSparseStructureActor, SparseStats  # noqa: F401 -- in the types below

__all__ = ["SetEntries", "SpMv", "SparseStatsOf"]


class SetEntries(Request["GpuSparseStructureActor", int]):
    """Replace all entries; the answer is their number. See :meth:`.GpuSparseStructureActor.set_entries`."""

    rows: Any
    cols: Any
    values: Any


class SpMv(Request["GpuSparseStructureActor", Any]):
    """The product with a vector; see :meth:`.GpuSparseStructureActor.spmv`."""

    x: Any
    transpose: bool = False


class SparseStatsOf(Request["GpuSparseStructureActor", "SparseStats"]):
    """Figures; see :meth:`.GpuSparseStructureActor.stats`."""
