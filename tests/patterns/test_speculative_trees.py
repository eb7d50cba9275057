"""Trees of proposals: the tokens are those of plain decoding, whatever the tree; and the draft that makes them."""

import asyncio
import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speculative_lab import VOCABULARY, TableModel, TreeModel, decoder, plain

import callboard as cb
from callboard.patterns.speculative.adaptive import KPolicy, Room
from callboard.patterns.speculative.drafts import Ask, checked
from callboard.patterns.speculative.sampling import Acceptance, Sampler
from callboard.patterns.speculative.suffix import SuffixDraft
from callboard.patterns.speculative.trees import chain, children, path_to, walk

GREEDY = Sampler(0.0, None, Acceptance.REJECTION)


class Branches(cb.Draft):
    """Proposes random trees, some branches of which are right."""

    trees = True

    def __init__(self, model: TableModel, seed: int = 0) -> None:
        self.model = model
        self.random = np.random.default_rng(seed)

    async def propose(self, asks: list[Ask]) -> list[cb.Proposal]:
        return [self.tree(ask) for ask in asks]

    def tree(self, ask: Ask) -> cb.Proposal:
        tokens: list[int] = []
        parents: list[int] = []
        places: set[tuple[int, int]] = set()
        while len(tokens) < ask.k:
            parent = int(self.random.integers(-1, len(tokens)))
            text = [*ask.tokens, *(tokens[node] for node in path_to(parent, parents))]
            right = int(self.model.after(text).argmax())
            token = right if self.random.random() < 0.7 else int(self.random.integers(VOCABULARY))
            if (parent, token) in places:
                continue
            places.add((parent, token))
            tokens.append(token)
            parents.append(parent)
        return cb.Proposal(tokens, parents=parents)


# -- pure -----------------------------------------------------------------------------------------------------------


def test_walking_follows_the_choices_as_far_as_the_tree_has_them() -> None:
    tokens, parents = [5, 6, 7, 5, 9], [-1, -1, 0, 2, 1]
    follow = children(tokens, parents)
    assert follow == [{5: 0, 6: 1}, {7: 2}, {9: 4}, {5: 3}, {}, {}]
    assert (chain(parents), path_to(3, parents), path_to(-1, parents)) == ([0, 2, 3], [0, 2, 3], [])
    said = iter([5, 7, 5, 8])
    asked = []

    def choose(row: int, depth: int, after: dict[int, int]) -> int:
        asked.append((row, depth, sorted(after)))
        return next(said)

    assert walk(follow, choose) == ([0, 2, 3], 8)
    assert asked == [(0, 0, [5, 6]), (1, 1, [7]), (3, 2, [5]), (4, 3, [])]
    assert walk(follow, lambda row, depth, after: 1) == ([], 1)
    assert walk(children([], []), lambda row, depth, after: 1) == ([], 1)


@pytest.mark.parametrize(
    "tokens, parents, message",
    [
        ([1, 2], [-1], "2 tokens with 1 parents"),
        ([1, 2], [-1, 1], "token 1 has the parent 1; parents come first"),
        ([1], [-2], "token 0 has the parent -2"),
        ([1, 1], [-1, -1], "token 1 twice at one place"),
    ],
)
def test_what_is_no_tree_is_refused(tokens: list[int], parents: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked(cb.Proposal(tokens, parents=parents), 4, VOCABULARY, trees=True)


def test_without_trees_the_first_branch_is_proposed() -> None:
    tree = cb.Proposal([1, 2, 3, 4], parents=[-1, -1, 0, 1])
    assert checked(tree, 9, VOCABULARY).tokens == [1, 3]
    assert checked(tree, 9, VOCABULARY).parents is None
    assert checked(tree, 2, VOCABULARY, trees=True) == cb.Proposal([1, 2], parents=[-1, -1])


@pytest.mark.few(1)
@pytest.mark.parametrize("acceptance", ["rejection", "coupled"])
def test_sampled_tokens_have_the_target_s_distribution_whatever_the_tree(acceptance: str) -> None:
    """All tokens of up to two places against the exact probabilities, by chi-square at one in a million."""
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((4, 4))  # at the end, and behind the three nodes
    follow = children([0, 2, 1], [-1, -1, 0])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    counts: Counter[tuple[int, ...]] = Counter()
    draws = 8_000
    one = Sampler(1.0, 1, Acceptance.REJECTION)
    for n in range(draws):
        sampler = one if acceptance == "rejection" else Sampler(1.0, n, Acceptance.COUPLED)
        path, token = sampler.accept_tree(follow, logits, 5)
        counts[(*([0, 2, 1][node] for node in path), token)] += 1
    expected: dict[tuple[int, ...], float] = {}
    for token in (1, 3):
        expected[(token,)] = p[0, token]
    for token in (0, 2, 3):
        expected[0, token] = p[0, 0] * p[1, token]
    for token in range(4):
        expected[2, token] = p[0, 2] * p[2, token]
        expected[0, 1, token] = p[0, 0] * p[1, 1] * p[3, token]
    assert set(counts) <= set(expected)
    chi = sum((counts[each] - draws * share) ** 2 / (draws * share) for each, share in expected.items())
    assert chi < 52  # 12 degrees of freedom


def test_typical_acceptance_takes_the_likeliest_child_that_is_not_unlikely() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05], [0.997, 0.001, 0.001, 0.001], [0.25] * 4]))
    sampler = Sampler(1.0, 1, Acceptance.TYPICAL)
    assert sampler.accept_tree(children([2, 1], [-1, -1]), logits, 0)[0] == [1]
    sampler = Sampler(1.0, 2, Acceptance.TYPICAL)
    path, token = sampler.accept_tree(children([0, 3], [-1, 0]), logits, 0)
    assert (path, token) == ([0], 0)


