"""Drafts: prompt lookup against a search, a model that catches up, functions, and invalid proposals."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from speculative_lab import VOCABULARY, TableModel, plain

import callboard as cb
from callboard.patterns.requests.errors import BadBatchResult
from callboard.patterns.speculative.drafts import Ask, FunctionDraft, Proposal, checked
from callboard.patterns.speculative.modeldraft import ModelDraft
from callboard.patterns.speculative.ngram import NGramDraft
from callboard.patterns.speculative.sampling import Acceptance, Sampler

GREEDY = Sampler(0.0, None, Acceptance.REJECTION)


def propose(draft: Any, *asks: Ask) -> list[Any]:
    return list(asyncio.run(draft.propose(list(asks))))


def searched(tokens: list[int], k: int, longest: int, shortest: int) -> list[int]:
    """Prompt lookup by searching the whole text."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == tokens[len(tokens) - length :]:
                found = list(tokens)
                while len(found) < len(tokens) + k:
                    found.append(found[len(found) - (len(tokens) - start - length)])
                return found[len(tokens) :]
    return []


@given(
    tokens=st.lists(st.integers(0, 2), min_size=1, max_size=30),
    looks=st.lists(st.integers(1, 30), max_size=4),
    k=st.integers(1, 6),
    lengths=st.sampled_from([(3, 1), (2, 2), (4, 2), (1, 1)]),
)
def test_prompt_lookup_finds_what_a_search_finds(
    tokens: list[int], looks: list[int], k: int, lengths: tuple[int, int]
) -> None:
    draft = NGramDraft(*lengths)
    state = draft.begin()
    for n in sorted({min(n, len(tokens)) for n in looks} | {len(tokens)}):
        (proposal,) = propose(draft, Ask(state, tokens[:n], k, GREEDY))
        assert proposal.tokens == searched(tokens[:n], k, *lengths)


def test_prompt_lookup_needs_lengths() -> None:
    with pytest.raises(ValueError, match="shortest must be from 1 to longest, but they are 4 and 3"):
        NGramDraft(3, 4)


def test_a_model_proposes_what_it_would_decode_for_unequal_texts() -> None:
    model = TableModel()
    draft = ModelDraft(model)
    asks = [Ask(draft.begin(), [1, 2], 3, GREEDY), Ask(draft.begin(), [4, 5, 6], 1, GREEDY)]
    found = propose(draft, *asks)
    assert [each.tokens for each in found] == [plain(model, [1, 2], 3)[2:], plain(model, [4, 5, 6], 1)[3:]]
    assert model.passes == [[2, 3], [1], [1]]
    assert all(each.probs is None for each in found)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5), st.integers(1, 4)), max_size=8)
)
def test_a_model_forgets_what_was_not_kept(rounds: list[tuple[list[int], int]]) -> None:
    """Whatever the text became, the state holds the text when a token is proposed."""
    model = TableModel()
    draft = ModelDraft(model)
    state, tokens = draft.begin(), [3]
    for new, k in rounds:
        tokens = tokens + new
        (proposal,) = propose(draft, Ask(state, tokens, k, GREEDY))
        assert proposal.tokens == plain(model, tokens, k)[len(tokens) :]
        assert state.kv.tokens == state.fed == [*tokens, *proposal.tokens[:-1]]
        tokens = tokens + list(proposal.tokens[: k // 2])
    draft.end(state)
    assert model.closed == 1


def test_a_model_samples_at_the_temperature_and_tells_from_what() -> None:
    model = TableModel()
    draft = ModelDraft(model)
    sampler = Sampler(0.7, 3, Acceptance.REJECTION)
    (proposal,) = propose(draft, Ask(draft.begin(), [1], 2, sampler))
    after = [1, *proposal.tokens]
    expected = np.stack([sampler.distribution(model.after(after[: i + 1])) for i in range(2)])
    np.testing.assert_allclose(proposal.probs, expected)


def test_a_model_that_gives_other_logits_is_refused() -> None:
    draft = ModelDraft(cb.Cacheless(lambda sequences, rows: [np.zeros(4) for _ in sequences]))
    with pytest.raises(BadBatchResult, match=r"logits of shape \(4,\) for sequence 0; expected \(1, vocabulary\)"):
        propose(draft, Ask(draft.begin(), [1], 1, GREEDY))
    draft.close()


def test_a_function_fails_one_text_and_proposes_for_the_others() -> None:
    def draft(prefix: list[int], k: int) -> Any:
        if prefix == [0]:
            raise LookupError("none")
        prefix.append(99)  # it has a copy
        return [prefix[0]] * k if prefix[0] < 5 else Proposal([7], np.eye(8)[[7]])

    tokens = [[1], [0], [5]]
    made = FunctionDraft(draft)
    found = propose(made, *(Ask(None, each, 2, GREEDY) for each in tokens))
    made.close()
    assert tokens == [[1], [0], [5]]
    assert found[0].tokens == [1, 1]
    assert isinstance(found[1], LookupError)
    assert found[2].tokens == [7]


@pytest.mark.parametrize(
    "proposal, says",
    [
        (Proposal([1, 8]), r"proposed \[1, 8\], and tokens are from 0 to 7"),
        (Proposal([-1]), "tokens are from 0 to 7"),
        (Proposal(["a"]), "invalid literal"),  # type: ignore[list-item]
        (Proposal([1], np.eye(8)[1]), r"shape \(8,\), not \(1, 8\)"),
        (Proposal([1], np.eye(4)[[1]]), r"shape \(1, 4\), not \(1, 8\)"),
        (Proposal([1], np.full((1, 8), 0.5)), "are not distributions"),
        (Proposal([1], np.eye(8)[[2]]), "its own probs give 0"),
    ],
)
def test_what_is_no_proposal(proposal: Proposal, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        checked(proposal, 4, 8)


def test_a_proposal_is_cut_to_what_was_asked_for() -> None:
    assert checked(Proposal(np.array([1, 2, 3])), 2, 4).tokens == [1, 2]  # type: ignore[arg-type]
    cut = checked(Proposal([1, 2, 3], np.full((3, 4), 0.25)), 2, 4)
    assert cut.probs is not None
    assert cut.probs.shape == (2, 4)
    assert checked(Proposal([], np.zeros((0, 4))), 2, 4) == Proposal([])
