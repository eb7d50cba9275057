"""Strategies as pure functions of error, log and time."""

from typing import Any

import pytest

from callboard.actors import (
    ActorInitError,
    ActorKilled,
    Backoff,
    DeathPact,
    Directive,
    OneForOne,
)
from callboard.actors.supervision import RestartLog, unwrap

RESUME, RESTART, STOP, ESCALATE = Directive.RESUME, Directive.RESTART, Directive.STOP, Directive.ESCALATE


class Worse(Exception):
    pass


class EvenWorse(Worse):
    pass


@pytest.mark.parametrize(
    "error, expected",
    [
        (ActorInitError("x"), STOP),
        (ActorKilled("x"), STOP),
        (DeathPact("x"), STOP),
        (ValueError("x"), RESTART),
        (BaseException("x"), ESCALATE),
        (GeneratorExit(), ESCALATE),
    ],
)
def test_default_decider(error: BaseException, expected: Directive) -> None:
    """FaultHandling docs: the default decider; what it does not cover escalates."""
    assert OneForOne().directive(error) is expected


@pytest.mark.parametrize(
    "error, expected", [(EvenWorse(), STOP), (Worse(), RESUME), (ValueError(), ESCALATE), (KeyError(), RESTART)]
)
def test_most_specific_rule_wins(error: BaseException, expected: Directive) -> None:
    """SupervisorStrategySpec: sort the rules so that specific ones come first, whatever their order."""
    rules = {Worse: RESUME, LookupError: RESTART, EvenWorse: STOP}
    assert OneForOne(rules).directive(error) is expected


def test_default_directive_and_function_rules() -> None:
    assert OneForOne({Worse: RESUME}, default=STOP).directive(ValueError()) is STOP
    by_function = OneForOne(lambda e: RESUME if isinstance(e, Worse) else None, default=RESTART)
    assert by_function.directive(EvenWorse()) is RESUME
    assert by_function.directive(ValueError()) is RESTART


def test_group_is_decided_by_its_worst_leaf() -> None:
    rules = OneForOne({Worse: RESUME, KeyError: STOP, ValueError: RESTART})
    group = ExceptionGroup("g", [Worse(), ExceptionGroup("inner", [KeyError(), ValueError()])])
    assert rules.directive(group) is STOP
    assert rules.directive(ExceptionGroup("g", [Worse(), ValueError()])) is RESTART


def test_unwrap_takes_a_single_leaf_out() -> None:
    leaf = Worse()
    assert unwrap(ExceptionGroup("a", [ExceptionGroup("b", [leaf])])) is leaf
    pair = ExceptionGroup("a", [leaf, Worse()])
    assert unwrap(pair) is pair


@pytest.mark.parametrize(
    "limit, within, times, permitted",
    [
        (None, None, range(50), [True] * 50),
        (0, None, [0.0], [False]),
        (2, None, [0, 1000, 100_000], [True, True, False]),
        (3, 60.0, [0, 1, 2, 3], [True, True, True, False]),
        (3, 60.0, [0, 30, 59, 60, 61], [True, True, True, True, False]),
        (1, 10.0, [0, 10, 20, 25], [True, True, True, False]),
        (2, 30 * 86400.0, [0, 29 * 86400, 29.5 * 86400, 31 * 86400], [True, True, False, True]),
    ],
)
def test_budget(limit: int | None, within: float | None, times: Any, permitted: list[bool]) -> None:
    """SupervisorSpec: the maxNrOfRetries / withinTimeRange cases; a window beyond 24.8 days must not overflow."""
    log = RestartLog()
    strategy = OneForOne(max_restarts=limit, within=within)
    decisions = [strategy.decide(ValueError(), log, float(t)) for t in times]
    assert [d.directive is RESTART for d in decisions] == permitted
    assert [d.exhausted for d in decisions] == [not p for p in permitted]


def test_budget_counts_restarts_only() -> None:
    log, strategy = RestartLog(), OneForOne({Worse: RESUME, ValueError: RESTART}, max_restarts=1)
    assert all(strategy.decide(Worse(), log, 0.0).directive is RESUME for _ in range(5))
    assert strategy.decide(ValueError(), log, 0.0).directive is RESTART
    assert strategy.decide(ValueError(), log, 0.0).directive is STOP


@pytest.mark.parametrize("arguments", [{"max_restarts": -1}, {"within": 0.0}, {"within": -1.0}])
def test_strategy_refuses_nonsense(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        OneForOne(**arguments)


@pytest.mark.parametrize("n, expected", [(0, 1.0), (1, 2.0), (3, 8.0), (4, 10.0), (100, 10.0), (10_000, 10.0)])
def test_backoff_delay(n: int, expected: float) -> None:
    """BackoffOnRestart: calculateDelay; a huge count does not overflow."""
    backoff = Backoff(1.0, 10.0, jitter=0.5)
    assert backoff.delay(n) == expected
    assert backoff.delay(n, random=1.0) == pytest.approx(expected * 1.5)


def test_backoff_row_ends_after_quiet_time() -> None:
    """BackoffSupervisorSpec: reset the count after (min + max) / 2 without failure."""
    log, strategy = RestartLog(), OneForOne(backoff=Backoff(1.0, 9.0))
    delays = [strategy.decide(ValueError(), log, t).delay for t in (0.0, 1.0, 5.9, 10.9, 11.0)]
    assert delays == [1.0, 2.0, 4.0, 1.0, 2.0]


@pytest.mark.parametrize("arguments", [(0.0, 1.0), (2.0, 1.0), (1.0, 2.0, -0.1)])
def test_backoff_refuses_nonsense(arguments: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"minimum|jitter"):
        Backoff(*arguments)
