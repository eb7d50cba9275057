"""Requirements of a piece of work, and capacities of a device."""

from collections.abc import Hashable, Set
from dataclasses import dataclass, field

__all__ = ["Candidate", "PlacementHints"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementHints:
    """Requirements of a piece of work.

    Args:
        min_free_bytes: Minimum memory of the device, in bytes, that is neither used nor reserved.
        memory_bytes: Memory to reserve until the choice is released; only devices that have it.
        streams: Streams to reserve (of :attr:`Candidate.streams`).
        min_compute_cap: Minimum compute capability of the device; ``(9, 0)`` is Hopper.
        backend: Required backend of the device (``"cuda"``); None for any.
        near: Ids of devices: only these, or devices that are linked to each of them.
        avoid: Ids of devices that may not be chosen.
        apart: Two choices with an equal ``apart`` are never on one device at the same time.

    Raises:
        TypeError: ``near`` or ``avoid`` is no set of ids.
        ValueError: A number below zero.
    """

    min_free_bytes: int = 0
    memory_bytes: int = 0
    streams: int = 0
    min_compute_cap: tuple[int, int] = (0, 0)
    backend: str | None = None
    near: frozenset[str] = frozenset()
    avoid: frozenset[str] = frozenset()
    apart: Hashable = None

    def __post_init__(self) -> None:
        for name in ("min_free_bytes", "memory_bytes", "streams"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"{name} must be at least 0, but is {value}")
        for name in ("near", "avoid"):
            ids = getattr(self, name)
            if not isinstance(ids, Set) or not all(isinstance(uuid, str) for uuid in ids):
                raise TypeError(f"{name} is {ids!r}; pass a set of ids of devices, {{device.uuid, ...}}")


@dataclass(slots=True)
class Candidate:
    """The view that a policy has of a device.

    Attributes:
        id: Id of the device; unique among the devices of this actor.
        backend, compute_cap: See :class:`~callboard.core.backend.DeviceInfo`.
        free_bytes: Unused memory, as last reported by the device.
        total_bytes: Memory.
        streams: Streams that may be reserved.
        ready: True if its context is ready; a device that is being rebuilt is skipped.
        stopped: True if it will not be ready again.
        in_flight: Ops without a completion, now.
        reserved_bytes, reserved_streams: Memory and streams reserved by choices that are not released.
        choices: The number of choices that are not released.
        turn: Number of its last choice, counted over all devices.
        apart: The ``apart`` values of the choices that are not released.
    """

    id: str
    backend: str = "cpu"
    compute_cap: tuple[int, int] = (0, 0)
    free_bytes: int = 0
    total_bytes: int = 0
    streams: int = 32
    ready: bool = True
    stopped: bool = False
    in_flight: int = 0
    reserved_bytes: int = 0
    reserved_streams: int = 0
    choices: int = 0
    turn: int = 0
    apart: set[Hashable] = field(default_factory=set)

    @property
    def available_bytes(self) -> int:
        """Memory that is neither used nor reserved.

        A reservation represents memory that will soon be in use. It counts until its lease ends, even when the memory
        is already in use: for a while the result is too small, but never too large.
        """
        return self.free_bytes - self.reserved_bytes

    @property
    def load(self) -> int:
        """Ops in flight, and choices that are not released: a burst counts before its work has begun."""
        return self.in_flight + self.choices

    def described(self) -> str:
        """The properties that policies use, in words."""
        return (
            f"{self.in_flight} ops in flight, {self.choices} choices not released, "
            f"{self.available_bytes:,} bytes and {self.streams - self.reserved_streams} streams available"
        )

    def why_not(self, hints: PlacementHints, linked: frozenset[str] = frozenset()) -> str | None:
        """The reason why work with these needs cannot be placed here; None if it can.

        Args:
            hints: The needs.
            linked: Ids of the devices that this one is linked to.
        """
        if not self.ready:
            return "it has stopped" if self.stopped else "its context is being rebuilt"
        if self.id in hints.avoid:
            return "it is to be avoided"
        if hints.backend is not None and self.backend != hints.backend:
            return f"its backend is {self.backend!r}"
        if self.compute_cap < hints.min_compute_cap:
            return f"its compute capability is {_dotted(self.compute_cap)}"
        wanted = max(hints.min_free_bytes, hints.memory_bytes)
        if wanted and self.available_bytes < wanted:
            return f"{self.available_bytes:,} bytes are available ({self.reserved_bytes:,} are reserved)"
        if hints.streams and self.streams - self.reserved_streams < hints.streams:
            return f"{self.streams - self.reserved_streams} streams are available"
        if hints.near and not hints.near <= linked | {self.id}:
            missing = sorted(hints.near - linked - {self.id})
            return f"it has no link to {', '.join(missing)}"
        if hints.apart is not None and hints.apart in self.apart:
            return f"it has a choice that is to be apart ({hints.apart!r})"
        return None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
