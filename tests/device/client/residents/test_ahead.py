"""The amount of memory sent along with a call for its result."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.device.client.residents.ahead import AHEAD, SMALLER, Expected

SIZES = st.integers(0, 2 * AHEAD)


def after(*sizes: int) -> int:
    expected = Expected()
    for nbytes in sizes:
        expected.saw(nbytes)
    return expected.nbytes


def test_nothing_comes_before_a_result_needed_some() -> None:
    assert after() == 0
    assert after(0, 0, 0) == 0


def test_the_next_result_may_be_as_large_as_the_last() -> None:
    assert after(100) == 100
    assert after(100, 200) == 200


def test_few_smaller_results_change_nothing() -> None:
    smaller = [10] * (SMALLER - 1)
    assert after(1000, *smaller) == 1000
    assert after(1000, *smaller, 1000, *smaller) == 1000  # alternating ones


def test_many_smaller_results_in_a_row_do() -> None:
    assert after(1000, *[10] * SMALLER) == 10
    assert after(1000, *[0] * SMALLER) == 0


def test_one_that_is_too_large_does_not_come_with_the_call() -> None:
    assert after(AHEAD) == AHEAD
    assert after(AHEAD + 1) == 0
    assert after(1000, AHEAD + 1) == 0
    assert after(AHEAD + 1, 10) == 10


@given(st.lists(SIZES))
def test_what_comes_is_the_size_of_one_of_the_last_results(sizes: list[int]) -> None:
    assert after(*sizes) in {0, *sizes[-SMALLER:]}
    assert 0 <= after(*sizes) <= AHEAD
