"""``EventActor``: the actor that serves the messages of this package."""

__all__ = ["EventActor"]


class EventActor:
    """Serves the events of a device."""
