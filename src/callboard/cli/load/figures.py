"""Figures of a load, and their picture in a terminal."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from callboard.cli.load.driver import Samples

__all__ = ["Figures", "drawing", "figures_of"]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
LINES = 16
"""Lines of a histogram, at most."""
WIDTH = 40
BLOCKS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Figures:
    """The measured figures of a load.

    Attributes:
        seconds: Seconds from the first counted request to the end of the last one.
        requests: Number of requests that ended, with any result.
        warmup: Further ones before, which do not count.
        ends: Number of requests by status, or by the reason why there was none.
        errors: What the first request that failed so was told, by the same.
        throughput: Requests that ended per second.
        goodput: Requests with a status below 300, per second.
        latency: Seconds of these requests, from their due time: mean, quantiles, maximum. Empty if there are none.
        histogram: Lower and upper bound of each interval, in seconds, and how many of these were in it.
        tokens: Tokens of streamed texts that ended well, per second.
        first_token: Seconds to the first part of such a text, from its due time, as ``latency``.
        between_tokens: Seconds from one part of such a text to the next, as ``latency``.
    """

    seconds: float
    requests: int
    warmup: int
    ends: dict[str, int]
    throughput: float
    goodput: float
    latency: dict[str, float]
    histogram: list[tuple[float, float, int]]
    tokens: float = 0.0
    first_token: dict[str, float] = field(default_factory=dict)
    between_tokens: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """For people."""
        others = ", ".join(f"{count:,} ended in {end}" for end, count in self.ends.items())
        yield f"requests  {self.requests:,} in {self.seconds:.1f} s: {others or 'none ended'}"
        yield f"rate      {self.throughput:,.1f} per second, {self.goodput:,.1f} of them answered well"
        if self.first_token:
            yield f"tokens    {self.tokens:,.1f} per second"
        for name, found in (
            ("first", self.first_token),
            ("between", self.between_tokens),
            ("latency", self.latency),
        ):
            if found:
                yield f"{name:<10}" + "   ".join(f"{each} {_shown(value)}" for each, value in found.items())
        for end, text in self.errors.items():
            yield f"first {end}: {text}"


def figures_of(samples: Samples) -> Figures:
    """The figures of the recorded samples."""
    ends = Counter(sample.end for sample in samples.kept)
    good = np.array([sample.seconds for sample in samples.kept if _good(sample.end)])
    first = min((sample.due for sample in samples.kept), default=samples.until)
    seconds = max(samples.until - first, 0.0)
    streams = [
        (each.due, each.stream) for each in samples.kept if _good(each.end) and each.stream and each.stream.times
    ]
    return Figures(
        seconds=seconds,
        requests=len(samples.kept),
        warmup=samples.warm,
        ends=dict(sorted(ends.items())),
        throughput=len(samples.kept) / seconds if seconds else 0.0,
        goodput=good.size / seconds if seconds else 0.0,
        latency=_quantiles(good),
        errors={end: samples.errors[end] for end in sorted(ends) if end in samples.errors},
        histogram=_histogram(good),
        tokens=sum(stream.tokens for _, stream in streams) / seconds if seconds else 0.0,
        first_token=_quantiles(np.array([stream.times[0] - due for due, stream in streams])),
        between_tokens=_quantiles(np.concatenate([[], *(np.diff(stream.times) for _, stream in streams)])),
    )


def _quantiles(values: Any) -> dict[str, float]:
    """Mean, quantiles and maximum; empty if there are no values."""
    if not values.size:
        return {}
    found = {name: float(np.quantile(values, q, method="higher")) for name, q in QUANTILES.items()}
    return {"mean": float(values.mean()), **found}


def _good(end: str) -> bool:
    return end.isdigit() and int(end) < 300


def _histogram(values: Any) -> list[tuple[float, float, int]]:
    """Intervals of equal ratios from the smallest to the largest value."""
    if not values.size:
        return []
    low, high = max(float(values.min()), 1e-6), max(float(values.max()), 1e-6)
    steps = max(1, min(LINES, math.ceil(math.log2(high / low) * 4))) if high > low else 1
    edges = np.geomspace(low, max(high, low * 1.01), steps + 1)
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return [(float(a), float(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]


def drawing(histogram: list[tuple[float, float, int]], *, blocks: bool) -> Iterator[str]:
    """A line for each interval.

    Args:
        histogram: ``histogram`` of :class:`Figures`.
        blocks: Draw with block characters; else with ``#``.
    """
    most = max((count for *_, count in histogram), default=0)
    for low, high, count in histogram:
        eighths = round(count / most * WIDTH * 8) if most else 0
        if count and not eighths:
            eighths = 1
        bar = BLOCKS[-1] * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")
        bar = bar if blocks else "#" * max(eighths // 8, bool(count))
        yield f"{_shown(low):>9} to {_shown(high):>9} {bar:<{WIDTH}} {count:>8,}"


def _shown(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
