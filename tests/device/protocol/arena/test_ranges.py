"""Free stretches: against a model that keeps every integer."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.device.protocol.arena.ranges import FreeRanges


def test_best_fit_from_the_low_end() -> None:
    extents = FreeRanges()
    extents.give(0, 100)
    extents.give(200, 10)
    assert extents.take(10) == 200
    assert extents.take(5) == 0
    assert extents.take(96) is None
    assert extents.take(95) == 5
    assert extents.free == 0


def test_neighbours_merge() -> None:
    extents = FreeRanges()
    for start in (0, 20, 10):
        extents.give(start, 10)
    assert extents.take(30) == 0


def test_remove_takes_whole_stretches_only() -> None:
    extents = FreeRanges()
    extents.give(0, 10)
    assert not extents.remove(0, 9)
    assert not extents.remove(1, 9)
    assert extents.remove(0, 10)
    assert extents.free == 0
    assert extents.take(1) is None


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=80))
def test_model(steps: list[tuple[bool, int]]) -> None:
    extents = FreeRanges()
    extents.give(0, 128)
    extents.give(1000, 64)
    free = {*range(128), *range(1000, 1064)}
    out: list[tuple[int, int]] = []
    for take, n in steps:
        if take:
            start = extents.take(n)
            fits = any(free.issuperset(range(i, i + n)) for i in free)
            assert (start is not None) == fits
            if start is not None:
                assert free.issuperset(range(start, start + n))
                free -= set(range(start, start + n))
                out.append((start, n))
        elif out:
            start, n = out.pop(n % len(out))
            extents.give(start, n)
            free |= set(range(start, start + n))
        assert extents.free == len(free)
    for start, n in out:
        extents.give(start, n)
    assert extents.remove(0, 128)
    assert extents.remove(1000, 64)
