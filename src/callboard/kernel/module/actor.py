"""``ModuleActor``: the actor that serves the messages of this package."""

__all__ = ["ModuleActor"]


class ModuleActor:
    """Loads, links and launches kernels that are compiled already."""
