"""Events reach their exporters off the hot path; a slow or broken exporter holds nothing up."""

import logging
import threading

import pytest
from tests.together import together

from callboard.events.kinds import MARK
from callboard.events.ring import EVENTS, Event, now
from callboard.telemetry import pump as module
from callboard.telemetry.pump import Pump

LIMIT = 60.0
MANY = 1_000_000
KEPT = 1 << 12


def test_a_million_events_with_a_slow_exporter() -> None:
    """The exporter takes its first events and does not come back until all are written."""
    pump = Pump.open(KEPT)
    taken = 0
    began, goes_on = threading.Event(), threading.Event()

    def slow(events: list[Event]) -> None:
        nonlocal taken
        began.set()
        assert goes_on.wait(LIMIT)
        taken += len(events)

    pump.subscribe(slow)
    try:
        ring = EVENTS.ring
        assert ring is pump.ring
        ring.append((next(ring.numbers), now(), MARK, "test", "first", {}))
        assert began.wait(LIMIT)
        for _ in range(MANY):  # none of them waits: the exporter does not run
            ring.append((next(ring.numbers), now(), MARK, "test", "note", None))
        assert len(ring) == KEPT
        assert not goes_on.is_set()
        goes_on.set()
        assert pump.flush(LIMIT)
    finally:
        goes_on.set()
        pump.close()
    assert taken == KEPT + 1
    assert ring.dropped == MANY - KEPT
    assert EVENTS.ring is None


def test_an_exporter_that_raises_is_dropped_with_a_word_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pump = Pump.open(KEPT)
    seen: list[Event] = []

    def broken(events: list[Event]) -> None:
        raise ZeroDivisionError

    try:
        pump.subscribe(broken)
        pump.subscribe(seen.extend)
        with caplog.at_level(logging.ERROR, "callboard.telemetry"):
            for name in ("one", "two"):
                pump.ring.append((next(pump.ring.numbers), now(), MARK, "test", name, {}))
                pump.flush()
    finally:
        pump.close()
    assert [event[4] for event in seen] == ["one", "two"]
    assert len([record for record in caplog.records if "gets no more" in record.message]) == 1


def test_users_share_the_ring_and_the_last_one_ends_it() -> None:
    one, two = Pump.open(KEPT), Pump.open(99)
    assert one is two
    one.close()
    assert EVENTS.ring is two.ring
    two.close()
    assert EVENTS.ring is None


def test_an_exporter_that_hangs_does_not_hold_up_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.telemetry.pump.END", 0.0)
    pump = Pump.open(KEPT)
    began, goes_on = threading.Event(), threading.Event()

    def hangs(events: list[Event]) -> None:
        began.set()
        goes_on.wait(LIMIT)

    pump.subscribe(hangs)
    pump.ring.append((next(pump.ring.numbers), now(), MARK, "test", "one", {}))
    assert began.wait(LIMIT)
    pump.ring.append((next(pump.ring.numbers), now(), MARK, "test", "two", {}))
    pump.close()
    goes_on.set()
    assert "does not end; 1 events are not exported" in caplog.text


def test_systems_of_several_threads_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def other() -> bool:
        """Whether another thread may open or close one now."""
        if free := Pump._guard.acquire(blocking=False):
            Pump._guard.release()
        return free

    free: list[bool] = []

    class Watched(module.Ring):
        __slots__ = ()

        def __init__(self, capacity: int) -> None:
            free.extend(together(other, [()]))
            super().__init__(capacity)

    monkeypatch.setattr(module, "Ring", Watched)
    Pump.open(KEPT).close()
    assert free == [False]
