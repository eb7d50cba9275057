from typing import Any, Literal

import numpy as np
import pytest

from callboard.core.settings import converted, plain


@pytest.mark.parametrize(
    "given, want",
    [
        (np.int64(3), 3),
        (np.True_, True),
        (np.array(2.5), 2.5),
        (np.array([[1, 2], [3, 4]]), ((1, 2), (3, 4))),
        ([np.int8(1), (np.float32(0.5),)], (1, (0.5,))),
        ("word", "word"),
        (None, None),
    ],
)
def test_numpys_numbers_become_pythons(given: Any, want: Any) -> None:
    made = plain(given)
    assert made == want
    assert type(made) is type(want)


@pytest.mark.parametrize(
    "value, hint, says",
    [
        (None, int, "n = None: Expected `int`, got `None`"),
        ("x", int | None, "n = 'x': Expected `int | None`, got `str`"),
        (2, tuple[int, int], "n = 2: Expected `tuple`, got `int`"),
        ((1, 2, 3), tuple[int, int], "n = (1, 2, 3): Expected `tuple` of length 2, got 3"),
        ((1, "x"), tuple[int, ...], "n = (1, 'x'): Expected `int`, got `str` - at `n[1]`"),
        ("x", Literal["a", 1] | None, "n = 'x': use one of 'a', 1, None"),
    ],
)
def test_what_is_wrong_is_said_in_pythons_words(value: Any, hint: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        converted("n", value, hint)
    assert str(caught.value) == says


def test_what_is_right_is_given_its_type() -> None:
    assert converted("n", [np.int64(1), 2], tuple[int, int]) == (1, 2)
    assert converted("n", np.array([1, 2]), tuple[int, ...] | None) == (1, 2)
