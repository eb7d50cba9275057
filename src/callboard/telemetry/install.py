"""``observe``: telemetry in one line, or by ``CALLBOARD_TELEMETRY``."""

import os
import socket
import weakref

from callboard.actors import ActorSystem
from callboard.events.ring import CAPACITY
from callboard.telemetry.telemetry import Telemetry

__all__ = ["install", "observe"]

_installed: "weakref.WeakKeyDictionary[ActorSystem, Telemetry]" = weakref.WeakKeyDictionary()


def observe(system: ActorSystem, name: str | None = None, *, capacity: int = CAPACITY) -> Telemetry:
    """Record what a system does from now on. On its loop; a second call returns the same object.

    Args:
        system: A started system; its end ends the recording.
        name: Name of this application among others; None: the machine's name and the process.
        capacity: The most events that wait for exporters.
    """
    telemetry = _installed.get(system)
    if telemetry is None:
        telemetry = Telemetry(system, name or f"{socket.gethostname()}-{os.getpid()}", capacity)
        telemetry.start()
        _installed[system] = telemetry
        system.on_termination(telemetry.end)
    return telemetry


def install(system: ActorSystem, name: str | None = None) -> Telemetry:
    """The same as :func:`observe`."""
    return observe(system, name)
