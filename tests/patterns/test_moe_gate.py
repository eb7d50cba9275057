"""The gate against a token-by-token reference, and its errors."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callboard as cb
from callboard.patterns.moe.balance import entropy, load_balancing_loss, load_of, updated_bias, z_loss
from callboard.patterns.moe.gate import choose, jittered


def reference(logits: list[float], rule: cb.TopK) -> tuple[list[int], list[float]]:
    """Experts and weights of one token, in plain Python."""
    n = len(logits)
    if rule.score == "sigmoid":
        scores = [1 / (1 + math.exp(-x)) for x in logits]
    else:
        exps = [math.exp(x - max(logits)) for x in logits]
        scores = [x / sum(exps) for x in exps]
    ranked = list(logits) if rule.score == "topk_softmax" else list(scores)
    if rule.bias is not None:
        ranked = [x + b for x, b in zip(ranked, rule.bias.tolist(), strict=True)]
    size = n // rule.groups
    groups = [range(g * size, (g + 1) * size) for g in range(rule.groups)]
    best = {g: sum(sorted(ranked[e] for e in group)[-rule.group_best :]) for g, group in enumerate(groups)}
    open_ = sorted(best, key=lambda g: (-best[g], g))[: rule.top_groups]
    allowed = [e for g in open_ for e in groups[g]]
    chosen = sorted(allowed, key=lambda e: (-ranked[e], e))[: rule.k]
    if rule.score == "topk_softmax":
        exps = [math.exp(logits[e] - max(logits[e] for e in chosen)) for e in chosen]
        weights = [x / sum(exps) for x in exps]
    else:
        weights = [scores[e] for e in chosen]
        if rule.normalize:
            weights = [w / sum(weights) for w in weights]
    return chosen, [w * rule.scale for w in weights]


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, cb.TopK]:
    groups = draw(st.integers(1, 3))
    size = draw(st.integers(1, 4))
    top_groups = draw(st.integers(1, groups))
    # Quarters: ties are likely, and scores that differ do so by more than a rounding error.
    numbers = st.integers(-12, 12).map(lambda n: n / 4)
    tokens = draw(st.integers(0, 6))
    row = st.lists(numbers, min_size=groups * size, max_size=groups * size)
    logits = np.array(draw(st.lists(row, min_size=tokens, max_size=tokens)), np.float64).reshape(tokens, groups * size)
    rule = cb.TopK(
        draw(st.integers(1, size * top_groups)),
        score=draw(st.sampled_from(["softmax", "topk_softmax", "sigmoid"])),
        normalize=draw(st.booleans()),
        scale=draw(st.sampled_from([1.0, 2.5])),
        groups=groups,
        top_groups=top_groups,
        group_best=draw(st.integers(1, 2)),
    )
    return logits, rule


@given(cases())
@settings(max_examples=200, deadline=None)
def test_experts_and_weights_are_those_of_the_reference(case: tuple[np.ndarray, cb.TopK]) -> None:
    logits, rule = case
    found = choose(logits, rule)
    assert found.experts.shape == found.weights.shape == (len(logits), rule.k)
    for token, row in enumerate(logits.tolist()):
        experts, weights = reference(row, rule)
        if rule.groups == 1 or rule.score == "topk_softmax":  # else sums of scores decide, in another order
            assert found.experts[token].tolist() == experts
            assert found.weights[token] == pytest.approx(weights, abs=1e-12)
        groups = {expert // (len(row) // rule.groups) for expert in found.experts[token].tolist()}
        assert len(groups) <= rule.top_groups
        assert len(set(found.experts[token].tolist())) == rule.k


def test_groups_and_bias_as_in_deepseek_v3() -> None:
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((64, 16))
    bias = rng.standard_normal(16) / 4
    rule = cb.TopK(4, score="sigmoid", groups=4, top_groups=2, bias=bias, scale=2.5)
    found = choose(logits, rule)
    plain = choose(logits, cb.TopK(4, score="sigmoid"))
    assert (np.sort(found.experts) != np.sort(plain.experts)).any()
    for token, row in enumerate(logits.tolist()):
        experts, weights = reference(row, rule)
        assert found.experts[token].tolist() == experts
        assert found.weights[token] == pytest.approx(weights)


def test_equal_scores_go_to_the_lower_number() -> None:
    assert choose(np.zeros((2, 5)), cb.TopK(3)).experts.tolist() == [[0, 1, 2]] * 2
    assert choose([[1.0, 2.0, 2.0, 1.0]], cb.TopK(3)).experts.tolist() == [[1, 2, 0]]


def test_softmax_after_the_choice_is_softmax_before_it_normalised() -> None:
    logits = np.random.default_rng(1).standard_normal((50, 8))
    before, after = choose(logits, cb.TopK(2)), choose(logits, cb.TopK(2, score="topk_softmax"))
    assert np.array_equal(before.experts, after.experts)
    assert np.allclose(before.weights, after.weights, atol=1e-15)


def test_extreme_logits_give_finite_weights() -> None:
    for score in cb.Score:
        found = choose([[1e30, -1e30, 0.0], [-1e30, -1e30, -1e30]], cb.TopK(2, score=score))
        assert np.isfinite(found.weights).all()


def test_an_excluded_expert_is_not_chosen_while_there_are_others() -> None:
    for score in cb.Score:
        rule = cb.TopK(2, score=score, bias=[0.0, 9.0, 0.0, 0.0])
        found = choose([[0.0, -math.inf, 0.0, 1.0], [-math.inf, -math.inf, 1.0, -math.inf]], rule)
        assert found.experts[0].tolist() == [3, 0]
        assert found.experts[1, 0] == 2
        assert found.weights[1].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_logit_that_is_no_number_names_token_and_expert(bad: float) -> None:
    logits = np.zeros((5, 4))
    logits[3, 2] = logits[4, 0] = bad
    with pytest.raises(cb.BadGate, match=f"of token 3 for expert 2 is {bad}") as caught:
        choose(logits, cb.TopK(2))
    assert (caught.value.token, caught.value.expert) == (3, 2)
    assert isinstance(caught.value, ValueError)


def test_a_token_without_any_expert_is_named() -> None:
    with pytest.raises(cb.BadGate, match="token 1 are -inf for every expert") as caught:
        choose([[0.0, 1.0], [-math.inf, -math.inf]], cb.TopK(1))
    assert (caught.value.token, caught.value.expert) == (1, None)


@pytest.mark.parametrize(
    "options, experts, says",
    [
        ({"k": 0}, 4, "k must be at least 1, but is 0"),
        ({"k": 5}, 4, "k is 5, but a token has only 4"),
        ({"k": 3, "groups": 2}, 4, "only 2 experts"),
        ({"groups": 3}, 4, "4 experts cannot be divided into 3 groups"),
        ({"groups": 2, "top_groups": 3}, 4, "top_groups is 3"),
        ({"bias": [1.0]}, 4, "bias has 1 numbers for 4"),
        ({"bias": [math.nan] * 4}, 4, "finite"),
        ({"scale": 0.0}, 4, "scale"),
        ({"score": "softplus"}, 4, "softplus"),
    ],
)
def test_settings_out_of_range(options: Any, experts: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        choose(np.zeros((1, experts)), cb.TopK(**options))


def test_jitter_depends_on_seed_and_number_alone() -> None:
    tokens = np.ones((20, 30), np.float32)
    found = jittered(tokens, 0.1, 1, 2)
    assert found.dtype == np.float32
    assert np.array_equal(found, jittered(tokens, 0.1, 1, 2))
    assert not np.array_equal(found, jittered(tokens, 0.1, 1, 3))
    assert not np.array_equal(found, jittered(tokens, 0.1, 2, 2))
    assert 0.9 <= found.min() < 0.91
    assert 1.09 < found.max() <= 1.1


# -- balance -----------------------------------------------------------------------------------------------------------


def test_the_load_balancing_loss_is_k_where_the_load_is_even() -> None:
    even = choose(np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]]), cb.TopK(2))
    assert load_balancing_loss(even) == pytest.approx(2)
    assert load_balancing_loss(choose([[50.0, 0, 0, 0]] * 3, cb.TopK(1))) == pytest.approx(4)
    assert load_balancing_loss(choose(np.zeros((0, 4)), cb.TopK(2))) == 0


def test_the_losses_are_those_of_mixtral_and_st_moe() -> None:
    logits = np.random.default_rng(5).standard_normal((40, 6))
    choice = choose(logits, cb.TopK(2))
    one_hot = np.eye(6)[choice.experts]  # [tokens, k, experts], as in transformers' load_balancing_loss_func
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert load_balancing_loss(choice) == pytest.approx(6 * (one_hot.mean(axis=0) * p.mean(axis=0)).sum())
    assert z_loss(choice) == pytest.approx((np.log(np.exp(logits).sum(axis=1)) ** 2).mean())
    assert np.isfinite(z_loss(choose([[1e30, 0.0]], cb.TopK(1))))
    assert z_loss(choose(np.zeros((0, 4)), cb.TopK(2))) == 0


def test_the_bias_evens_out_the_load() -> None:
    rng = np.random.default_rng(2)
    skew = np.array([1.0, 0.5, 0, 0, 0, 0, -0.5, -1.0])
    rule = cb.TopK(2, score="sigmoid", bias=np.zeros(8))
    loads = []
    for _ in range(150):
        choice = choose(rng.standard_normal((256, 8)) + skew, rule)
        loads.append(load_of(choice))
        rule = cb.TopK(2, score="sigmoid", bias=updated_bias(rule.bias, loads[-1], 0.01))
    assert entropy(sum(loads[:10])) < 0.95
    assert entropy(sum(loads[-10:])) > 0.995


def test_entropy_of_a_load() -> None:
    assert entropy(np.array([3, 3, 3])) == pytest.approx(1)
    assert entropy(np.array([0, 9, 0])) == entropy(np.zeros(3)) == entropy(np.array([4])) == 0
