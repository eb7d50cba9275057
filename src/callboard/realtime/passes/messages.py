"""Messages of :class:`.MultiPassAnalysisActor`."""

from typing import TYPE_CHECKING, Any

from callboard.actors import Request

if TYPE_CHECKING:
    from callboard.realtime.passes.actor import MultiPassAnalysisActor  # noqa: F401 -- in the types below

__all__ = ["Analyze"]


class Analyze(Request["MultiPassAnalysisActor", "dict[str, Any]"]):
    """Run all passes on a frame; see :meth:`.MultiPassAnalysisActor.analyze`."""

    frame: Any
    roi: tuple[int, int, int, int] | None = None
    tiles: tuple[int, int] | None = None
