"""Schedules of pipelines: what must come first does, everything once, and bubbles and memory as theory says."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callboard as cb
from callboard.train.pipeline.schedules.actions import Action, Kind, needs
from callboard.train.pipeline.schedules.simulation import simulate
from callboard.train.pipeline.schedules.tables import SCHEDULES, placement, table

NAMES = st.sampled_from(SCHEDULES)


@settings(max_examples=50)
@given(NAMES, st.integers(1, 5), st.integers(0, 11), st.integers(1, 13))
def test_every_pass_once_and_in_order(schedule: str, devices: int, more: int, micros: int) -> None:
    stages = devices + more
    rows = table(schedule, devices, stages, micros)
    of = placement(schedule, devices, stages)
    assert set(of) == set(range(devices))
    assert all(of[action.stage] == rank for rank, row in enumerate(rows) for action in row)
    backward = [Kind.INPUT, Kind.WEIGHT] if schedule == "zero-bubble" else [Kind.BACKWARD]
    every = itertools.product([Kind.FORWARD, *backward], range(stages), range(micros))
    assert sorted(action for row in rows for action in row) == sorted(Action(*one) for one in every)
    for stage, kind in itertools.product(range(stages), [Kind.FORWARD, *backward]):  # gradients add up in this order
        assert [one.micro for row in rows for one in row if (one.kind, one.stage) == (kind, stage)] == [*range(micros)]
    timeline = cb.simulate_pipeline(schedule, stages, micros, devices=devices)  # ends: nothing waits for itself
    ends = {span.action: span for spans in timeline.devices for span in spans}
    for action, span in ends.items():
        assert all(ends[one].end <= span.start for one in needs(action, stages, schedule == "zero-bubble"))


@pytest.mark.parametrize("devices, micros", [(1, 1), (2, 3), (4, 2), (4, 8), (5, 5), (3, 12)])
def test_bubbles_and_memory_are_those_of_theory(devices: int, micros: int) -> None:
    gpipe, one, zero = (cb.simulate_pipeline(name, devices, micros) for name in ("gpipe", "1f1b", "zero-bubble"))
    assert gpipe.makespan == one.makespan == 3 * (micros + devices - 1)
    assert gpipe.bubble == pytest.approx((devices - 1) / (micros + devices - 1))
    assert gpipe.peaks == [micros] * devices
    assert one.peaks == [min(devices - rank, micros) for rank in range(devices)]
    assert max(zero.peaks) == min(devices, micros)  # ZB-H1: no more memory than 1F1B
    if micros >= devices:
        assert zero.makespan == 3 * micros + devices - 1


@pytest.mark.parametrize("devices, chunks, rounds", [(2, 2, 1), (4, 2, 2), (4, 3, 3), (3, 4, 2)])
def test_interleaved_stages_divide_the_bubble(devices: int, chunks: int, rounds: int) -> None:
    micros = devices * rounds
    timeline = cb.simulate_pipeline("interleaved", devices * chunks, micros, devices=devices)
    assert timeline.makespan == 3 * (micros * chunks + devices - 1)
    assert timeline.peaks[0] <= (chunks + 1) * devices
    assert timeline.peaks == sorted(timeline.peaks, reverse=True)


@pytest.mark.parametrize("devices, micros", [(2, 8), (4, 8), (4, 16)])
def test_eager_passes_hide_transfers(devices: int, micros: int) -> None:
    costs = cb.PipelineCosts(forward=1.0, input=1.0, weight=1.0, transfer=0.5)
    one, eager = (cb.simulate_pipeline(name, devices, micros, costs) for name in ("1f1b", "eager-1f1b"))
    assert eager.makespan == 3 * (micros + devices - 1) + 2 * (devices - 1) * 0.5  # there and back, once
    assert eager.makespan < one.makespan
    assert eager.peaks == [min(2 * (devices - rank) - 1, micros) for rank in range(devices)]


def test_costs_and_transfers() -> None:
    costs = cb.PipelineCosts(forward=[1.0, 2.0], input=[3.0, 4.0], weight=0.5, transfer=0.25)
    timeline = cb.simulate_pipeline("1f1b", 2, 1, costs)
    assert timeline.makespan == 1.0 + 0.25 + 2.0 + 4.5 + 0.25 + 3.5
    assert cb.simulate_pipeline("1f1b", 2, 1, costs, devices=1).makespan == 1.0 + 2.0 + 4.5 + 3.5


def test_pictures() -> None:
    timeline = cb.simulate_pipeline("zero-bubble", 2, 2)
    assert str(timeline).splitlines() == [
        "0 |F0 F1 ···B0 W0 B1 W1 |",
        "1 |···F0 B0 F1 B1 W0 W1 |",
        "7 long, 14% waiting, passes held: 2, 2",
    ]
    svg = timeline.svg()
    assert svg.count("<rect") == 12
    assert "7 long, 14% waiting" in svg
    assert timeline._repr_html_() == svg


def test_numbers_that_cannot_be() -> None:
    for schedule, stages, micros, devices, message in [
        ("dualpipe", 2, 2, None, "schedule is 'dualpipe'; use one of gpipe, 1f1b"),
        ("1f1b", 2, 0, None, "micro_batches is 0"),
        ("1f1b", 2, 2, 3, "2 stages on 3 devices"),
    ]:
        with pytest.raises(ValueError, match=message):
            cb.simulate_pipeline(schedule, stages, micros, devices=devices)
    stuck = [[Action(Kind.BACKWARD, 0, 0), Action(Kind.FORWARD, 0, 0)]]
    with pytest.raises(ValueError, match="never ends: B0 of stage 0 wait"):
        simulate(stuck, cb.PipelineCosts())
