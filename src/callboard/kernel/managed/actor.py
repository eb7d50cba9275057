"""``ManagedAllocatorActor``: the actor that serves the messages of this package."""

__all__ = ["ManagedAllocatorActor"]


class ManagedAllocatorActor:
    """Serves the managed memory of a device."""
