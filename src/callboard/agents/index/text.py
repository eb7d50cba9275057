"""``TextIndex``: BM25 over an inverted index, in NumPy."""

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from callboard.agents.checks import positive
from callboard.agents.index.filters import Columns, metadata_of
from callboard.agents.index.protocol import Id, Metadata, Neighbours, Where
from callboard.agents.index.threshold import at_least, checked_score

__all__ = ["TextIndex", "words"]

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _WORD.findall(text.casefold())


class _Term:
    """The texts that have a term, and how often; arrays are made when they are first searched."""

    __slots__ = ("_arrays", "counts", "living", "numbers")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.counts: list[int] = []
        self.living = 0  # texts that were not removed
        self._arrays: tuple[NDArray[np.intp], NDArray[np.float32]] | None = None

    def add(self, number: int, count: int) -> None:
        self.numbers.append(number)
        self.counts.append(count)
        self.living += 1
        self._arrays = None

    def arrays(self) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        if self._arrays is None:
            self._arrays = np.array(self.numbers, np.intp), np.array(self.counts, np.float32)
        return self._arrays


class TextIndex:
    """Texts by the words that they share with a query, scored by BM25. Methods may be called from any thread.

    Args:
        k1: How much further occurrences of a word count.
        b: How much the length of a text counts, 0 to 1.
        tokens: Returns the terms of a text; by default its words in lower case.

    Raises:
        ValueError: A setting is out of its range.
    """

    def __init__(self, *, k1: float = 1.5, b: float = 0.75, tokens: Callable[[str], Sequence[str]] = words) -> None:
        if not k1 >= 0 or not 0 <= b <= 1:
            raise ValueError(f"k1 is {k1} and b is {b}; k1 must be at least 0, and b between 0 and 1")
        self._k1, self._b, self._tokens = k1, b, tokens
        self._lock = threading.Lock()
        self._terms: dict[str, _Term] = {}
        self._ids: list[Id] = []
        self._lengths: list[int] = []  # 0: removed
        self._counts: dict[Id, tuple[int, Counter[str]]] = {}
        self._columns = Columns([])
        self._total = 0
        self._weights: NDArray[np.float32] | None = None  # of the lengths

    def upsert(
        self, ids: Sequence[Id], texts: Sequence[str], metadata: Sequence[Metadata | None] | None = None
    ) -> None:
        """Add texts, or replace those of the same ids.

        Args:
            ids: One for each text.
            texts: The texts.
            metadata: For ``where=`` of a search, see :meth:`CpuVectorIndex.upsert`.

        Raises:
            ValueError: There is another number of texts, or of metadata, than of ids.
            TypeError: The metadata is something else.
        """
        if isinstance(texts, str) or len(ids) != len(texts):
            raise ValueError(f"texts has {len(texts)} items for {len(ids)} ids; give a list of texts, one for each id")
        described = metadata_of(metadata, len(ids))
        counted = [Counter(self._tokens(text)) for text in texts]
        with self._lock:
            self._columns.extend(len(self._ids), described)
            for each, counts in zip(ids, counted, strict=True):
                self._remove(each)
                number, length = len(self._ids), counts.total()
                self._ids.append(each)
                self._lengths.append(length)
                self._total += length
                self._counts[each] = number, counts
                for term, count in counts.items():
                    self._terms.setdefault(term, _Term()).add(number, count)
            if len(self._ids) > 1024 and 2 * len(self._counts) < len(self._ids):
                self._compact()
            self._weights = None

    def delete(self, ids: Sequence[Id]) -> int:
        """Remove the texts of these ids; the number of those that were there."""
        if isinstance(ids, str):
            raise TypeError(f"ids is {ids!r}; pass a list of ids")
        with self._lock:
            removed = sum(self._remove(each) for each in ids)
            self._weights = None
            return removed

    def _remove(self, id: Id) -> bool:
        found = self._counts.pop(id, None)
        if found is None:
            return False
        number, counts = found
        self._total -= counts.total()
        self._lengths[number] = -1
        for term in counts:
            entry = self._terms[term]
            entry.living -= 1
            if not entry.living:
                del self._terms[term]
        return True

    def _compact(self) -> None:
        """Number the texts anew, without those that were removed."""
        kept = list(self._counts.items())
        self._columns = Columns([self._columns.rows[number] for _, (number, _) in kept])
        self._terms, self._ids, self._lengths = {}, [], []
        for number, (each, (_, counts)) in enumerate(kept):
            self._ids.append(each)
            self._lengths.append(counts.total())
            self._counts[each] = number, counts
            for term, count in counts.items():
                self._terms.setdefault(term, _Term()).add(number, count)

    def search(
        self, query: str, k: int = 10, *, where: Where | None = None, min_score: float | None = None
    ) -> Neighbours:
        """The ``k`` best texts that share a term with the query, best first; equal ones in the order of their ids.

        Args:
            query: The text.
            k: Number of results at most.
            where: What the metadata must satisfy, see :meth:`CpuVectorIndex.search`.
            min_score: Least score of BM25, which has no upper end: it depends on the texts and the query.
        """
        k, terms, least = positive("k", k), Counter(self._tokens(query)), checked_score(min_score)
        with self._lock:
            scores, known, columns = self._scores(terms), self._ids, self._columns
        found = np.flatnonzero(scores > 0 if where is None else columns.passing(where, scores > 0))
        if len(found) > k:
            found = found[scores[found] >= np.partition(scores[found], len(found) - k)[-k]]
        ids = np.array([known[number] for number in found] or (), object)
        by_id = np.argsort(ids, kind="stable")
        best = by_id[np.argsort(-scores[found][by_id], kind="stable")][:k]
        return at_least(Neighbours(ids[best], scores[found][best]), least)

    def _scores(self, terms: Counter[str]) -> NDArray[np.float32]:
        scores = np.zeros(len(self._ids), np.float32)
        lengths = self._length_weights()
        for term, times in terms.items():
            if (entry := self._terms.get(term)) is None:
                continue
            idf = math.log(1 + (len(self._counts) - entry.living + 0.5) / (entry.living + 0.5))
            numbers, counts = entry.arrays()
            scores[numbers] += np.float32(times * idf * (self._k1 + 1)) * counts / (counts + lengths[numbers])
        scores[self._gone] = 0
        return scores

    def _length_weights(self) -> NDArray[np.float32]:
        if self._weights is None:
            lengths = np.array(self._lengths, np.float32)
            self._gone = np.flatnonzero(lengths < 0)
            mean = max(self._total / max(len(self._counts), 1), 1e-9)
            relative = 1 - self._b + self._b * np.maximum(lengths, 0) / mean
            self._weights = (self._k1 * relative).astype(np.float32)
        return self._weights

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, id: object) -> bool:
        return id in self._counts
