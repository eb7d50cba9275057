"""``TextIndex`` against BM25 by its formula, and fusion of rankings."""

import math

import pytest

import callboard as cb

TEXTS = ["the cat sat on the mat", "the dog sat", "a cat and a dog and a cat", "birds", ""]


def formula(query: str, text: str, texts: list[str]) -> float:
    mean = sum(len(each.split()) for each in texts) / len(texts)
    total = 0.0
    for term in query.split():
        having = sum(term in each.split() for each in texts)
        count = text.split().count(term)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        total += idf * 2.5 * count / (count + 1.5 * (0.25 + 0.75 * len(text.split()) / mean))
    return total


def check(index: cb.TextIndex, texts: dict[int, str], query: str) -> None:
    scores = {each: formula(query, text, list(texts.values())) for each, text in texts.items()}
    want = sorted((each for each in scores if scores[each] > 0), key=lambda each: (-scores[each], each))
    found = index.search(query)
    assert found.ids.tolist() == want[:10]
    assert found.scores.tolist() == pytest.approx([scores[each] for each in want[:10]], rel=1e-5)


def test_scores_are_those_of_the_formula() -> None:
    index = cb.TextIndex()
    texts = dict(enumerate(TEXTS))
    index.upsert(list(texts), TEXTS)
    for query in ("cat", "the cat", "the the", "unknown", "birds dog"):
        check(index, texts, query)
    index.upsert([1], ["cat cat"])
    texts[1] = "cat cat"
    assert index.delete([0, 7]) == 1
    del texts[0]
    for query in ("cat", "dog", "mat", "birds sat"):
        check(index, texts, query)
    assert index.search("CAT, mat!", 1).ids.tolist() == [1]
    assert (len(index), 0 in index, 1 in index) == (4, False, True)


def test_texts_that_were_replaced_leave() -> None:
    index = cb.TextIndex()
    for n in range(1100):
        index.upsert([n % 3], [f"word {n}"])
    check(index, {n % 3: f"word {n}" for n in range(1097, 1100)}, "word 1099")
    assert len(index._ids) < 1100


def test_rankings_are_fused_by_reciprocal_ranks() -> None:
    found = cb.fuse([1, 2, 3], [3, 2, 4], k=3)
    assert found.ids.tolist() == [3, 2, 1]
    assert found.scores.tolist() == pytest.approx([1 / 63 + 1 / 61, 2 / 62, 1 / 61])
    assert cb.fuse(["a", "b"], ["b", "a"]).ids.tolist() == ["a", "b"]  # equal: by id
    assert cb.fuse([1], [2], weights=[1, 2]).ids.tolist() == [2, 1]
    assert cb.fuse().ids.tolist() == []


async def test_words_and_vectors_together() -> None:
    vectors, texts = cb.CpuVectorIndex(2), cb.TextIndex()
    vectors.upsert(["a", "b"], [[1, 0], [0, 1]])
    texts.upsert(["a", "b"], ["zero one", "one two"])
    found = cb.fuse(await vectors.search([0.0, 1.0]), texts.search("two"), k=1)
    assert found.ids.tolist() == ["b"]
    with pytest.raises(ValueError, match=r"ids of shape \[1, 2\]; search with a single query"):
        cb.fuse(await vectors.search([[0.0, 1.0]]))
    with pytest.raises(ValueError, match="weights has 1 numbers for 2 rankings"):
        cb.fuse([1], [2], weights=[1])
    with pytest.raises(ValueError, match="texts has 2 items for 1 ids"):
        texts.upsert(["a"], ["x", "y"])
    with pytest.raises(ValueError, match="b is 2"):
        cb.TextIndex(b=2)
