"""A cascade notices that its inputs, or its models, are not those that it was calibrated for."""

import random
from typing import Any

import pytest
from batching_lab import turns
from hypothesis import given
from hypothesis import strategies as st

import callboard as cb
from callboard.patterns.cascade.drift import DriftMonitor, ShareMonitor


def feed(monitor: ShareMonitor, share: float, count: int, seed: int = 0) -> int:
    draw = random.Random(seed)
    return sum(monitor.add(draw.random() < share) for _ in range(count))


@given(expected=st.floats(0.02, 0.98), seed=st.integers(0, 99))
def test_chance_raises_no_alarm_and_a_real_change_does(expected: float, seed: int) -> None:
    settings = cb.Drift(window=400)
    monitor = ShareMonitor(settings, expected)
    assert feed(monitor, expected, 2000, seed) == 0
    other = expected + 0.3 if expected < 0.5 else expected - 0.3
    assert feed(monitor, other, 800, seed) == 1  # once
    assert monitor.drifted
    assert feed(monitor, expected, 1200, seed) == 0
    assert not monitor.drifted


def test_the_first_window_is_what_is_expected_where_nothing_is_known() -> None:
    monitor = ShareMonitor(cb.Drift(window=100), None)
    assert feed(monitor, 0.3, 99) == 0
    assert monitor.expected is None
    feed(monitor, 0.3, 101)
    assert monitor.expected == pytest.approx(0.3, abs=0.15)
    assert feed(monitor, 0.9, 200) == 1


def test_a_share_within_the_tolerance_is_no_drift() -> None:
    monitor = ShareMonitor(cb.Drift(window=100, deviations=0.0, tolerance=0.25), 0.5)
    assert feed(monitor, 0.55, 1000) == 0


def test_shares_of_several_stages() -> None:
    monitor = DriftMonitor(cb.Drift(window=20), 3)
    monitor.expect((0.5, 0.25))
    for n in range(40):
        assert monitor.answered([0, 0, 1, 2][n % 4]) == []
    alarms = [alarm for _ in range(20) for alarm in monitor.answered(2)]
    assert [alarm.signal for alarm in alarms] == ["escalation of stage 1", "escalation of stage 0"]
    assert monitor.drifted == ("escalation of stage 0", "escalation of stage 1")
    monitor.expect(None)
    assert monitor.drifted == ()


async def test_a_cascade_raises_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    alarms: list[cb.DriftAlarm] = []

    async def small(items: list[int]) -> list[tuple[int, float]]:
        return [(item if item % 10 else -2, float(item % 10 > 0)) for item in items]

    async def large(items: list[int]) -> list[tuple[int, float]]:
        return [(item if item < 1000 else -1, 1.0) for item in items]

    stages = [cb.CascadeStage(small, threshold=0.5), cb.CascadeStage(large)]
    drift = cb.Drift(window=50, alarm=alarms.append)
    async with cb.InferenceCascade[int, int](stages, shadow=1.0, drift=drift) as cascade:
        found = await cascade.calibrate(range(100), range(100), max_loss=0.0)
        assert found.escalated == (0.1,)
        for item in range(200):
            await cascade.submit(item)
        assert cascade.stats().drifted == ()
        for item in range(60):
            await cascade.submit(10 * item)
        assert [(alarm.signal, alarm.window) for alarm in alarms] == [("escalation of stage 0", 50)]
        assert alarms[0].observed > 0.2
        assert alarms[0].expected == 0.1
        assert cascade.stats().drifted == ("escalation of stage 0",)
        for item in range(1001, 1100):
            await cascade.submit(item)
            await turns(6)
        assert [alarm.signal for alarm in alarms] == ["escalation of stage 0", "agreement", "calibration error"]
        assert alarms[2].expected == 0  # in the items of the calibration, all answers that were given early were right
    assert "calibrate again" in caplog.text


async def test_an_alarm_that_fails_harms_no_request(caplog: pytest.LogCaptureFixture) -> None:
    async def sure(items: list[int]) -> list[tuple[int, float]]:
        return [(item, float(item < 20)) for item in items]

    wrong: Any = {}.__getitem__
    stages = [cb.CascadeStage(sure, threshold=0.5), cb.CascadeStage(sure)]
    async with cb.InferenceCascade[int, int](stages, drift=cb.Drift(window=10, alarm=wrong)) as cascade:
        assert [(await cascade.submit(n)).response for n in range(40)] == list(range(40))
    assert "the alarm of a drift failed" in caplog.text


@pytest.mark.parametrize("settings", [{"window": 9}, {"deviations": -1}, {"tolerance": float("nan")}])
def test_settings_that_are_refused(settings: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        cb.Drift(**settings)
