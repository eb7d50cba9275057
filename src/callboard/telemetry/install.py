"""``observe``: telemetry in one line, or by ``CALLBOARD_TELEMETRY``."""

import os
import socket
import weakref
from collections.abc import Callable
from typing import Any

from callboard.actors import ActorSystem
from callboard.events.ring import CAPACITY
from callboard.telemetry.export.jsonlines import JsonLines
from callboard.telemetry.export.perfetto import Perfetto
from callboard.telemetry.export.scrape import Scrape
from callboard.telemetry.telemetry import Telemetry

__all__ = ["EXPORTERS", "VARIABLE", "install", "installed", "observe", "observe_by_environment"]

VARIABLE = "CALLBOARD_TELEMETRY"

_installed: "weakref.WeakKeyDictionary[ActorSystem, Telemetry]" = weakref.WeakKeyDictionary()


def _prometheus(telemetry: Telemetry, where: int | str) -> None:
    Scrape(telemetry, where)


def _jsonl(telemetry: Telemetry, path: str) -> None:
    _written(telemetry, JsonLines(path))


def _perfetto(telemetry: Telemetry, path: str) -> None:
    telemetry.measure_everything()
    _written(telemetry, Perfetto(path, telemetry.node))


def _written(telemetry: Telemetry, file: Any) -> None:
    telemetry.subscribe(file.take)
    telemetry.on_close(file.close)


EXPORTERS: dict[str, Callable[[Telemetry, Any], None]] = {
    "prometheus": _prometheus,
    "jsonl": _jsonl,
    "perfetto": _perfetto,
}
"""Exporters by the names that :func:`observe` and the environment variable use; each takes the text behind its name."""


def observe(
    system: ActorSystem, name: str | None = None, *, capacity: int = CAPACITY, **exporters: int | str | os.PathLike[str]
) -> Telemetry:
    """Record what a system does from now on, and export it. On the system's loop.

    A second call returns the same object, with further exporters.

    Args:
        system: A started system; its end ends the recording.
        name: Name of this application among others; None: the machine's name and the process.
        capacity: The most events that wait for exporters; older ones are dropped, and counted.
        exporters: ``prometheus``: port, or host and port, that answers ``/metrics``. ``jsonl``: a file that events are
            appended to as lines of JSON. ``perfetto``: a trace file; all ops are measured for it.

    Raises:
        TypeError: An exporter is unknown.
        OSError: A file cannot be written, or an address is not free.
        RuntimeError: The system is not started, or belongs to another thread.
    """
    unknown = exporters.keys() - EXPORTERS.keys()
    if unknown:
        raise TypeError(f"observe() has no exporter {min(unknown)!r}; there are {', '.join(EXPORTERS)}")
    port = system._port
    if port is None or not port.is_here():
        why = "is not started" if port is None else "belongs to another thread"
        raise RuntimeError(f"the system {system.name} {why}: call observe() inside 'async with', on its loop")
    telemetry = _installed.get(system)
    if telemetry is None:
        telemetry = Telemetry(system, name or f"{socket.gethostname()}-{os.getpid()}", capacity)
        telemetry.start()
        _installed[system] = telemetry
        system.on_termination(telemetry.end)
    for kind, where in exporters.items():
        EXPORTERS[kind](telemetry, where)
    return telemetry


def install(system: ActorSystem, name: str | None = None) -> Telemetry:
    """The same as :func:`observe`, without exporters."""
    return observe(system, name)


def installed() -> list[Telemetry]:
    """The telemetry of all observed systems of this process."""
    return [telemetry for telemetry in _installed.values() if not telemetry.closed]


def observe_by_environment(system: ActorSystem) -> None:
    """Observe a system as ``CALLBOARD_TELEMETRY`` says: ``1``, or exporters with commas between them.

    ``CALLBOARD_TELEMETRY=prometheus:9464,jsonl:events.jsonl,perfetto:app.pftrace``

    Raises:
        ValueError: It says something else.
    """
    exporters = {}
    for each in os.environ[VARIABLE].split(","):
        kind, _, where = each.strip().partition(":")
        if kind in EXPORTERS and where:
            exporters[kind] = where
        elif kind not in ("", "0", "1"):
            raise ValueError(
                f"{VARIABLE}: {each.strip()!r} is not 1, and not one of {', '.join(EXPORTERS)} with ':where'"
            )
    if os.environ[VARIABLE].strip() not in ("", "0"):
        observe(system, **exporters)
