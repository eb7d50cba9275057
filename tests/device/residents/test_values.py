"""Values on their way: every kind keeps its type, and what does not travel is named."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import uuid
from typing import Any, ClassVar, NamedTuple

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.letters import LETTERS

from callboard.device.protocol.residents.classes import class_named
from callboard.device.protocol.residents.values import INLINE, Packer, Unpacker, Unsendable, decode, encode


class Colour(enum.Enum):
    RED = 1
    PAIR = (1, "x")


class Level(enum.IntEnum):
    LOW = 1


class Point(msgspec.Struct, frozen=True, kw_only=True):
    x: float
    extra: Any = None


@dataclasses.dataclass
class Record:
    name: str
    inner: "Record | None" = None
    derived: int = dataclasses.field(init=False, default=7)


class Pair(NamedTuple):
    left: int
    right: Any


Old = collections.namedtuple("Old", "a b")

AMSTERDAM = dt.timezone(dt.timedelta(minutes=19, seconds=32))  # until 1937


@dataclasses.dataclass
class Mapped(dict[str, int]):
    """As model outputs of transformers are."""

    field: int


class Shared:
    """Staged memory of a test."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = bytearray(nbytes)

    def array(self, dtype: "np.dtype[Any]", shape: tuple[int, ...], offset: int) -> "np.ndarray[Any, Any]":
        return np.ndarray(shape, dtype, self.bytes, offset)


def packer() -> Packer:
    return Packer(lambda value: isinstance(value, Ref), with_code=True, cure="cure")


class Ref:
    """Stands for a device array."""


def travel(value: Any, refs: list[Any] | None = None) -> Any:
    one = packer()
    packed = one.pack(value)
    memory = Shared(one.nbytes)
    one.stage(memory)
    return Unpacker(memory, refs or [], class_named).unpack(decode(encode(packed, "test")))


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


PLAIN = [
    *(None, True, 0, -(2**63), 2**64 - 1, 1.5, math.inf, "text", "", b"bytes", bytearray(b"more"), 1 + 2j),
    *([], [1, 2.5, None], (), (1, (2.0,)), {}, {"a": 1, (1, "k"): [True]}, set(), {1, 2}, frozenset({"x"})),
    *(Colour.RED, Colour.PAIR, Level.LOW, Point(x=1.0, extra=(1,)), Record("a", Record("b")), Pair(1, Colour.RED)),
    *(Old(1, 2), msgspec.UNSET, uuid.UUID(int=5), decimal.Decimal("1.20")),
    *(dt.datetime(2024, 5, 6, 7, 8, 9, 10, dt.UTC), dt.date(2024, 1, 2), dt.time(3, 4, 5)),
    *(dt.datetime(1937, 1, 1, tzinfo=AMSTERDAM), dt.time(3, 4, tzinfo=AMSTERDAM)),
    *(dt.timedelta(days=1, microseconds=3), np.float32(1.5), np.int64(-3), np.bool_(True), np.datetime64("2024-01-01")),
    *("ä" * INLINE, b"x" * (2 * INLINE), bytearray(2 * INLINE), ["y" * INLINE, b"z" * (INLINE + 1)]),
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda v: f"{type(v).__name__}-{str(v)[:12]}")
def test_a_value_keeps_its_type(value: Any) -> None:
    assert same(travel(value), value)
    assert same(travel([value, {"k": (value,)}]), [value, {"k": (value,)}])


ARRAYS = [
    *(np.arange(10), np.zeros((300, 400)), np.ones((3, 0, 2)), np.array(5), np.arange(24).reshape(2, 3, 4).T),
    *(np.asfortranarray(np.arange(50_000.0).reshape(100, 500)), np.arange(100_000)[::-3], np.array(["ab", "c"])),
    *(np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2], ml_dtypes.float8_e4m3fn), np.arange(3, dtype=">i4")),
    *(np.array(["2020-01-01"], "M8[D]"), np.zeros(3, [("a", "<f4"), ("b", "S3", (2,))]), np.array([True, False])),
    np.array([b"ab"], "V2"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}-{a.shape}")
