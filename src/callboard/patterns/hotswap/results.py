"""Results of a ``ModelHotSwapServer``: a reply, the report of a swap, figures."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from callboard.patterns.hotswap.versions import VersionStats
from callboard.patterns.requests.stats import ServerStats

__all__ = ["HotSwapReply", "HotSwapStats", "SwapReport"]

R = TypeVar("R")


@dataclass(frozen=True)
class HotSwapReply(Generic[R]):
    """A reply of the server.

    Attributes:
        response: Response of the model.
        version: Name of the version that ran.
    """

    response: R
    version: str


@dataclass(frozen=True)
class SwapReport:
    """The report of a swap, in seconds of the server's clock.

    Attributes:
        version: The active one since.
        previous: The one that was active before; None at the start.
        generation: The number of versions that have been activated, this one included.
        load_seconds, warm_seconds, check_seconds: Seconds of loading, warm-up calls and golden items; 0 for a version
            that was still loaded.
        canary_seconds: Seconds from the first request that the canary could get to the decision.
        flip_seconds: During which neither version could start a request.
        drain_seconds: Seconds from the flip until no request ran on the previous version.
        unload_seconds: Seconds of unloading.
        update_seconds: Seconds of putting its weights into the loaded model; 0 if it was loaded as a second model.
        in_place: True if that was done.
        unloaded: Versions that were unloaded.
        unload_errors: Exceptions of unloading, by version, or :class:`MemoryKept`. Such a version counts as unloaded
            all the same.
    """

    version: str
    previous: str | None
    generation: int
    load_seconds: float = 0.0
    warm_seconds: float = 0.0
    check_seconds: float = 0.0
    canary_seconds: float = 0.0
    flip_seconds: float = 0.0
    drain_seconds: float = 0.0
    unload_seconds: float = 0.0
    update_seconds: float = 0.0
    in_place: bool = False
    unloaded: tuple[str, ...] = ()
    unload_errors: tuple[tuple[str, Exception], ...] = ()


@dataclass(frozen=True)
class HotSwapStats(ServerStats):
    """Figures of the server.

    Attributes:
        active: The version that receives requests; None before the first one is loaded.
        generation: The number of versions that have been activated, the first one included.
        swaps: Versions that were activated in the place of another one.
        failed_swaps: Swaps that ended in ``SwapFailed``.
        versions: Figures of each known version, by name.
    """

    active: str | None
    generation: int
    swaps: int
    failed_swaps: int
    versions: dict[str, VersionStats]