# -- decoding -------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), new=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_greedy_tokens_are_those_of_plain_decoding(seed: int, k: int, new: int) -> None:
    target = TreeModel(seed % 7)

    async def go() -> None:
        async with decoder(target, Branches(target, seed), k=k, adaptive=False, eos=0) as server:
            prefixes = [[1], [2, 3], [4, 5, 6]]
            found = await asyncio.gather(*(server.submit(cb.Decode(each, max_new_tokens=new)) for each in prefixes))
        for prefix, each in zip(prefixes, found, strict=True):
            expected = plain(target, prefix, new)
            at = next((i for i in range(len(prefix), len(expected)) if expected[i] == 0), len(expected) - 1)
            assert each.tokens == expected[: at + 1]

    asyncio.run(go())
    assert target.opened == target.closed


async def test_a_seed_gives_the_same_tokens_with_trees_chains_and_none() -> None:
    found = []
    for target, draft in (
        (TreeModel(), Branches(TreeModel(), 4)),
        (TableModel(), Branches(TableModel(), 4)),
        (TableModel(), None),
    ):
        async with decoder(target, draft, k=5, adaptive=False) as server:
            request = cb.Decode([1, 2], max_new_tokens=40, temperature=1.0, seed=7)
            found.append((await server.submit(request)).tokens)
        assert getattr(target, "trees", 0) > 0 or not isinstance(target, TreeModel)
    assert found[0] == found[1] == found[2]


async def test_a_branch_that_is_right_is_found_beside_one_that_is_wrong() -> None:
    target = TreeModel()

    class Two(cb.Draft):
        trees = True

        async def propose(self, asks: list[Ask]) -> list[cb.Proposal]:
            found = []
            for ask in asks:
                right = plain(target, ask.tokens, 2)[-2:]
                wrong = (right[0] + 1) % VOCABULARY
                found.append(cb.Proposal([wrong, right[0], 3, right[1]][: ask.k], parents=[-1, -1, 0, 1][: ask.k]))
            return found

    async with decoder(target, Two(), k=4, adaptive=False) as server:
        found = await server.submit(cb.Decode([1, 2], max_new_tokens=12))
        stats = server.stats()
    assert found.tokens == plain(target, [1, 2], 12)
    assert found.iterations == 6  # of 1, 3, 3, 3 tokens; then there is room for a tree of one, which is wrong
    assert (stats.draft_tokens, stats.accepted_tokens) == (13, 6)
    assert stats.acceptance_by_position == (0.75, 1.0, 0.0, 0.0)
    assert stats.mean_accepted_length == 2.5


async def test_adjusted_logits_are_those_of_the_branch() -> None:
    """A grammar in which even and odd tokens alternate."""

    def alternate(tokens: list[int], logits: Any) -> Any:
        allowed = np.arange(VOCABULARY) % 2 != tokens[-1] % 2
        return np.where(allowed, logits, -np.inf)

    target = TreeModel()
    found = []
    for draft in (Branches(target, 5), None):
        async with decoder(target, draft, k=6, adaptive=False) as server:
            found.append((await server.submit(cb.Decode([1, 2], max_new_tokens=20, adjust=alternate))).tokens)
    assert found[0] == found[1]
    assert all(a % 2 != b % 2 for a, b in itertools.pairwise(found[0][1:]))


