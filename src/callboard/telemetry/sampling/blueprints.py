"""The servers that have been started, by their own ``stats()``."""

import dataclasses
from typing import Any

import msgspec

from callboard.events.registry import SERVERS
from callboard.telemetry.sampling.snapshot import BlueprintFigures

__all__ = ["ENDS", "blueprint_figures", "server_stats"]

ENDS = ("completed", "failed", "cancelled", "expired", "rejected", "dropped", "stopped")


def server_stats() -> list[tuple[str, str, Any]]:
    """Name, class and ``stats()`` of each server; servers of one name and class are numbered."""
    found: list[tuple[str, str, Any]] = []
    seen: dict[tuple[str, str], int] = {}
    for server in sorted(SERVERS, key=lambda each: (str(each.name), id(each))):
        key = str(server.name), type(server).__name__
        seen[key] = seen.get(key, 0) + 1
        name = key[0] if seen[key] == 1 else f"{key[0]} #{seen[key]}"
        found.append((name, key[1], server.stats()))
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
            _plain(stats),
        )
        for name, kind, stats in server_stats()
    ]


def _plain(stats: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(stats) or isinstance(stats, type):
        return {}
    plain: dict[str, Any] = msgspec.to_builtins(
        {field.name: getattr(stats, field.name) for field in dataclasses.fields(stats)}, str_keys=True, enc_hook=str
    )
    return plain
