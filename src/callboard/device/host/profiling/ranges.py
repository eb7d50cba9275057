"""``Ranges``: an NVTX range around each launch, for Nsight Systems."""

from typing import Any

from callboard.core.errors import BackendUnavailable

__all__ = ["Ranges"]


class Ranges:
    """Ranges named after the ops.

    Args:
        domain: NVTX domain.

    Raises:
        BackendUnavailable: ``nvtx`` is not installed.
    """

    def __init__(self, domain: str) -> None:
        try:
            import nvtx
        except ImportError as e:
            raise BackendUnavailable(
                "NVTX ranges need the package nvtx in the context host: "
                "pip install 'callboard[observability-full-cuda13]', or -cuda12"
            ) from e
        self._domain: Any = nvtx.get_domain(domain)
        self._attributes: dict[str, Any] = {}

    def begin(self, op: int, tag: str) -> None:
        """Begin a range."""
        attributes = self._attributes.get(tag)
        if attributes is None:
            attributes = self._attributes[tag] = self._domain.get_event_attributes(message=tag)
        self._domain.push_range(attributes)

    def end(self) -> None:
        """End it."""
        self._domain.pop_range()
