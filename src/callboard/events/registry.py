"""What runs in this process, for telemetry that is installed later: servers register themselves when they start."""

import weakref
from typing import Any, Final

__all__ = ["SERVERS"]

SERVERS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""Blueprints' servers that have been started: each has a ``name`` and ``stats()``."""
