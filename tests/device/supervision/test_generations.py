"""Generations never go back, whatever the clock does."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.device.supervision.generations import Ordinals, next_generation


@given(st.lists(st.floats(0, 4e9, allow_nan=False), min_size=1, max_size=50))
def test_they_only_grow_under_any_clock(times: list[float]) -> None:
    made = [next_generation(lambda t=t: t) for t in times]
    assert made == sorted(set(made))
    assert all(g < 1 << 63 for g in made)


def test_a_later_process_is_higher_by_the_clock() -> None:
    first = next_generation(lambda: 4.1e9)
    assert next_generation(lambda: 4.2e9) >> 20 == 4_200_000_000_000 > first >> 20


def test_ordinals_are_small_and_stable() -> None:
    ordinals = Ordinals()
    assert [ordinals.of(g) for g in (50, 70, 50, 90, 70)] == [1, 2, 1, 3, 2]
