"""Decisions of a cascade: confidences, thresholds, failures, and calibration against brute force."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.cli.demo.digits import load_digits
from callboard.patterns.cascade.calibration import calibrate
from callboard.patterns.cascade.confidence import margin, max_probability, negative_entropy
from callboard.patterns.cascade.stages import CascadeStage, OnError, clears, on_failure

LOGITS = st.lists(st.floats(-30, 30), min_size=2, max_size=6)


@given(LOGITS)
def test_confidences_are_those_of_the_softmax(logits: list[float]) -> None:
    powers = [math.exp(x) for x in logits]
    shares = sorted(power / math.fsum(powers) for power in powers)
    assert max_probability(logits) == pytest.approx(shares[-1])
    assert margin(logits) == pytest.approx(shares[-1] - shares[-2], abs=1e-12)
    entropy = -math.fsum(share * math.log(share) for share in shares if share)
    assert negative_entropy(logits) == pytest.approx(1 - entropy / math.log(len(shares)), abs=1e-9)


@pytest.mark.parametrize("confidence", [max_probability, margin, negative_entropy])
def test_confidences_of_odd_logits(confidence: Any) -> None:
    assert confidence([1e300, -1e300]) == pytest.approx(1)
    assert math.isnan(confidence([1.0, float("nan")]))
    with pytest.raises(ValueError, match=r"at least 2 numbers, but their shape is \[1, 2\]"):
        confidence([[1.0, 2.0]])


def test_thresholds() -> None:
    assert clears(0.5, 0.5, last=False)
    assert not clears(0.49, 0.5, last=False)
    assert not clears(float("nan"), -math.inf, last=False)
    assert clears(float("nan"), 0.5, last=True)


E, B, F = OnError.ESCALATE, OnError.FALLBACK, OnError.FAIL


@pytest.mark.parametrize(
    "policy, last, answered, late, follows",
    [
        (E, False, False, False, E),
        (E, False, True, False, E),
        (E, True, True, False, B),
        (E, True, False, False, F),
        (B, False, True, False, B),
        (B, False, False, False, F),
        (F, False, True, False, F),
        (F, False, True, True, B),
        (E, False, True, True, B),
        (E, False, False, True, E),
        (F, True, False, True, F),
    ],
)
def test_what_follows_a_failure(policy: OnError, last: bool, answered: bool, late: bool, follows: OnError) -> None:
    assert on_failure(policy, last=last, answered=answered, late=late) is follows


def test_what_a_stage_answers() -> None:
    assert CascadeStage(len).answer(("x", 1)) == ("x", 1.0)
    assert CascadeStage(len, confidence=max).answer([1, 3]) == ([1, 3], 3.0)
    with pytest.raises(
        TypeError, match="must return pairs of answer and confidence, but returned 'xy'; return such pairs"
    ):
        CascadeStage(len).answer("xy")
    with pytest.raises(TypeError, match=r"but returned \('a', None\)"):
        CascadeStage(len).answer(("a", None))


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"threshold": float("nan")}, "threshold is NaN"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"cost": -1}, "cost must be a finite"),
        ({"on_error": "retry"}, "retry"),
        ({"confidence": "logits"}, "confidence must be a function or one of margin, max_probability, negative_entropy"),
    ],
)
def test_stages_are_checked(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        CascadeStage(len, **wrong)


def outcome(
    row: list[float], right: list[bool], costs: list[float], thresholds: tuple[float, ...]
) -> tuple[bool, float]:
    paid = 0.0
    for stage, cost in enumerate(costs):
        paid += cost
        if stage == len(costs) - 1 or row[stage] >= thresholds[stage]:
            return right[stage], paid
    raise AssertionError


@pytest.mark.parametrize("right", [True, False])
def test_the_interval_holds_the_accuracy_also_at_its_ends(right: bool) -> None:
    for n in range(1, 60):
        found = calibrate([[0.5]] * n, [[right, right]] * n, [0, 0], max_loss=0.0)
        assert found.interval[0] <= found.accuracy == right <= found.interval[1]


@given(data=st.data(), gates=st.integers(1, 2), n=st.integers(1, 8))
def test_calibration_is_the_best_of_all(data: st.DataObject, gates: int, n: int) -> None:
    level = st.sampled_from([0.1, 0.3, 0.5, 0.9, float("nan")])
    sure = [[data.draw(level) for _ in range(gates)] for _ in range(n)]
    right = [[data.draw(st.booleans()) for _ in range(gates + 1)] for _ in range(n)]
    costs = [data.draw(st.sampled_from([0.0, 1.0, 5.0])) for _ in range(gates + 1)]
    found = {}
    for thresholds in itertools.product([0.1, 0.3, 0.5, 0.9, math.inf], repeat=gates):
        each = [outcome(*pair, costs, thresholds) for pair in zip(sure, right, strict=True)]
        found[thresholds] = sum(ok for ok, _ in each) / n, sum(paid for _, paid in each) / n
    last = sum(row[-1] for row in right) / n

    max_loss = data.draw(st.sampled_from([0.0, 0.2, 1.0]))
    chosen = calibrate(sure, right, costs, max_loss=max_loss)
    fitting = [(cost, -accuracy) for accuracy, cost in found.values() if accuracy >= last - max_loss - 1e-9]
    assert (chosen.cost, -chosen.accuracy) == pytest.approx(min(fitting))
    assert chosen.last_accuracy == pytest.approx(last)
    assert chosen.interval[0] <= chosen.accuracy <= chosen.interval[1]

    budget = 0.9 * costs[0] + data.draw(st.sampled_from([0.0, 1.0, 3.0]))
    fitting = [(-accuracy, cost) for accuracy, cost in found.values() if cost <= budget + 1e-9]
    if fitting:
        chosen = calibrate(sure, right, costs, budget=budget)
        assert (-chosen.accuracy, chosen.cost) == pytest.approx(min(fitting))
    else:
        with pytest.raises(ValueError, match="no cascade has a mean cost"):
            calibrate(sure, right, costs, budget=budget)


@pytest.mark.parametrize(
    "arguments, options, says",
    [
        (([[0.5]], [[True, True]], [1, 2]), {}, "give one of max_loss and budget"),
        (([[0.5]], [[True, True]], [1, 2]), {"max_loss": 0, "budget": 1}, "give one of"),
        (([[0.5]], [[True]], [1, 2]), {"budget": 1}, "shapes do not fit"),
        (([[0.5]], [[True, True]], [1]), {"budget": 1}, "shapes do not fit"),
        (([[]], [[True]], [1]), {"budget": 1}, "must be filled matrices"),
    ],
)
def test_calibration_checks_its_arguments(arguments: Any, options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        calibrate(*arguments, **options)


def logistic(x: np.ndarray, y: np.ndarray) -> Any:
    """A linear classifier of ten classes, by gradient descent with momentum; gives its logits."""
    x = np.c_[x, np.ones(len(x))]
    weights = np.zeros((x.shape[1], 10))
    step = np.zeros_like(weights)
    target = np.eye(10)[y]
    for _ in range(400):
        powers = np.exp(x @ weights)
        step = 0.9 * step - x.T @ (powers / powers.sum(axis=1, keepdims=True) - target) / len(x)
        weights = weights + step
    return lambda rows: np.c_[rows, np.ones(len(rows))] @ weights


def kernel(x: np.ndarray, y: np.ndarray) -> Any:
    """Kernel ridge regression onto the classes, with Gaussians."""

    def gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-0.3 * ((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T))

    weights = np.linalg.solve(gram(x, x) + 1e-3 * np.eye(len(x)), np.eye(10)[y])
    return lambda rows: gram(rows, x) @ weights


@pytest.mark.slow
def test_real_digits_by_two_models() -> None:
    """Within half a point of the large one, which runs on at most 15 % of the items; chosen on other items."""
    digits = load_digits()
    x, y = digits.images / digits.images.max(), digits.labels
    losses, shares = [], []
    for seed in range(5):
        train, held, test = np.split(np.random.default_rng(seed).permutation(len(x)), [900, 1350])
        small, large = logistic(x[train], y[train]), kernel(x[train], y[train])
        sure = [[margin(row)] for row in small(x[held])]
        right = np.stack([model(x[held]).argmax(1) == y[held] for model in (small, large)], axis=1)
        (threshold,) = calibrate(sure, right, [1, 20], max_loss=0.005).thresholds
        keeps = np.array([margin(row) for row in small(x[test])]) >= threshold
        answers = np.where(keeps, small(x[test]).argmax(1), large(x[test]).argmax(1))
        losses.append((large(x[test]).argmax(1) == y[test]).mean() - (answers == y[test]).mean())
        shares.append(1 - keeps.mean())
    assert np.mean(losses) <= 0.005
    assert np.mean(shares) <= 0.15
