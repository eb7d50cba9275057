"""The context host: the code that runs with the context, in a child process or a thread."""

from callboard.device.host.context.serve import POISONED, serve

__all__ = ["POISONED", "serve"]
