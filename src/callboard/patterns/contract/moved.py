"""``refuse_moved``: keywords of servers that have become fields of an options object."""

import inspect
from collections.abc import Iterable

__all__ = ["refuse_moved"]

MOVED = {
    **{
        name: ("queue", f"queue=cb.QueueOptions({name}=...)")
        for name in ("overflow", "block_timeout", "ageing", "order")
    },
    **dict.fromkeys(("max_queue_cost", "max_queue_tokens"), ("queue", "queue=cb.QueueOptions(max_cost=...)")),
    **{
        name: ("batches", f"batches=cb.BatchOptions({name}=...)")
        for name in ("dispatch", "preferred", "pad", "ragged", "join_buckets", "preserve_order", "timeout_action")
    },
    "quarantine_key": ("quarantine", "quarantine=cb.Quarantine(None, item_key=...)"),
}
"""Of each such keyword: the parameter that has replaced it, and how it is written now."""


def refuse_moved(server: type, keywords: Iterable[str]) -> None:
    """Refuse keywords that this kind of server took as such once.

    Raises:
        TypeError: One of them; it names the new place.
    """
    for name in MOVED.keys() & set(keywords):
        parameter, place = MOVED[name]
        taken = inspect.signature(server).parameters
        if name not in taken and parameter in taken:
            raise TypeError(f"{name}= of {server.__name__} has moved: give {place}")
