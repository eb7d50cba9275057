"""The context host: opens the context and executes ops on it, in a child process or a thread."""

from callboard.device.host.context.serve import POISONED, serve

__all__ = ["POISONED", "serve"]
