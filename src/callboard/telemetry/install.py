"""``observe``: telemetry in one line, or by ``CALLBOARD_TELEMETRY``."""

import os
import socket
from collections.abc import Callable
from typing import Any, Protocol

from callboard.actors import ActorSystem
from callboard.core.errors import BackendUnavailable
from callboard.events.forking import after_fork
from callboard.events.names import check_name
from callboard.events.ring import CAPACITY, Event
from callboard.events.tracing import Sampler
from callboard.telemetry.export.jsonlines import JsonLines
from callboard.telemetry.export.otel import OtlpMetrics, OtlpTraces
from callboard.telemetry.export.perfetto import Perfetto
from callboard.telemetry.export.scrape import Scrape
from callboard.telemetry.logs import complain
from callboard.telemetry.nvidia.nvml import watch_gpus
from callboard.telemetry.observed import installed, known, note
from callboard.telemetry.profiling.costs import CostsFile
from callboard.telemetry.telemetry import Telemetry

__all__ = ["EXPORTERS", "VARIABLE", "install", "installed", "observe", "observe_by_environment"]

VARIABLE = "CALLBOARD_TELEMETRY"

_files: dict[tuple[str, str], "_SharedFile"] = {}
after_fork(_files.clear)


class _File(Protocol):
    def take(self, events: list[Event]) -> None: ...

    def close(self) -> None: ...


class _SharedFile:
    """A file that several systems of this process write, one after the other or at the same time."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._users = 0
        self._end: Callable[[], None] | None = None

    def begin(self, telemetry: Telemetry) -> None:
        """Write what this telemetry records, too."""
        self._users += 1
        if self._users == 1:
            sampler: Sampler | None = getattr(self._file, "sampler", None)
            self._end = telemetry.pump.subscribe(self._file.take, ops=sampler is None, sampler=sampler)
        telemetry.on_close(self._ended)

    def _ended(self) -> None:
        self._users -= 1
        if not self._users and self._end is not None:
            self._end()
            self._file.close()


def _written(kind: str, make: Callable[[Telemetry, str], _File], telemetry: Telemetry, path: str) -> None:
    key = kind, os.path.abspath(path)
    file = _files.get(key)
    if file is None:
        file = _files[key] = _SharedFile(make(telemetry, path))
    file.begin(telemetry)


def _prometheus(telemetry: Telemetry, where: int | str) -> None:
    Scrape.shared(telemetry, where)


def _jsonl(telemetry: Telemetry, path: str) -> None:
    _written("jsonl", lambda _, path: JsonLines(path), telemetry, path)


def _perfetto(telemetry: Telemetry, path: str) -> None:
    _written("perfetto", lambda telemetry, path: Perfetto(path, telemetry.node), telemetry, path)
    telemetry.measure_everything()


def _costs(telemetry: Telemetry, path: str) -> None:
    _written("costs", lambda _, path: CostsFile(path), telemetry, path)
    telemetry.measure_everything()


def _otlp(telemetry: Telemetry, where: int | str) -> None:
    _written("otlp", OtlpTraces, telemetry, str(where))
    OtlpMetrics.shared(telemetry, where)


EXPORTERS: dict[str, Callable[[Telemetry, Any], None]] = {
    "prometheus": _prometheus,
    "jsonl": _jsonl,
    "perfetto": _perfetto,
    "costs": _costs,
    "otlp": _otlp,
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
            appended to as lines of JSON. ``perfetto``: a trace file; all ops are measured for it. ``costs``: a file
            that the table of the costliest ops is written to at the end. ``otlp``: a collector of OpenTelemetry, as
            a URL or a port of this machine; needs the extra ``otel``.

    Raises:
        TypeError: An exporter is unknown, or the name is not a str.
        ValueError: The name is no text, or longer than 256 characters; or an exporter's address is none.
        BackendUnavailable: The SDK that an exporter needs is not installed.
        OSError: A file cannot be written, or an address is not free.
        RuntimeError: The system is not started, has ended, or belongs to another thread.
    """
    unknown = exporters.keys() - EXPORTERS.keys()
    if unknown:
        raise TypeError(f"observe() has no exporter {min(unknown)!r}; there are {', '.join(EXPORTERS)}")
    port = system._port
    if port is None or not port.is_here() or system.is_stopping:
        why = "is not started" if port is None else "belongs to another thread" if not port.is_here() else "has ended"
        raise RuntimeError(f"the system {system.name} {why}: call observe() inside 'async with', on its loop")
    telemetry = known(system)
    if telemetry is None:
        check_name("an observed application", name or "")
        telemetry = Telemetry(system, name or f"{socket.gethostname()}-{os.getpid()}", capacity)
        telemetry.start()
        watch_gpus(telemetry)
        note(system, telemetry)
        system.on_termination(telemetry.end)
    for kind, where in exporters.items():
        EXPORTERS[kind](telemetry, where)
    return telemetry


def install(system: ActorSystem, name: str | None = None) -> Telemetry:
    """The same as :func:`observe`, without exporters."""
    return observe(system, name)


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
    if os.environ[VARIABLE].strip() in ("", "0"):
        return
    telemetry = observe(system)
    for kind, where in exporters.items():
        try:
            EXPORTERS[kind](telemetry, where)
        except (OSError, BackendUnavailable) as e:  # the program is to run all the same
            complain(f"{VARIABLE}: {kind}:{where} cannot be used: {e}")
