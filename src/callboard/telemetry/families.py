"""``Family``, ``Group`` and ``Source``: what metrics are made of."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["Distributed", "Family", "Group", "Source"]


class Family(NamedTuple):
    """A metric: one row of :data:`callboard.telemetry.table.TABLE`.

    Attributes:
        name: Name in Prometheus; a counter's ends in ``_total``.
        kind: ``"counter"``, ``"gauge"`` or ``"histogram"``.
        unit: ``"seconds"``, ``"bytes"``, ``"ratio"`` …; empty for numbers of things.
        labels: Names of the labels.
        help: One sentence.
    """

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    help: str


class Distributed(Protocol):
    """The value of a histogram."""

    @property
    def buckets(self) -> Iterable[tuple[float, int]]:
        """Bounds, and the number of values up to each."""
        ...

    @property
    def count(self) -> int:
        """Number of values."""
        ...

    @property
    def sum(self) -> float:
        """Sum of the values."""
        ...


Group = tuple[Family, Sequence[tuple[tuple[str, ...], Any]]]
"""A family and its series: the values of its labels, and a number or, for a histogram, a :class:`Distributed`."""


class Source(Protocol):
    """Gives further metrics to :meth:`callboard.telemetry.Telemetry.add`.

    Attributes:
        name: Key of its figures in :attr:`Snapshot.extra <callboard.telemetry.sampling.snapshot.Snapshot>`.
    """

    name: str

    async def refresh(self) -> None:
        """Fetch what takes time; called before a scrape, for a second at most."""
        ...

    def collect(self) -> Iterable[Group]:
        """The metrics now; never waits."""
        ...

    def figures(self) -> Any:
        """The same for views, as plain data."""
        ...
