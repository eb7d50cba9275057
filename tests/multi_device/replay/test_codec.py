"""Values come back from a journal unchanged, for arrays of all kinds, one by one and in lists."""

from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

import callboard as cb
from callboard.multi_device.replay.codec import ALIKE, SMALL, Codec, joined
from callboard.multi_device.replay.entries import Input, decode, encode, encode_input

LISTS: list[list[Any]] = [
    [np.float32([1, 2]), np.float32([3, 4])],
    [np.array(1.5), np.array(2.5)],
    [np.zeros((0, 3)), np.zeros((0, 3))],
    [np.arange(6).reshape(2, 3).T, np.arange(6).reshape(3, 2)],
    [np.ones(3, ml_dtypes.bfloat16)] * 3,
    [np.ones(2, np.complex128), np.ones(2, np.complex128) * 1j],
    [np.ones(2), np.ones(3)],
    [np.ones(2), np.ones(2, np.float32)],
    [np.ones(2), 3, "text"],
    [np.ones(SMALL, np.uint16), np.ones(SMALL, np.uint16)],
    [np.float64(3.0), np.ones(2)],
    [],
    [[np.ones(2)], [np.ones(2)]],
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return (
            type(other) is np.ndarray
            and (one.dtype, one.shape) == (other.dtype, other.shape)
            and bool((one == other).all())
        )
    return bool(one == other)


@pytest.mark.parametrize("number", range(len(LISTS)))
def test_lists_come_back(number: int) -> None:
    given, codec = LISTS[number], Codec()
    data = codec.encode(given)
    for found in (codec.decode("builtins:list", data), codec.decode_as(Any, data)):
        assert same(given, found)
        for array in found:
            if isinstance(array, np.ndarray):
                array[...] = 0  # its own, and to be written
    assert codec.encode(given) == data
    assert codec.output(given) == codec.output(given)


@pytest.mark.parametrize("rows", [1, 4, 16, 300, 70_000])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_batch_in_parts_is_the_same_entry(rows: int, dtype: type) -> None:
    batch, codec = [np.full(rows, n, dtype) for n in range(3)], Codec()
    message = codec.encode(batch)
    # What an encoder of the whole makes of it.
    content = b"".join(array.tobytes() for array in batch)
    inner = msgspec.msgpack.encode((np.dtype(dtype).str, (3, rows), content))
    parts = codec.parts(batch)
    if parts is None:  # each is large
        assert rows * np.dtype(dtype).itemsize > SMALL
        return
    assert parts[0] == len(message)
    assert message == joined(parts) == msgspec.msgpack.encode(msgspec.msgpack.Ext(ALIKE, inner))
    entry = Input("batches/b", 7, "batch", "builtins:list", message, 1.5, 0)
    record = encode_input("batches/b", 7, "batch", "builtins:list", parts, 1.5, 0)
    assert record == encode(entry)
    assert decode(record) == entry


@pytest.mark.parametrize(
    "batch",
    [
        [np.arange(12.0).reshape(3, 4).T] * 3,
        [np.arange(12.0)[::2], np.arange(6.0)],
        [np.arange(4).astype("M8[s]")] * 2,
        [np.array(7.0, "f4")] * 4,
        [np.zeros((0, 3), "i2")] * 2,
    ],
    ids=["transposed", "strided", "dates", "numbers", "empty"],
)
def test_arrays_that_show_no_bytes_are_copied_first(batch: list[Any]) -> None:
    codec = Codec()
    parts = codec.parts(batch)
    assert parts is not None
    assert joined(parts)[-parts[0] :] == codec.encode(batch)
    assert len(joined(parts)) == parts[0]
    found = decode(encode_input("batches/b", 7, "batch", "builtins:list", parts, 1.5, 0))
    assert isinstance(found, Input)
    for given, got in zip(batch, codec.decode("builtins:list", found.message), strict=True):
        np.testing.assert_array_equal(got, given)


def test_arrays_that_are_alike_are_one_piece() -> None:
    codec = Codec()
    alike = codec.encode([np.ones(100, np.float32)] * 32)
    assert alike[0] in (0xC7, 0xC8, 0xC9)  # an extension
    assert ALIKE in alike[:6]
    assert len(alike) < 32 * 400 + 40
    assert "array([1., 1.]" in codec.show("builtins:list", codec.encode([np.ones(2)] * 2))


class Point(msgspec.Struct):
    x: float


class Tagged(cb.Msg[Any], tag="tests.tagged"):
    amount: int
    at: Point
    rows: np.ndarray[Any, Any]


class Add(cb.Msg[Any]):
    amount: int


@pytest.mark.parametrize("amount", [3, "3", None, 2.5, ["a"]])
def test_a_message_of_other_types_than_it_declares_comes_back_as_it_was_sent(amount: Any) -> None:
    codec = Codec()
    for sent in (Add(amount=amount), Tagged(amount=amount, at=Point(1.5), rows=np.arange(3))):
        found = codec.decode_as(type(sent), codec.encode(sent))
        assert type(found) is type(sent)
        assert (found.amount, type(found.amount)) == (amount, type(amount))
        if isinstance(found, Tagged):
            assert found.at == Point(1.5)
            np.testing.assert_array_equal(found.rows, np.arange(3))


def test_bytes_of_another_class_are_refused() -> None:
    codec = Codec()
    values: list[Any] = [7, [], "text", {"amount": 1}]
    for value in values:
        with pytest.raises(cb.NotRecordable, match="is no Add"):
            codec.decode_as(Add, codec.encode(value))


def test_what_is_too_large_is_told_by_its_digest() -> None:
    codec = Codec(max_array_bytes=100)
    with pytest.raises(cb.NotRecordable, match="above max_array_bytes"):
        codec.decode("builtins:list", codec.encode([np.ones(20)] * 2))
    assert same(codec.decode("builtins:list", codec.encode([np.ones(12)] * 2)), [np.ones(12)] * 2)
