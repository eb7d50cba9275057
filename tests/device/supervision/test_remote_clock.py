"""Times of another machine's clock, as times of this one."""

from callboard.device.protocol.messages import Traces
from callboard.device.supervision.remote.clock import WINDOW, RemoteClock

AHEAD = 5000.0
"""Seconds by which the other clock is ahead."""


def record(op: int, at: float, started: float = 0.0) -> tuple[int, str, int, float, float, float, bool, float, float]:
    """One that was completed at a time of ours."""
    at += AHEAD
    return op, "blas.gemm", 7, at - 0.003, at - 0.002, at, True, started + AHEAD if started else 0.0, 0.001


def test_times_are_late_by_the_shortest_way_at_most() -> None:
    clock = RemoteClock()
    first = clock.translated(Traces([record(1, 99.0), record(2, 100.0, started=99.998)]), 100.5)  # 0.5 s on the way
    assert [round(each[5], 6) for each in first.records] == [99.5, 100.5]
    (_, _, _, began, enqueued, done, ok, started, seconds) = first.records[1]
    assert [round(at, 6) for at in (began, enqueued, done, started)] == [100.497, 100.498, 100.5, 100.498]
    assert (ok, seconds, first.records[0][7]) == (True, 0.001, 0.0)  # no time of its own: not known
    assert round(clock.translated(Traces([record(3, 101.0)]), 101.01).records[0][5], 6) == 101.01
    assert round(clock.translated(Traces([record(4, 102.0)]), 102.5).records[0][5], 6) == 102.01


def test_clocks_that_run_apart_are_compared_again() -> None:
    clock = RemoteClock()
    clock.translated(Traces([record(1, 100.0)]), 100.0)
    later = 100.0 + 1.5 * WINDOW
    assert round(clock.translated(Traces([record(2, later - 0.2)]), later).records[0][5], 6) == later - 0.2
    later += 1.5 * WINDOW  # the first comparison is too old now
    assert round(clock.translated(Traces([record(3, later - 0.3)]), later).records[0][5], 6) == later - 0.1


def test_a_message_without_records() -> None:
    assert RemoteClock().translated(Traces([]), 1.0).records == []
