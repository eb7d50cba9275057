"""Messages of :class:`.SpatialIndexActor`."""

from typing import TYPE_CHECKING, Any

from callboard.actors import Request

if TYPE_CHECKING:
    from callboard.realtime.spatial.actor import SpatialIndexActor  # noqa: F401 -- in the types below
    from callboard.realtime.spatial.answers import Neighbors, SpatialStats  # noqa: F401 -- in the types below

__all__ = ["QueryNeighbors", "Rebuild", "SpatialStatsOf"]


class Rebuild(Request["SpatialIndexActor", int]):
    """Have these points and no others; the answer is their number. See :meth:`.SpatialIndexActor.rebuild`."""

    points: Any
    ids: Any = None


class QueryNeighbors(Request["SpatialIndexActor", "Neighbors"]):
    """The points within a radius of each place; see :meth:`.SpatialIndexActor.within`."""

    points: Any
    radius: Any


class SpatialStatsOf(Request["SpatialIndexActor", "SpatialStats"]):
    """Figures; see :meth:`.SpatialIndexActor.stats`."""
