"""Messages of :class:`.VideoEffectsGraph`."""

from typing import TYPE_CHECKING, Any

from callboard.actors import Request

if TYPE_CHECKING:
    from callboard.realtime.video.graph import VideoEffectsGraph  # noqa: F401 -- in the types below

__all__ = ["ProcessFrame", "UpdateEffects"]


class ProcessFrame(Request["VideoEffectsGraph", Any]):
    """Apply all effects to a frame; see :meth:`.VideoEffectsGraph.process_frame`."""

    frame: Any


class UpdateEffects(Request["VideoEffectsGraph", None]):
    """Replace effects; see :meth:`.VideoEffectsGraph.update_effects`."""

    effects: Any
