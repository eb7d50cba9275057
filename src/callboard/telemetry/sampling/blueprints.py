"""The servers that have been started, by their own ``stats()``."""

import dataclasses
import logging
import weakref
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.events.registry import SERVERS
from callboard.telemetry.sampling.snapshot import BlueprintFigures

__all__ = ["ENDS", "blueprint_figures", "server_stats"]

_told: weakref.WeakSet[Any] = weakref.WeakSet()
_log = logging.getLogger("callboard.telemetry")

ENDS = ("completed", "failed", "cancelled", "expired", "rejected", "dropped", "stopped")


def server_stats() -> list[tuple[str, str, Any]]:
    """Name, class and ``stats()`` of each server; servers of one name and class are numbered."""
    found: list[tuple[str, str, Any]] = []
    seen: dict[tuple[str, str], int] = {}
    for server in sorted(SERVERS, key=lambda each: (str(each.name), id(each))):
        key = str(server.name), type(server).__name__
        seen[key] = seen.get(key, 0) + 1
        name = key[0] if seen[key] == 1 else f"{key[0]} #{seen[key]}"
        try:
            found.append((name, key[1], server.stats()))
        except Exception:  # of a subclass of the user's: it does not cost the others theirs
            if server not in _told:
                _log.exception("%s: stats() failed; its figures are missing", name)
            _told.add(server)
    return found


def blueprint_figures() -> list[BlueprintFigures]:
    """Figures of all servers."""
    return [
        BlueprintFigures(
            name,
            kind,
            getattr(stats, "queued", 0),
            getattr(stats, "running", 0),
            {end: getattr(stats, end, 0) for end in ENDS},
            _plain(stats) if dataclasses.is_dataclass(stats) else {},
        )
        for name, kind, stats in server_stats()
    ]


def _plain(stats: Any) -> Any:
    """Figures as JSON has them: tenants, versions and other keys of the user's may be any hashable value."""
    if dataclasses.is_dataclass(stats) and not isinstance(stats, type):
        return {field.name: _plain(getattr(stats, field.name)) for field in dataclasses.fields(stats)}
    if isinstance(stats, Mapping):
        return {_key(key): _plain(value) for key, value in stats.items()}
    if isinstance(stats, (list, tuple)):
        return [_plain(value) for value in stats]
    return msgspec.to_builtins(stats, str_keys=True, enc_hook=str)


def _key(key: Any) -> str:
    """``("acme", "bob")``, a tenant in a group, is ``"acme/bob"``."""
    return "/".join(map(_key, key)) if isinstance(key, tuple) else str(key)
