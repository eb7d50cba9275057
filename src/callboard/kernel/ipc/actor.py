"""``IpcActor``: the actor that serves the messages of this package."""

__all__ = ["IpcActor"]


class IpcActor:
    """Serves the memory that a device shares with other processes."""
