"""What is enqueued for a batch of keys; each is repeated as it was after a loss."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from callboard.realtime.base.live import Later, Live, fetched, lent
from callboard.realtime.hashmap import kernels
from callboard.realtime.hashmap.config import HashMapConfig
from callboard.realtime.hashmap.keys import Words
from callboard.realtime.hashmap.plain import LOOK

__all__ = ["changed", "located", "searched", "wiped"]

Table = Live[HashMapConfig]


def changed(words: Words, given: NDArray[Any], how: int, slots: int, live: Table) -> Awaitable[Any]:
    """Change keys, in a table of ``slots`` slots if that is not 0; gives the counts."""
    if slots:
        _moved(live, slots)
    a: Any = live.arrays
    query, values = lent(live.device, words), lent(live.device, given)
    _, slot, order = kernels.claim(query, a["keys"], a["tag"], how)
    if live.device.backend != "cpu":  # whose threads need the items of a slot next to each other
        slot, order = live.device.cub.sort_pairs(slot, order)
    kernels.apply(slot, order, query, values, a["keys"], a["tag"], a["values"], a["counts"], how)
    counts: Awaitable[Any] = a["counts"].get()
    return counts


def wiped(live: Table) -> Awaitable[Any]:
    """Have no keys; gives the counts."""
    kernels.wipe(live.arrays["tag"], live.arrays["counts"])
    if live.device.backend == "cpu":  # where a key in a slot says that it is there
        live.device.fill(live.arrays["keys"], 0)
    return live.arrays["counts"].get()


def located(words: Words, live: Table) -> Awaitable[Any]:
    """The slot of each key, or -1."""
    a: Any = live.arrays
    slots: Awaitable[Any] = kernels.claim(lent(live.device, words), a["keys"], a["tag"], LOOK)[1].get()
    return slots


def searched(words: Words, live: Table) -> Awaitable[Any]:
    """Which keys there are, and their values."""
    a: Any = live.arrays
    found, values = kernels.find(lent(live.device, words), a["keys"], a["tag"], a["values"])
    return Later(partial(_both, fetched(live.device, found), fetched(live.device, values)))


def _moved(live: Table, slots: int) -> None:
    """Put all keys into a table of this size."""
    old: Any = {name: live.arrays[name] for name in ("keys", "tag", "values")}
    for name, ref in old.items():
        rows = slots if len(ref) == len(old["tag"]) else len(ref)
        live.replace(name, live.device.zeros((rows, *ref.shape[1:]), ref.dtype))
    kernels.rehash(*old.values(), *(live.arrays[name] for name in old), live.arrays["counts"])


async def _both(one: Awaitable[Any], other: Awaitable[Any]) -> tuple[Any, Any]:
    return await one, await other
