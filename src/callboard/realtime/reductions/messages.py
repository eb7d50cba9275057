"""Messages of :class:`.ReductionAnalysisActor`."""

from typing import TYPE_CHECKING, Any

from callboard.actors import Request

if TYPE_CHECKING:
    from callboard.realtime.reductions.actor import ReductionAnalysisActor  # noqa: F401 -- in the types below

__all__ = ["Reduce", "ReduceChannels"]


class Reduce(Request["ReductionAnalysisActor", Any]):
    """One number of all data; see :meth:`.ReductionAnalysisActor.reduce`."""

    kind: Any
    data: Any


class ReduceChannels(Request["ReductionAnalysisActor", Any]):
    """One number for each channel; see :meth:`.ReductionAnalysisActor.reduce_channels`."""

    kind: Any
    data: Any
    channels: int
