"""The calibration error of a cascade's confidences: by hand, by chance, and over a window."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callboard as cb
from callboard.patterns.cascade.calibration import calibrate
from callboard.patterns.cascade.reliability import BINS, ReliabilityMonitor, calibration_error

ANSWERS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=80)


def by_hand(answers: list[tuple[float, bool]]) -> float:
    sure, right = (np.array([each[n] for each in answers], float) for n in (0, 1))
    found = 0.0
    for n in range(BINS):
        inside = (sure >= n / BINS) & ((sure < (n + 1) / BINS) | (n == BINS - 1))
        if inside.any():
            found += inside.mean() * abs(sure[inside].mean() - right[inside].mean())
    return found


@given(st.lists(st.tuples(st.integers(0, 64).map(lambda n: n / 64), st.booleans()), min_size=1, max_size=80))
def test_the_error_is_that_of_its_definition(answers: list[tuple[float, bool]]) -> None:
    assert calibration_error(answers) == pytest.approx(by_hand(answers), abs=1e-9)


@pytest.mark.parametrize("wrong", [math.nan, -0.1, 1.1, math.inf])
def test_confidences_that_are_no_probabilities_have_no_error(wrong: float) -> None:
    assert math.isnan(calibration_error([(0.5, True), (wrong, True)]))
    assert math.isnan(calibration_error([]))
    monitor = ReliabilityMonitor(10, 4.0, 0.02, 0.0)
    assert not any(monitor.add(wrong, False) for _ in range(100))
    assert math.isnan(monitor.observed)


@given(answers=ANSWERS, window=st.integers(1, 40))
def test_a_window_forgets(answers: list[tuple[float, bool]], window: int) -> None:
    monitor = ReliabilityMonitor(window, 4.0, 0.02, None)
    for confidence, right in answers:
        monitor.add(confidence, right)
    assert monitor.observed == pytest.approx(calibration_error(answers[-window:]), abs=1e-9)


@given(seed=st.integers(0, 99), lowest=st.sampled_from([0.0, 0.5, 0.9]))
@settings(max_examples=15)  # each of 4,000 answers
def test_true_confidences_raise_no_alarm_and_inflated_ones_do_once(seed: int, lowest: float) -> None:
    draw = random.Random(seed)
    monitor = ReliabilityMonitor(400, 4.0, 0.02, 0.0)

    def feed(count: int, honest: float) -> int:
        alarms = 0
        for _ in range(count):
            sure = draw.uniform(lowest, 1.0)
            alarms += monitor.add(sure, draw.random() < sure * honest)
        return alarms

    assert feed(2000, 1.0) == 0
    assert feed(800, 0.5) == 1
    assert monitor.drifted
    assert feed(1200, 1.0) == 0
    assert not monitor.drifted


def test_an_error_that_was_expected_is_no_drift() -> None:
    monitor = ReliabilityMonitor(100, 4.0, 0.02, None)
    assert not any(monitor.add(0.9, n % 2 == 0) for n in range(1000))  # the first window says 0.4
    assert monitor.expected == pytest.approx(0.4)


def test_the_calibration_tells_the_error_of_each_stage() -> None:
    sure = [[0.5, 0.95], [0.5, 0.95], [0.5, 7.0], [0.5, 0.95]]
    right = [[True, True, True], [False, True, True], [True, False, True], [False, True, True]]
    found = calibrate(sure, right, [1, 2, 3], max_loss=1.0)
    assert found.errors[0] == pytest.approx(0.0)
    assert math.isnan(found.errors[1])  # 7 is no probability


async def test_a_cascade_whose_confidences_rise_while_its_answers_get_worse_raises_an_alarm() -> None:
    alarms: list[cb.DriftAlarm] = []

    async def small(items: list[int]) -> list[tuple[int, float]]:
        return [(item if item % 5 else -1, 0.8 if item < 1000 else 0.99) for item in items]

    async def large(items: list[int]) -> list[tuple[int, float]]:
        return [(item, 1.0) for item in items]

    stages = [cb.CascadeStage(small, threshold=0.5), cb.CascadeStage(large)]
    drift = cb.Drift(window=100, deviations=2.0, alarm=alarms.append)
    async with cb.InferenceCascade[int, int](stages, shadow=1.0, drift=drift) as cascade:
        await cascade.calibrate(range(100), range(100), max_loss=1.0)
        for start, so_far in ((0, 200), (1000, 400)):
            for item in range(start, start + 200):
                await cascade.submit(item)
            while cascade.stats().shadowed < so_far:
                await cascade.submit(start + 1)  # the shadow runs end meanwhile
            assert bool(alarms) == bool(start)
    assert [alarm.signal for alarm in alarms] == ["calibration error"]
    assert alarms[0].expected == pytest.approx(0.0, abs=1e-9)
    assert alarms[0].observed > 0.1
