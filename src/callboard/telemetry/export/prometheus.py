"""``Text``: metrics in Prometheus' text format 0.0.4. The beginnings of lines are kept from scrape to scrape."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from callboard.telemetry.export.texts import utf8
from callboard.telemetry.families import Family, Group

__all__ = ["CONTENT_TYPE", "Text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

log = logging.getLogger("callboard.telemetry")

KEPT = 100_000
"""Most beginnings of lines that are kept."""


class Text:
    """Writes the text; one object for each exporter."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, tuple[str, ...]], str] = {}
        self._told: set[str] = set()

    def render(self, groups: Iterable[Group]) -> str:
        """The text of all groups. Groups of one family are written together; families without series are left out."""
        merged: dict[Family, Sequence[tuple[tuple[str, ...], Any]]] = {}
        for family, series in groups:
            if not series:
                continue
            if family in merged:
                merged[family] = [*merged[family], *series]
            else:
                merged[family] = series
        if len(self._starts) > KEPT:
            self._starts.clear()
        lines: list[str] = []
        for family, series in merged.items():
            begun = len(lines)
            lines.append(f"# HELP {family.name} {_help(family.help)}\n# TYPE {family.name} {family.kind}")
            try:
                if family.kind == "histogram":
                    self._histograms(family, series, lines)
                else:
                    self._numbers(family, series, lines)
            except Exception:  # of a source of the user's, which gives something else: the others are written
                del lines[begun:]
                if family.name not in self._told:
                    log.exception("%s cannot be written, and is left out", family.name)
                    self._told.add(family.name)
        lines.append("")
        return "\n".join(lines)

    def _numbers(self, family: Family, series: Sequence[tuple[tuple[str, ...], Any]], lines: list[str]) -> None:
        name, starts, add = family.name, self._starts, lines.append
        for values, number in series:
            key = (name, values)
            start = starts.get(key)
            if start is None:
                labels = _labels(family.labels, values)
                start = starts[key] = f"{name}{{{labels}}} " if labels else f"{name} "
            add(f"{start}{number!r}")

    def _histograms(self, family: Family, series: Sequence[tuple[tuple[str, ...], Any]], lines: list[str]) -> None:
        name = family.name
        for values, found in series:
            labels = _labels(family.labels, values)
            inside = f"{labels}," if labels else ""
            lines.extend(f'{name}_bucket{{{inside}le="{float(bound)!r}"}} {count}' for bound, count in found.buckets)
            lines.append(f'{name}_bucket{{{inside}le="+Inf"}} {found.count}')
            closed = f"{{{labels}}}" if labels else ""
            lines.append(f"{name}_sum{closed} {found.sum!r}\n{name}_count{closed} {found.count}")


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{name}="{_quoted(value)}"' for name, value in zip(names, values, strict=True))


def _quoted(value: str) -> str:
    return utf8(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
