"""Haystack's own tests of document stores, against ours; and what it adds to find documents."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("haystack", reason="haystack-ai is not installed")

from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.testing.document_store import DocumentStoreBaseTests

import callboard as cb


class TestDocumentStore(DocumentStoreBaseTests):  # type: ignore[misc, unused-ignore]
    @pytest.fixture
    def document_store(self) -> Any:
        return cb.haystack_store(metric="ip")

    def test_write_documents(self, document_store: Any) -> None:
        """Without a policy: refused, and nothing is written."""
        one, other = Document(content="one"), Document(content="other")
        assert document_store.write_documents([one]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([other, one])
        self.assert_documents_are_equal(document_store.filter_documents(), [one])


def test_documents_are_found_by_vectors_and_words() -> None:
    store = cb.haystack_store()
    axes = np.eye(3).tolist()
    texts = ["a lost context", "a full queue", "a plan for a shape"]
    documents = [
        Document(content=text, embedding=axis, meta={"n": n})
        for n, (text, axis) in enumerate(zip(texts, axes, strict=True))
    ]
    assert store.embedding_retrieval(axes[0]) == []
    assert store.write_documents([*documents, Document(content="a queue without a vector", meta={"n": 9})]) == 4
    odd = {"field": "meta.n", "operator": "!=", "value": 1}
    found = store.embedding_retrieval([0.1, 1, 0], top_k=2)
    assert [(each.content, round(each.score, 2)) for each in found] == [(texts[1], 1.0), (texts[0], 0.1)]
    assert store.embedding_retrieval([0.1, 1, 0], odd, top_k=1)[0].content == texts[0]
    assert [each.meta["n"] for each in store.bm25_retrieval("queue")] == [1, 9]
    assert [each.meta["n"] for each in store.bm25_retrieval("queue", odd, top_k=1)] == [9]
    changed = Document(id=documents[1].id, content="no vector now")
    assert store.write_documents([changed], DuplicatePolicy.OVERWRITE) == 1
    assert len(store.embedding_retrieval([0.1, 1, 0])) == 2
    store.delete_documents([each.id for each in documents])
    assert (store.count_documents(), store.embedding_retrieval(axes[0])) == (1, [])
    again = type(store).from_dict(store.to_dict())
    assert (again.count_documents(), again.to_dict()) == (0, store.to_dict())
