"""What vector indexes have in common: ids, metadata, filters, and the neighbours that a search finds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

__all__ = ["Id", "Metadata", "Metric", "Neighbours", "Value", "VectorIndex", "Where"]

Id = int | str
Value = str | int | float | bool | None
Metadata = Mapping[str, Any]
"""A :data:`Value` by key, or a list of them, such as one of tags; checked where it is given."""
Where = Mapping[str, Any] | Callable[[Mapping[str, Any]], bool]
"""What the metadata must satisfy, see :meth:`CpuVectorIndex.search`, or a function of it."""
Metric = Literal["cosine", "ip", "l2"]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """What a search found, nearest first; equal scores are in the order of their ids.

    Attributes:
        ids: ``[queries, k]``, or ``[k]`` for a query that was a single vector: i64, or str objects.
        scores: Likewise, f32: cosine or inner product, descending, or the Euclidean distance, ascending.

    There are fewer than ``k`` columns if fewer vectors are in the index, or pass the filter.
    """

    ids: NDArray[Any]
    scores: NDArray[Any]

    def __len__(self) -> int:
        return len(self.ids)


class VectorIndex(Protocol):
    """An index of vectors by id, on the host or on a device."""

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    @property
    def metric(self) -> Metric:
        """What nearness is."""
        ...

    def upsert(self, ids: Sequence[Id], vectors: Any, metadata: Sequence[Metadata | None] | None = None) -> None:
        """Add vectors, or replace those of the same ids; searches see all of them or none."""
        ...

    def delete(self, ids: Sequence[Id]) -> int:
        """Remove vectors; the number of those that were there."""
        ...

    async def search(
        self, queries: Any, k: int = 10, *, where: Where | None = None, min_score: float | None = None
    ) -> Neighbours:
        """The ``k`` nearest vectors of each query; of a single one those with a score of ``min_score`` at least."""
        ...

    def __len__(self) -> int: ...
