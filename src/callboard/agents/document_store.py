"""``haystack_store``: callboard's passages and vectors as a document store of Haystack."""

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from callboard.agents.index.cpu import CpuVectorIndex
from callboard.agents.index.protocol import Metric
from callboard.agents.index.text import TextIndex
from callboard.core.errors import BackendUnavailable

__all__ = ["haystack_store"]


def haystack_store(*, metric: Metric = "cosine", dtype: Any = None) -> Any:
    """A document store of Haystack: vectors in a :class:`CpuVectorIndex`, words in a :class:`TextIndex`.

    It has the methods of Haystack's protocol ``DocumentStore``, and for components that search:
    ``embedding_retrieval(query_embedding, filters=None, top_k=10)`` and ``bm25_retrieval(query, filters=None,
    top_k=10)``, whose documents have a score. A write without a policy refuses ids that are there. All documents with
    an embedding have one of the same length.

    Args:
        metric: What is near, see :class:`CpuVectorIndex`.
        dtype: Of the rows.

    Raises:
        BackendUnavailable: There is no Haystack: ``pip install haystack-ai``.
    """
    return _store_class()(metric=metric, dtype=dtype)


@functools.cache
def _store_class() -> Any:
    try:
        from haystack import Document, default_from_dict, default_to_dict
        from haystack.document_stores.errors import DuplicateDocumentError
        from haystack.document_stores.types import DuplicatePolicy
        from haystack.errors import FilterError
        from haystack.utils.filters import document_matches_filter
    except ImportError as e:
        raise BackendUnavailable("haystack_store needs Haystack: pip install haystack-ai") from e

    class CallboardDocumentStore:
        """Documents in memory, with indexes of their vectors and words."""

        def __init__(self, metric: Metric = "cosine", dtype: Any = None) -> None:
            self._settings = {"metric": metric, "dtype": dtype}
            self._documents: dict[str, Any] = {}
            self._vectors: CpuVectorIndex | None = None
            self._words = TextIndex()

        def to_dict(self) -> dict[str, Any]:
            found: dict[str, Any] = default_to_dict(self, **self._settings)
            return found

        @classmethod
        def from_dict(cls, data: dict[str, Any]) -> Any:
            return default_from_dict(cls, data)

        def count_documents(self) -> int:
            return len(self._documents)

        def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Any]:
            return [each for each in self._documents.values() if self._passes(each, filters)]

        def write_documents(self, documents: Any, policy: Any = DuplicatePolicy.NONE) -> int:
            if not isinstance(documents, list) or not all(isinstance(each, Document) for each in documents):
                raise ValueError("documents must be a list of Documents of Haystack")
            last = {each.id: each for each in documents}
            known = [each for each in last if each in self._documents]
            if policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
                twice = known or [each.id for each in documents if last[each.id] is not each]
                if twice:
                    raise DuplicateDocumentError(f"there is a document {twice[0]!r} already; nothing was written")
            elif policy == DuplicatePolicy.SKIP:
                last = {each.id: each for each in reversed(documents) if each.id not in self._documents}
            self._index(list(last.values()))
            self._documents |= last
            return len(documents) if policy == DuplicatePolicy.OVERWRITE else len(last)

        def delete_documents(self, document_ids: list[str]) -> None:
            given = [each for each in document_ids if self._documents.pop(each, None) is not None]
            self._words.delete(given)
            if self._vectors is not None:
                self._vectors.delete(given)

        def embedding_retrieval(
            self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int = 10
        ) -> list[Any]:
            """The documents whose embeddings are nearest."""
            if self._vectors is None:
                return []
            where = None if not filters else lambda each: self._passes(self._documents[each["id"]], filters)
            found = self._vectors.search_now(query_embedding, top_k, where=where)
            return list(self._scored(found))

        def bm25_retrieval(self, query: str, filters: dict[str, Any] | None = None, top_k: int = 10) -> list[Any]:
            """The documents that share words with a query."""
            found = self._words.search(query, max(1, len(self._words)) if filters else top_k)
            return [each for each in self._scored(found) if self._passes(each, filters)][:top_k]

        def _passes(self, document: Any, filters: dict[str, Any] | None) -> bool:
            if not filters:
                return True
            if "operator" not in filters:
                raise FilterError(f"a filter needs an operator, but is {filters!r:.200}")
            return bool(document_matches_filter(filters, document))

        def _index(self, documents: list[Any]) -> None:
            have = [each for each in documents if each.embedding is not None]
            if have:
                rows = np.asarray([each.embedding for each in have], np.float32)
                if self._vectors is None:
                    self._vectors = CpuVectorIndex(rows.shape[1], **self._settings)
                ids = [each.id for each in have]
                self._vectors.upsert(ids, rows, [{"id": each} for each in ids])
            if self._vectors is not None:
                self._vectors.delete([each.id for each in documents if each.embedding is None])
            self._words.upsert([each.id for each in documents], [each.content or "" for each in documents])

        def _scored(self, found: Any) -> Iterable[Any]:
            for each, score in zip(found.ids.tolist(), found.scores.tolist(), strict=True):
                yield type(self._documents[each]).from_dict({**self._documents[each].to_dict(), "score": score})

    return CallboardDocumentStore
