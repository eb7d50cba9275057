"""``Tenant``: the limits of a tenant; and names of tenants."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from callboard.actors.errors import AccelError
from callboard.patterns.contract.checks import OneOf

__all__ = ["FairOverflow", "Path", "Tenant", "UnknownTenant", "path_of", "shown"]

Path = tuple[Hashable, ...]
"""The names of the groups that a tenant is in, from the outermost, then its own."""


class UnknownTenant(AccelError, KeyError):
    """The tenant has no settings, and the scheduler has none for others. Raised at the call.

    Attributes:
        tenant: Name of the tenant.
    """

    def __init__(self, message: str = "", tenant: Any = None) -> None:
        super().__init__(message)
        self.tenant = tenant

    __str__ = Exception.__str__  # KeyError shows its argument's repr


class FairOverflow(OneOf):
    """Treatment of a request for which there is no room. Members equal their texts."""

    REJECT = "reject"
    """It fails with :class:`QueueFull`."""
    BLOCK = "block"
    """The caller waits until there is room; ``submit_nowait`` fails as with ``reject``."""
    DROP_NEWEST_OF_LARGEST = "drop_newest_of_largest"
    """If the scheduler is full, the newest request of the tenant with the most waiting requests fails instead.
    It fails itself if that tenant is its own, or if its tenant's own queue is full."""


@dataclass(frozen=True)
class Tenant:
    """Settings of a tenant or a group of tenants.

    Attributes:
        weight: Share relative to the other members of its group that have waiting requests.
        max_queue: Requests that wait at most. Applies to tenants, not to groups.
        max_queue_cost: Summed cost of the waiting requests at most; None means no bound. Applies to tenants, not to
            groups.
        max_in_flight: Requests that run at once; None means no bound.
        rate: Cost per second; None means no bound.
        burst: Cost that may be used at once after a pause, 1 second of ``rate`` by default. The request that goes
            beyond it still runs: in t seconds, at most ``burst + rate * t`` and one request more are used.
        hard: ``max_in_flight`` and ``rate`` hold always. Otherwise a tenant may go beyond them while the scheduler
            would do nothing instead.
    """

    weight: float = 1.0
    max_queue: int = 256
    max_queue_cost: float | None = None
    max_in_flight: int | None = None
    rate: float | None = None
    burst: float | None = None
    hard: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight must be a positive number, but is {self.weight}")
        if self.burst is not None and self.rate is None:
            raise ValueError(f"burst is {self.burst}, but there is no rate")
        for name in ("max_queue", "max_in_flight"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, but is {value}")
        for name in ("max_queue_cost", "rate", "burst"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, but is {value}")


def path_of(tenant: Hashable) -> Path:
    """``"bob"`` is a tenant in no group, ``("acme", "bob")`` one in the group ``"acme"``.

    Raises:
        ValueError: The tuple is empty.
    """
    if not isinstance(tenant, tuple):
        return (tenant,)
    if not tenant:
        raise ValueError("a tenant's name is an empty tuple; it needs at least one part")
    return tenant


def shown(path: Path) -> str:
    """A name for errors."""
    return repr(path[0] if len(path) == 1 else path)
