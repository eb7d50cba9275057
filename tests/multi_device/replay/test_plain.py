"""Arguments and results of any kind have a description; arrays with the same bytes are compared as what they are."""

import hashlib
from typing import Any

import numpy as np
import pytest

from callboard.multi_device.replay.entries import DeviceOp, decode, encode
from callboard.multi_device.replay.plain import TOLERANCES, Comparison, plain


class Hostile(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def cyclic() -> list[Any]:
    loop: list[Any] = []
    loop += [loop, {"again": loop}, loop]
    return loop


@pytest.mark.parametrize(
    "value, expected",
    [
        ("name-\udcff", "name-\\udcff"),
        ({"\ud800": 1}, {"\\ud800": 1}),
        (ValueError("\udcff"), {"error": "builtins:ValueError", "text": "\\udcff"}),
        (Hostile(), {"error": f"{__name__}:Hostile", "text": f"{__name__}:Hostile"}),
        ({Hostile}, [{"class": "type"}]),
        (cyclic(), ["builtins:list", {"again": "builtins:list"}, "builtins:list"]),
    ],
)
def test_a_value_without_a_plain_form_is_described(value: Any, expected: Any) -> None:
    found = plain(value, str, lambda array, digest: None)
    assert found == expected
    encode(DeviceOp("devices/1", 1, "op", {"x": found}, []))


def test_a_set_of_objects_without_a_text_and_a_view_with_gaps() -> None:
    arrays: list[Any] = []
    kept: Any = lambda array, digest: arrays.append(array)
    assert plain({Hostile()}, str, kept)[0]["error"] == f"{__name__}:Hostile"
    view = memoryview(np.arange(12, dtype="u1").reshape(3, 4))[::2]
    entry = decode(encode(DeviceOp("devices/1", 1, "op", {"x": plain(view, str, kept)}, [])))
    assert isinstance(entry, DeviceOp)
    assert entry.arguments["x"]["shape"] == [8]
    assert arrays[0].tolist() == [0, 1, 2, 3, 8, 9, 10, 11]


def test_arrays_of_several_dtypes_with_the_same_bytes() -> None:
    live = {}
    digest = hashlib.blake2b(bytes(16), digest_size=16).hexdigest()
    contents = {digest: ("<f4", bytes(16))}  # recorded once, as four f32

    def mark(array: Any) -> Any:
        return plain(array, str, lambda array, digest: live.update({digest: array}))

    comparison = Comparison(contents, TOLERANCES, exact=False)
    found = comparison.difference("x", mark(np.zeros(2)), mark(np.array([0.0, 1e-30])), live)
    assert found is not None
    assert "max error 1e-30" in found.got
