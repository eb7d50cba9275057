"""``FlashAttnActor``: the actor that serves the messages of this package."""

__all__ = ["FlashAttnActor"]


class FlashAttnActor:
    """Serves attention, its gradients and paged caches of keys and values (:mod:`callboard.kernel.attention`)."""
