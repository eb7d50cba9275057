"""Tensor data: JSON and raw bytes, against NumPy."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.letters import LETTERS

from callboard.serve import DATATYPES, BadModelResult, BadRequest, Tensor
from callboard.serve.encoding.payload import MAX_NESTING, from_binary, from_json
from callboard.serve.encoding.results import to_binary, to_json, to_json_text

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
NUMBERS = [name for name in DATATYPES if name not in ("BF16", "BYTES")]


@st.composite
def arrays(draw: st.DrawFn) -> tuple[Tensor, np.ndarray[Any, Any]]:
    name = draw(st.sampled_from([*NUMBERS, "BF16"]))
    dtype = DATATYPES[name]
    shape = draw(SHAPES)
    if name == "BF16":
        return Tensor("x", name, shape), draw(hnp.arrays(np.float16, shape)).astype(dtype)
    return Tensor("x", name, shape), draw(hnp.arrays(dtype, shape))


def test_numbers_of_64_bits_without_a_sign_beside_small_ones() -> None:
    x = Tensor("x", "UINT64", [2])
    assert from_json(x, [2], [0, 2**64 - 1]).tolist() == [0, 2**64 - 1]
    for data in ([0.5, 2**63], [0, 2**64], [-1, 2**63]):
        with pytest.raises(BadRequest, match=r"integers|out of the range"):
            from_json(x, [2], data)


@given(arrays())
def test_raw_bytes_come_back(case: tuple[Tensor, np.ndarray[Any, Any]]) -> None:
    tensor, array = case
    raw = to_binary(tensor, array)
    assert bytes(raw) == array.tobytes()
    found = from_binary(tensor, array.shape, memoryview(bytearray(raw)))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


@given(arrays(), st.booleans())
def test_json_comes_back(case: tuple[Tensor, np.ndarray[Any, Any]], nested: bool) -> None:
    tensor, array = case
    values = json.loads(msgspec.json.encode(to_json_text(tensor, array)))
    if nested and array.ndim:
        values = np.array(values, object).reshape(array.shape).tolist()
    found = from_json(tensor, array.shape, values)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert np.array_equal(found, array, equal_nan=array.dtype.kind not in "biu")


@given(hnp.arrays(object, SHAPES, elements=st.binary(max_size=5)))
def test_bytes_come_back(array: np.ndarray[Any, Any]) -> None:
    tensor = Tensor("x", "BYTES", array.shape)
    found = from_binary(tensor, array.shape, memoryview(to_binary(tensor, array)))
    assert found.shape == array.shape
    assert found.ravel().tolist() == array.ravel().tolist()


@given(hnp.arrays(object, SHAPES, elements=st.text(LETTERS, max_size=5)))
def test_texts_come_back(array: np.ndarray[Any, Any]) -> None:
    tensor = Tensor("x", "BYTES", array.shape)
    assert to_json(tensor, array) == array.ravel().tolist()
    found = from_json(tensor, array.shape, to_json(tensor, array))
    assert [each.decode() for each in found.ravel()] == array.ravel().tolist()


@pytest.mark.parametrize(
    "datatype, shape, data, says",
    [
        ("FP32", [2], [1.0], "has 1 values, but its shape [2] has 2"),
        ("FP32", [2, 2], [[1, 2, 3, 4]], "data is nested as [1, 4], but its shape is [2, 2]"),
        ("FP32", [2, 2], [[1, 2], [3]], "not a regular array"),
        ("FP32", [1], ["a"], "data must be numbers"),
        ("FP32", [1], [None], "data must be numbers"),
        ("FP32", [1], [1e39], "out of the range of FP32"),
        ("FP16", [1], [70000], "out of the range of FP16"),
        ("FP32", [1], None, "data must be a list"),
        ("FP32", [1], 1.0, "data must be a list"),
        ("UINT8", [2], [1, 256], "256 is out of the range of UINT8"),
        ("UINT8", [1], [-1], "-1 is out of the range of UINT8"),
        ("INT64", [1], [1.5], "data must be integers"),
        ("INT64", [1], [2**63], "9223372036854775808 is out of the range of INT64"),
        ("INT64", [1], [2**70], "data must be integers of 64 bits"),
        ("BOOL", [1], [1], "data must be true and false"),
        ("BYTES", [1], [1], "data of BYTES must be strings"),
        ("BYTES", [2], [["a"], ["b", "c"]], "not a regular array"),
        ("BYTES", [2], ["a", ["b"]], "data of BYTES must be strings"),
        ("BYTES", [1], eval("[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1)), "nested more than"),
    ],
)
def test_json_that_does_not_fit(datatype: str, shape: list[int], data: Any, says: str) -> None:
    with pytest.raises(BadRequest) as e:
        from_json(Tensor("x", datatype, shape), shape, data)
    assert says in str(e.value)
    assert "'x'" in str(e.value)


@pytest.mark.parametrize(
    "datatype, shape, raw, says",
    [
        ("FP32", [2], b"1234567", "has 7 bytes, but FP32 of shape [2] has 8"),
        ("BYTES", [1], b"\x01\x00\x00", "ends before its 1 elements"),
        ("BYTES", [1], b"\x05\x00\x00\x00abcd", "an element of 5 bytes is longer than the rest of the data"),
        ("BYTES", [1], b"\x01\x00\x00\x00ab", "has 1 bytes more than its 1 elements"),
        ("BYTES", [2], b"\x01\x00\x00\x00a", "ends before its 2 elements"),
    ],
)
def test_raw_bytes_that_do_not_fit(datatype: str, shape: list[int], raw: bytes, says: str) -> None:
    with pytest.raises(BadRequest) as e:
        from_binary(Tensor("x", datatype, shape), shape, memoryview(raw))
    assert says in str(e.value)


@given(st.binary(max_size=40), st.lists(st.integers(0, 5), max_size=3))
def test_any_bytes_are_read_or_refused(raw: bytes, shape: list[int]) -> None:
    try:
        found = from_binary(Tensor("x", "BYTES", shape), shape, memoryview(raw))
    except BadRequest:
        return
    assert bytes(to_binary(Tensor("x", "BYTES", shape), found)) == raw


def test_an_array_in_the_middle_of_a_body_is_aligned() -> None:
    body = bytearray(3) + bytearray(np.arange(4.0).tobytes())
    found = from_binary(Tensor("x", "FP64", [4]), [4], memoryview(body)[3:])
    assert found.flags.aligned
    assert found.flags.writeable
    assert found.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "datatype, value, says",
    [
        ("FP32", np.ones(2), "is float64, but declared as FP32: convert it"),
        ("FP32", np.ones((1, 2), "f4"), "has shape [1, 2], but is declared as [-1]"),
        ("BYTES", np.ones(2), "give bytes or str"),
        ("INT32", "text", "is <U4, but declared as INT32"),
    ],
)
def test_results_that_do_not_fit(datatype: str, value: Any, says: str) -> None:
    with pytest.raises(BadModelResult) as e:
        Tensor("y", datatype, [-1]).check_result(value)
    assert says in str(e.value)


def test_texts_are_str_for_the_model_and_bytes_on_the_wire() -> None:
    text = Tensor("t", "TEXT", [-1, 2])
    assert (text.datatype, repr(text)) == ("BYTES", "Tensor('t', 'TEXT', [-1, 2])")
    raw = to_binary(text, np.array([["ä", ""], ["b\0", "c"]], object))
    for array in (from_binary(text, [2, 2], memoryview(raw)), from_json(text, [2, 2], ["ä", "", "b\0", "c"])):
        assert array.tolist() == [["ä", ""], ["b\0", "c"]]
        assert to_json(text, array) == ["ä", "", "b\0", "c"]
    with pytest.raises(BadRequest, match=r"input 't': element \[1, 0\] is not UTF-8"):
        from_binary(text, [2, 2], memoryview(b"\0\0\0\0" * 2 + b"\1\0\0\0\xff" + b"\0\0\0\0"))


@pytest.mark.parametrize("datatype", ["TEXT", "BYTES"])
def test_results_of_texts_are_whole(datatype: str) -> None:
    tensor = Tensor("y", datatype, [2])
    strings = np.array(["a\0", "b"], np.dtypes.StringDType())
    for value in (["a\0", "b"], ("a\0", b"b"), strings, np.array(["a\0", "b"], object)):
        assert to_json(tensor, tensor.check_result(value)) == ["a\0", "b"]
    for wrong in (["a", None], [1, 2], np.array(["a", 1.5], object)):
        with pytest.raises(BadModelResult, match=r"output 'y': element \[\d\] is .* give bytes or str"):
            tensor.check_result(wrong)


def test_a_result_that_is_no_text() -> None:
    with pytest.raises(BadModelResult, match=r"output 'y': element \[1\] is not UTF-8"):
        Tensor("y", "TEXT", [-1]).check_result([b"a", b"\xff"])


def test_an_element_that_is_no_bytes() -> None:
    with pytest.raises(BadModelResult, match="an element of BYTES is int: give bytes or str"):
        to_binary(Tensor("y", "BYTES", [1]), np.array([5], object))


def test_bytes_that_are_no_text_need_binary_data() -> None:
    with pytest.raises(BadRequest, match="not UTF-8 text: ask for binary_data"):
        to_json(Tensor("y", "BYTES", [1]), np.array([b"\xff"], object))


@pytest.mark.parametrize("datatype, shape, says", [("FP8", [1], "datatype is 'FP8'"), ("FP32", [-2], "or -1 for any")])
def test_a_tensor_is_checked(datatype: str, shape: list[int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Tensor("x", datatype, shape)