def test_an_array_keeps_dtype_shape_and_contents_and_is_writable(array: "np.ndarray[Any, Any]") -> None:
    back = travel([array, 1])[0]
    assert same(back, np.ascontiguousarray(array).reshape(array.shape))
    assert back.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a\0", "", "ümlaut", b"\xff\0", b""], object),
        np.array([["x"] * 3, [b"y"] * 3], object).T,
        np.array("alone", object),
        np.empty((3, 0), object),
        np.array(["ä" * 300] * 1000 + [b"\0" * 300] * 100, object).reshape(10, -1),
    ],
    ids=lambda a: str(a.shape),
)
def test_an_array_of_texts_and_bytes_keeps_shape_and_elements(array: "np.ndarray[Any, Any]") -> None:
    back = travel({"k": [array]})["k"][0]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert [(type(each), each) for each in back.ravel()] == [(type(each), each) for each in array.ravel()]


def test_models_of_pydantic_travel() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Inner(pydantic.BaseModel):  # type: ignore[misc, name-defined, unused-ignore]
        model_config: ClassVar[Any] = {"extra": "allow"}
        x: Any = pydantic.Field(alias="X")
        _seen: int = pydantic.PrivateAttr(3)

    value = Inner(X=(1, b"a"), more=[2])
    back = travel([value])[0]
    assert back == value
    assert (type(back), back.x, back.more, back._seen) == (Inner, (1, b"a"), [2], 3)
    with pytest.raises(Unsendable) as caught:
        packer().pack([Inner(X=object())])
    assert caught.value.path == "[0]['x']"


def test_many_texts_travel_beside_the_message() -> None:
    one = packer()
    assert len(encode(one.pack(np.array(["x" * 10_000] * 4_000, object)), "test")) < 50_000
    assert one.nbytes >= 40_000_000


def test_many_small_arrays_do_not_swell_the_message() -> None:
    arrays = [np.full(5_000, i, np.float64) for i in range(60)]
    one = packer()
    body = encode(one.pack(arrays), "test")
    assert len(body) < 1_200_000
    assert one.nbytes > 1_000_000
    assert same(travel(arrays), arrays)


def test_refs_are_replaced_by_position() -> None:
    assert travel([Ref(), {"k": Ref()}], ["first", "second"]) == ["first", {"k": "second"}]


@pytest.mark.parametrize(
    "value, path, why",
    [
        ([1, {"k": Point(x=1, extra=(Record,))}], "[1]['k'].extra[0]", "builtins.type cannot travel; cure"),
        ({"a": Record("x", object())}, "['a'].inner", "builtins.object cannot travel"),  # type: ignore[arg-type]
        ((1, 1 << 64), "[1]", "does not fit 64 bits"),
        ([np.array([None])], "[0]", "array of Python objects cannot travel, unless all are str or bytes"),
        (np.array([["a"], [1]], object), "", "(element [1, 0] is int)"),
        ([np.array(["caf\udce9"], object)], "[0]", "lone surrogates, which no encoding carries"),
        ([np.ma.array([1])], "[0]", "numpy.ma.MaskedArray cannot travel"),
        ([np.zeros(2, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [4, 0]})], "[0]", "out of order"),
        (collections.OrderedDict(a=1), "", "collections.OrderedDict cannot travel"),
        ((Mapped(1),), "[0]", "Mapped is a dataclass that derives from a built-in class"),
        (lambda: 1, "", "builtins.function cannot travel"),
        ({"name": ["caf\udce9.txt"]}, "['name'][0]", "lone surrogates, which no encoding carries"),
        ("caf\udce9" * INLINE, "", "pass bytes, as os.fsencode makes them"),
    ],
)
def test_what_cannot_travel_is_named(value: Any, path: str, why: str) -> None:
    with pytest.raises(Unsendable) as caught:
        packer().pack(value)
    assert caught.value.path == path
    assert why in caught.value.why


def test_a_message_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the arguments: 4\d,\d+,\d+ bytes without arrays"):
        encode(packer().pack(["x" * 10_000] * 4_000), "the arguments")


def test_a_name_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(TypeError, match=r"the arguments: 'caf\\udce9': the text has lone surrogates"):
        encode(["method", [], {"caf\udce9": 1}], "the arguments")


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(LETTERS) | st.binary()
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(LETTERS) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(trees)
def test_any_tree_of_plain_values_travels(value: Any) -> None:
    assert same(travel(value), value)
