"""Messages of :class:`.GpuHashMapActor`."""

from typing import TYPE_CHECKING, Any, Literal

from callboard.actors import Request

if TYPE_CHECKING:
    from callboard.realtime.hashmap.actor import GpuHashMapActor  # noqa: F401 -- in the types below
    from callboard.realtime.hashmap.answers import Found, HashMapStats  # noqa: F401 -- in the types below

__all__ = ["Clear", "HashMapStatsOf", "Insert", "Lookup"]


class Insert(Request["GpuHashMapActor", int]):
    """Give keys values; the answer is the number of keys that are new.

    Attributes:
        keys, values: See :meth:`.GpuHashMapActor.insert_or_assign`.
        how: What becomes of a key that is there.
    """

    keys: Any
    values: Any
    how: Literal["assign", "keep", "add"] = "assign"


class Lookup(Request["GpuHashMapActor", "Found"]):
    """The values of keys, and which of them are there; see :meth:`.GpuHashMapActor.find`."""

    keys: Any


class Clear(Request["GpuHashMapActor", None]):
    """Remove all keys."""


class HashMapStatsOf(Request["GpuHashMapActor", "HashMapStats"]):
    """Figures; see :meth:`.GpuHashMapActor.stats`."""