async def test_a_model_without_a_cache_verifies_trees() -> None:
    table = TableModel()

    def logits(sequences: list[list[int]], rows: list[int]) -> list[Any]:
        return [
            np.stack([table.after(each[: len(each) - i]) for i in reversed(range(count))])
            for each, count in zip(sequences, rows, strict=True)
        ]

    async with decoder(cb.Cacheless(logits), Branches(table, 2), k=5, adaptive=False) as server:
        found = await asyncio.gather(*(server.submit(cb.Decode([n, 2], max_new_tokens=12)) for n in range(3)))
    assert [each.tokens for each in found] == [plain(table, [n, 2], 12) for n in range(3)]


def test_tokens_of_a_tree_are_worth_what_they_add() -> None:
    """Of four branches each is right one time in four; a fifth token never is."""
    policy = KPolicy(5, trees=True)
    rates = policy.rates()
    for n in range(60):
        policy.verified(rates, 5, [n % 4])
    assert rates.survival(5)[:4] == pytest.approx([0.25] * 4, abs=0.1)
    assert rates.survival(5)[4] < 0.05
    for _ in range(4):
        policy.measured(1, 1.0, 0, 0.0)
        policy.measured(5, 1.2, 4, 0.0)
    assert policy.choose([Room(rates, 5)]) == [4]


# -- the draft ------------------------------------------------------------------------------------------------------


def counted(tokens: list[int], longest: int) -> Counter[int]:
    """What followed the longest run at the end that came before, by searching."""
    for length in range(min(longest, len(tokens) - 1), 0, -1):
        run = tokens[-length:]
        after = Counter(tokens[at + length] for at in range(len(tokens) - length) if tokens[at : at + length] == run)
        if after:
            return after
    return Counter()


@given(
    tokens=st.lists(st.integers(0, 2), min_size=1, max_size=40),
    looks=st.lists(st.integers(1, 40), max_size=3),
    k=st.integers(1, 8),
)
def test_suffixes_give_what_followed_by_how_often_it_did(tokens: list[int], looks: list[int], k: int) -> None:
    draft = SuffixDraft(4, least=1e-9)
    state = draft.begin()
    for n in sorted({min(n, len(tokens)) for n in looks} | {len(tokens)}):
        text = tokens[:n]
        (tree,), (line,) = (asyncio.run(draft.propose([Ask(state, text, k, GREEDY, trees)])) for trees in (True, False))
        after = counted(text, 4)
        parents = tree.parents or []
        first = [token for token, parent in zip(tree.tokens, parents, strict=True) if parent == -1]
        assert set(first) <= set(after)
        assert bool(first) == bool(after)
        if after:
            assert after[first[0]] == after[line.tokens[0]] == max(after.values())
        children(list(tree.tokens), parents)
        assert len(tree.tokens) <= k


def test_shared_suffixes_are_learned_from_other_texts_and_bounded() -> None:
    draft = SuffixDraft(4, shared=True, most=60)
    first, second = draft.begin(), draft.begin()

    def tree(state: Any, text: list[int]) -> list[int]:
        (found,) = asyncio.run(draft.propose([Ask(state, text, 3, GREEDY, True)]))
        return list(found.tokens)

    assert tree(first, [1, 2, 3, 4]) == []
    assert tree(second, [9, 2]) == [3, 4]
    assert tree(draft.begin(), [*range(100, 140)]) == []  # all is forgotten
    assert tree(draft.begin(), [1, 2]) == []
    with pytest.raises(ValueError, match="longest must be at least 1"):
        SuffixDraft(0)
    with pytest.raises(ValueError, match="least must be above 0"):
        SuffixDraft(least=0)
    with pytest.raises(ValueError, match="most must be at least 1"):
        SuffixDraft(most=0)


async def test_a_text_that_repeats_itself_takes_few_passes() -> None:
    target = TreeModel()
    target.table[:] = 0
    cycle = [1, 2, 3, 4, 5]
    for i in range(5):
        target.table[cycle[i - 1], cycle[i], cycle[(i + 1) % 5]] = 9
    async with decoder(target, cb.SuffixDraft(), k=5, adaptive=False) as server:
        found = await server.submit(cb.Decode([*cycle, 1, 2], max_new_tokens=24))
        stats = server.stats()
    assert found.tokens == (cycle * 7)[: 7 + 24]
    assert found.iterations < 9
    assert target.trees > 0
    assert stats.acceptance_by_position[0] > 0.9
