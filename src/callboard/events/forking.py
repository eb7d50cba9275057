"""``after_fork``: what a forked child does first, where processes fork."""

import os
from collections.abc import Callable

__all__ = ["after_fork"]


def after_fork(act: Callable[[], object]) -> None:
    """Call ``act`` in each child that this process forks from now on; nothing on a system without ``os.fork``."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)
