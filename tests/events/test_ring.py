"""The ring of events: bounded, drops counted, and off unless it is asked for."""

from callboard.events import kinds
from callboard.events.kinds import FIELDS, MARK, NAMES
from callboard.events.ring import EVENTS, Ring, now
from callboard.events.usage import usage


def write(ring: Ring, count: int) -> None:
    for _ in range(count):
        ring.append((next(ring.numbers), now(), MARK, "test", "note", {}))


def test_the_oldest_events_are_dropped_and_counted() -> None:
    ring = Ring(8)
    write(ring, 20)
    assert [event[0] for event in ring.drain()] == list(range(12, 20))
    assert (ring.drained, ring.dropped) == (8, 12)
    write(ring, 3)
    assert len(ring.drain()) == 3
    assert (ring.drained, ring.dropped) == (11, 12)


def test_a_part_can_be_taken() -> None:
    ring = Ring(8)
    write(ring, 5)
    assert [event[0] for event in ring.drain(2)] == [0, 1]
    assert [event[0] for event in ring.drain()] == [2, 3, 4]
    assert ring.dropped == 0


def test_it_is_off_by_default() -> None:
    assert EVENTS.ring is None
    assert EVENTS.every == 0


def test_every_kind_has_a_name_and_fields() -> None:
    every = {value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, int)}
    assert every == set(NAMES) == set(FIELDS)
    assert len(set(NAMES.values())) == len(NAMES)


def test_usage_of_this_process_and_of_none() -> None:
    used = usage()
    assert used is not None
    rss, cpu, threads = used
    assert rss > 1 << 20
    assert cpu >= 0
    assert threads >= 1
    assert usage(2**22 + 1) is None  # beyond the largest process id of Linux
