"""``Totals``: one exposition of several workers: counters and histograms are summed, gauges labelled."""

from collections.abc import Iterable, Mapping

__all__ = ["Totals"]

Samples = dict[str, float]
"""Values by series: a metric's name with its labels."""


class Totals:
    """The figures of all workers, of ended ones too: a sum never decreases."""

    def __init__(self) -> None:
        self._heads: dict[str, tuple[str, list[str]]] = {}  # metric to its type, and its lines of # HELP and # TYPE
        self._ended: dict[str, Samples] = {}
        self._last: dict[int, dict[str, Samples]] = {}

    def note(self, worker: int, text: str) -> None:
        """Keep the exposition of a worker."""
        found: dict[str, Samples] = {}
        samples: Samples = {}
        head: list[str] = []
        for line in text.split("\n"):  # labels may have other separators of lines
            if line.startswith("# HELP "):
                head = [line]
            elif line.startswith("# TYPE "):
                _, _, metric, kind = line.split(" ", 3)
                self._heads[metric] = kind, [*head, line]
                samples = found.setdefault(metric, {})
            elif line:
                series, _, value = line.rpartition(" ")
                samples[series] = float(value)
        self._last[worker] = found

    def moved(self, worker: int, key: int) -> None:
        """Another process has the worker's place: it counts on under this negative key, and its gauges are left out."""
        if worker in self._last:
            self._last[key] = self._last.pop(worker)

    def ended(self, worker: int) -> None:
        """The worker's process has ended: what it counted remains, its gauges do not."""
        for metric, samples in self._last.pop(worker, {}).items():
            if self._heads[metric][0] != "gauge":
                _add(self._ended.setdefault(metric, {}), samples)

    def exposition(self, more: Mapping[str, tuple[str, str, float]]) -> str:
        """All of them in Prometheus' text format.

        Args:
            more: Further metrics: type, help and value by name.
        """
        lines = []
        for metric, (kind, head) in self._heads.items():
            lines += head
            if kind == "gauge":
                for worker, found in sorted(self._last.items()):
                    shown = found.get(metric, {}).items() if worker >= 0 else ()
                    lines += _lines({_labelled(each, worker): value for each, value in shown})
                continue
            sums: Samples = {}
            for samples in [self._ended.get(metric, {}), *(found.get(metric, {}) for found in self._last.values())]:
                _add(sums, samples)
            lines += _lines(sums)
        for metric, (kind, what, value) in more.items():
            lines += [f"# HELP {metric} {what}", f"# TYPE {metric} {kind}", *_lines({metric: float(value)})]
        return "\n".join(lines) + "\n"


def _add(sums: Samples, samples: Samples) -> None:
    for series, value in samples.items():
        sums[series] = sums.get(series, 0.0) + value


def _labelled(series: str, worker: int) -> str:
    label = f'worker="{worker}"'
    return f"{series[:-1]},{label}}}" if series.endswith("}") else f"{series}{{{label}}}"


def _lines(samples: Samples) -> Iterable[str]:
    for series, value in samples.items():
        yield f"{series} {int(value) if value.is_integer() else repr(value)}"
