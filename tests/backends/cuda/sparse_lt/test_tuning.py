"""Choice of the algorithm by measured times; no GPU is needed."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from callboard.backends.cuda.sparse_lt.tuning import FINALISTS, ROUNDS, choose


def taking(times: Mapping[int, float], noise: Callable[[int], float] = lambda call: 1.0) -> Callable[[int, int], float]:
    """What measures algorithms that take these times, with a factor for each call."""
    calls = itertools.count()
    return lambda number, runs: times[number] * noise(next(calls))


@pytest.mark.parametrize(
    "times, taken",
    [
        ({0: 1.0, 1: 0.5, 2: 0.8}, 1),
        ({0: 1.0, 1: 0.99, 2: 2.0}, 0),  # no more than measuring is wrong by
        ({0: 1.0, 1: 0.97, 2: 0.96}, 2),
        ({2: 1.0, 5: 0.9}, 5),  # the default was refused
        ({0: 3.0}, 0),
        ({}, 0),
    ],
)
def test_the_fastest_by_a_margin(times: Mapping[int, float], taken: int) -> None:
    assert choose(list(times), taking(times)) == taken


@pytest.mark.parametrize("shift", range(7))
def test_slow_moments_take_nothing_from_the_fastest(shift: int) -> None:
    times = {0: 1.0, 1: 0.9, 2: 0.7, 3: 0.75}
    assert choose(list(times), taking(times, lambda call: 1.25 if (call + shift) % 7 in (0, 3) else 1.0)) == 2


def test_a_device_that_slows_down_slows_all_alike() -> None:
    """Finalists take turns, so that what comes later is not worse for it."""
    times = {0: 1.0, 1: 0.95, 2: 0.9}
    assert choose(list(times), taking(times, lambda call: 1 + call / 50)) == 2


def test_few_are_timed_again() -> None:
    times = {number: 1 + number / 100 for number in range(12)} | {0: 9.0, 20: 5.0}
    asked: Counter[int] = Counter()

    def query_size(number: int, runs: int) -> float:
        asked[number] += 1
        return times[number]

    assert choose(list(times), query_size) == 1
    again = [number for number, count in asked.items() if count > 1]
    assert again == [0, *range(1, 1 + FINALISTS)]  # the default is among them, however slow it is
    assert asked[1] == 1 + ROUNDS
