import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import callboard.kernel
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.op import OPS, Op, info_of
from callboard.core.operand import (
    HostIn,
    HostOut,
    In,
    InOut,
    Operand,
    Out,
    Placeholder,
    Role,
    Scalar,
    StructOperand,
    operands_of,
    parts_of,
)
from callboard.core.opinfo import OpField, Parts, read_signature
from callboard.kernel.dnn.graphs.message import GraphOutput
from callboard.kernel.dnn.graphs.nodes import KINDS, GraphNode
from callboard.kernel.dnn.rnn import RnnParams
from callboard.kernel.rng.fill import Fill

for module in pkgutil.walk_packages(callboard.kernel.__path__, "callboard.kernel."):
    importlib.import_module(module.name)  # registers its messages
MESSAGES = [pytest.param(cls, id=tag) for tag, cls in sorted(OPS.items()) if cls.__module__.startswith("callboard.")]

AnyOp = Op[Any, Any]


class Everything(Op["ToyActor", None], tag="toy.everything"):
    """Every kind of field."""

    returns = ()

    a: In
    many: tuple[In, ...]
    host: HostIn
    sink: HostOut
    state: InOut
    out: Out | None = None
    extra: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar | None = None
    flag: bool = False
    count: int = 3
    rate: float = 0.5
    mode: Literal["fast", "exact"] = "fast"
    level: Literal[1, 2] = 1
    axes: tuple[int, ...] = ()
    limit: int | None = None

    def infer(self) -> dict[str, Layout]:
        return {"out": self.a.layout}


del OPS["toy.everything"]  # other modules look at all messages that there are

layouts = st.builds(
    lambda dtype, axes: layout_of(dtype, tuple(n for n, _ in axes), tuple(s for _, s in axes)),
    st.sampled_from(list(DTYPES.values())),
    st.lists(st.tuples(st.integers(0, 5), st.integers(-40, 40)), max_size=4),
)
operands = st.builds(Placeholder, layouts)
numbers = (
    st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.builds(lambda d: Placeholder(layout_of(d, ())), st.sampled_from(list(DTYPES.values())))
)
wholes = st.integers(-(2**63), 2**64 - 1)
by_value = st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False) | wholes
sizes = st.integers(-(2**63), 2**63 - 1)  # what MessagePack carries
st.register_type_strategy(int, sizes)
extents = st.integers(1, 2**31 - 1)
cells = st.sampled_from(["rnn_relu", "rnn_tanh", "lstm", "gru"])
directions = st.sampled_from(["unidirectional", "bidirectional"])
st.register_type_strategy(
    RnnParams, st.builds(RnnParams, cells, extents, extents, extents, directions, bias=st.booleans())
)
st.register_type_strategy(
    GraphNode,
    st.builds(
        GraphNode, st.sampled_from(sorted(KINDS)), st.tuples(sizes, sizes), st.floats(allow_nan=False), groups=extents
    ),
)
st.register_type_strategy(GraphOutput, st.builds(GraphOutput, sizes, st.sampled_from(sorted(DTYPES))))


def values(field: OpField, length: int) -> st.SearchStrategy[Any]:
    one = operands
    if field.role is Role.SCALAR:
        one = numbers if Operand in field.takes else by_value if float in field.takes else wholes
    if field.structs:
        one = st.one_of([structs(cls) for cls in field.structs])
    one = st.tuples(*[one] * length) if field.many else one
    return st.none() | one if field.optional else one


def structs(cls: type[StructOperand]) -> st.SearchStrategy[Any]:
    parts = parts_of(cls)
    settings = st.from_type(parts.types).map(lambda found: dict(zip(parts.settings, found, strict=True)))
    arrays = st.fixed_dictionaries({name: operands for name, _ in parts.operands})
    return st.builds(lambda a, s: cls(**a, **s), arrays, settings)


def fills(cls: type[Fill]) -> st.SearchStrategy[AnyOp]:
    """Fills with random numbers: integers of 64 bits and numbers that are never arrays, kinds by name."""
    fields: dict[str, st.SearchStrategy[Any]] = {"kind": st.sampled_from(cls.kinds)}
    for field in info_of(cls).dynamic:
        if field.name == "position":
            fields[field.name] = st.integers(0, 2**63 - 1)
        elif float in field.takes or field.role is not Role.SCALAR:  # the others belong together, or are seeds
            fields[field.name] = st.floats(allow_nan=False) if field.role is Role.SCALAR else operands
    return st.fixed_dictionaries(fields).map(lambda found: cls(**found))


@st.composite
def messages(draw: st.DrawFn, cls: type[AnyOp]) -> AnyOp:
    if issubclass(cls, Fill):
        return draw(fills(cls))
    info = info_of(cls)
    length = draw(st.integers(0, 4))  # tuples of one message belong together
    dynamic = {field.name: draw(values(field, length)) for field in info.dynamic}
    statics = {name: draw(st.from_type(info._hints[name])) for name in info.statics}
    try:
        return cls(**dynamic, **statics)
    except ShapeError:  # fields that may not stand together
        reject()


def leaves(op: AnyOp) -> Iterator[Any]:
    """Operands and numbers, in order of declaration; None for fields left out."""
    for field in info_of(type(op)).dynamic:
        value = getattr(op, field.name)
        if isinstance(value, StructOperand):
            yield from operands_of(value).values()
        else:
            yield from value if isinstance(value, tuple) else [value]


def check_round_trip(op: AnyOp) -> None:
    info = info_of(type(op))
    parts = info.split(op)
    tag, statics, skeleton = read_signature(parts.signature)
    again = info.join(type(op), statics, skeleton)
    assert tag == info.tag
    for name in info.statics:
        assert repr(getattr(again, name)) == repr(
            getattr(op, name)
        )  # as NaN is no number's equal, also inside of others
        assert type(getattr(again, name)) is type(getattr(op, name))
    for before, after in zip(leaves(op), leaves(again), strict=True):
        if isinstance(before, Operand):
            assert isinstance(after, Placeholder)
            assert after.layout == before.layout
        else:
            assert type(after) is type(before)
            assert not after
    assert info.split(again).signature == parts.signature
    assert parts.operands == [v for v in leaves(op) if isinstance(v, Operand)]
    wanted: list[float] = []
    for v in leaves(op):
        wanted += [v] if isinstance(v, int | float) else [v.real, v.imag] if isinstance(v, complex) else []
    assert parts.numbers == wanted


@pytest.mark.parametrize("cls", MESSAGES)
# Of each message: there are many of one kind. Some refuse most of what is drawn, such as a share above 1.
@settings(max_examples=8, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_every_message_comes_back_from_its_signature(cls: type[AnyOp], data: st.DataObject) -> None:
    check_round_trip(data.draw(messages(cls)))


@given(messages(Everything))
def test_every_kind_of_field_comes_back(op: AnyOp) -> None:
    check_round_trip(op)


@given(messages(Everything), messages(Everything))
def test_signatures_are_equal_where_all_but_the_numbers_is(one: Any, other: Any) -> None:
    def fixed(op: Any) -> list[Any]:
        kinds = [v.layout.wire if isinstance(v, Operand) else type(v) for v in leaves(op)]
        return [*kinds, len(op.many), *(getattr(op, name) for name in info_of(Everything).statics)]

    info = info_of(Everything)
    assert (info.split(one).signature == info.split(other).signature) == (fixed(one) == fixed(other))


@pytest.mark.parametrize("cls", MESSAGES)
def test_every_message_says_how_it_is_answered(cls: type[AnyOp]) -> None:
    info = info_of(cls)
    writes = {field.name for field in info.dynamic if field.role in (Role.OUT, Role.INOUT)}
    reads = {field.name for field in info.dynamic if field.role is not Role.OUT}
    reads |= {f"{f.name}.{part}" for f in info.dynamic for c in f.structs for part, _ in parts_of(c).operands}
    assert set(cls.returns) <= writes
    assert not cls.value or len(cls.returns) == 1
    assert {pair for pair in cls.overlaps if pair[0] not in writes or pair[1] not in reads} == set()
    assert cls.infer is not Op.infer
    assert cls.__doc__ != Op.__doc__


# -- fields ------------------------------------------------------------------------------------------------------------


def test_roles_and_order() -> None:
    info = info_of(Everything)
    assert (info.tag, info.library) == ("toy.everything", "toy")
    assert [(f.name, f.role.value, f.optional, f.many) for f in info.dynamic] == [
        ("a", "in", False, False),
        ("many", "in", False, True),
        ("host", "host_in", False, False),
        ("sink", "host_out", False, False),
        ("state", "inout", False, False),
        ("out", "out", True, False),
        ("extra", "in", True, False),
        ("alpha", "scalar", False, False),
        ("beta", "scalar", True, False),
    ]
    assert info.statics == ("flag", "count", "rate", "mode", "level", "axes", "limit")


A = Placeholder(layout_of(DTYPES["f32"], (2, 3)))


def make(**changes: Any) -> Any:
    return Everything(**{"a": A, "many": (A,), "host": A, "sink": A, "state": A, **changes})


@pytest.mark.parametrize(
    "given, want",
    [
        *((1, 1.0), (np.float32(0.5), 0.5), (np.float64(2), 2.0), (np.int8(-3), -3.0), (True, 1.0), (np.True_, 1.0)),
        *((1j, 1j), (np.complex64(1 + 2j), 1 + 2j)),
    ],
)
def test_numbers_become_floats_and_complexes(given: Any, want: Any) -> None:
    for field in ("alpha", "beta"):
        value = getattr(make(**{field: given}), field)
        assert value == want
        assert type(value) is type(want)


def test_settings_are_normalised() -> None:
    op = make(count=np.int64(4), flag=np.True_, rate=2, axes=[1, 0], many=[A, A])
    assert (op.count, op.flag, op.rate, op.axes, op.many) == (4, True, 2.0, (1, 0), (A, A))
    assert [type(v) for v in (op.count, op.flag, op.rate, op.axes, op.many)] == [int, bool, float, tuple, tuple]
    for axes in ((np.int64(1), 0), [np.int32(1), np.uint8(0)], np.array([1, 0])):
        assert make(axes=axes).axes == (1, 0)


@pytest.mark.parametrize(
    "field, value, says",
    [
        ("a", np.zeros(3), "toy.everything: a is ndarray; pass a GpuRef (dev.put(array) makes one)"),
        ("a", None, "toy.everything: a is NoneType; pass a GpuRef"),
        ("a", 1.0, "a is float; pass a GpuRef"),
        ("extra", "x", "extra is str; pass a GpuRef"),
        ("many", A, "many is Placeholder; pass a tuple of GpuRefs"),
        ("many", (A, 1), "many[1] is int; pass a GpuRef"),
        ("alpha", "x", "alpha is str; pass a number or a 0-d GpuRef"),
        ("alpha", None, "alpha is NoneType; pass a number"),
        ("count", "x", "count = 'x': Expected `int`, got `str`"),
        ("count", 1.5, "count = 1.5: Expected `int`, got `float`"),
        ("count", True, "count = True: Expected `int`, got `bool`"),
        ("mode", "slow", "mode = 'slow': use one of 'fast', 'exact'"),
        ("level", 3, "level = 3: use one of 1, 2"),
        ("axes", (1, "x"), "axes = (1, 'x'): Expected `int`, got `str` - at `axes[1]`"),
        ("axes", 1, "axes = 1: Expected `tuple`, got `int`"),
        ("axes", np.array([0.5]), "axes = array([0.5]): Expected `int`, got `float`"),
        ("count", None, "count = None: Expected `int`, got `None`"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any, says: str) -> None:
    for _ in range(2):  # the second time, types that were right before are remembered
        with pytest.raises(TypeError) as caught:
            make(**{field: value})
        assert says in str(caught.value)
        make(level=1, count=1)


def test_an_integer_that_cannot_travel_is_named() -> None:
    for _ in range(2):  # the second time, types that were right before are remembered
        for fields in ({"count": 2**64}, {"axes": (0, -(2**63) - 1)}):
            ((name, value),) = fields.items()
            with pytest.raises(ShapeError) as caught:
                info_of(Everything).split(make(**fields))
            assert f"toy.everything: {name} = {value}: an integer has at most 64 bits" in str(caught.value)
        make(count=2**64 - 1, axes=(0, -(2**63)))


class Level(Op["ToyActor", None], tag="toy.level"):
    """Its types are the same for right and wrong values."""

    returns = ()

    a: In
    level: Literal[1, 2] = 1

    def infer(self) -> dict[str, Layout]:
        return {}


del OPS["toy.level"]


def test_a_right_value_does_not_vouch_for_another_of_its_type() -> None:
    Level(a=A, level=1)
    with pytest.raises(TypeError, match="level = 3"):
        Level(a=A, level=3)  # type: ignore[arg-type]


# -- what comes from elsewhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "signature",
    [b"", b"\xc1", msgspec.msgpack.encode(3), msgspec.msgpack.encode(["a", []]), msgspec.msgpack.encode([1, [], []])],
)
def test_a_broken_signature_is_refused(signature: bytes) -> None:
    with pytest.raises(ValueError, match="broken signature"):
        read_signature(signature)


SKELETON = read_signature(info_of(Everything).split(make()).signature)[2]


@pytest.mark.parametrize(
    "at, mark, says",
    [
        (0, None, "a: None is not an operand"),
        (0, 0, "a: 0 is not an operand"),
        (0, [99, [1], []], "unknown dtype code 99"),
        (0, [[2, [1], []]], "a: [[2, [1], []]] is not an operand"),
        (0, [2, [-1], []], "shape [-1], strides []: not those of an array"),
        (0, [2, ["x"], []], "not those of an array"),
        (0, [2, [3, 4], [1]], "shape [3, 4] has 2 axes, strides [1]"),
        (1, [2, [1], []], "many: 2 is not an operand"),
        (1, [[2, [1]]], "many: [2, [1]] is not an operand"),
        (1, [2, 3], "many: 2 is not an operand"),
        (7, 2, "alpha: 2 is not an operand"),
        (7, None, "alpha: None is not an operand"),
        (7, "x", "alpha: 'x' is not an operand"),
    ],
)
def test_a_wrong_skeleton_is_refused(at: int, mark: Any, says: str) -> None:
    info = info_of(Everything)
    statics = read_signature(info.split(make()).signature)[1]
    with pytest.raises(ValueError) as caught:
        info.join(Everything, statics, [*SKELETON[:at], mark, *SKELETON[at + 1 :]])
    assert says in str(caught.value)


def test_wrong_numbers_of_parts_are_refused() -> None:
    info = info_of(Everything)
    statics = read_signature(info.split(make()).signature)[1]
    with pytest.raises(ValueError, match="operands and scalars, 9 expected"):
        info.join(Everything, statics, SKELETON[:-1])
    with pytest.raises(ValueError, match=r"toy\.everything"):
        info.join(Everything, statics[:-1], SKELETON)
    with pytest.raises(ValueError, match=r"toy\.everything"):
        info.join(Everything, ["x", *statics[1:]], SKELETON)


def test_parts_of_a_message_without_fields() -> None:
    class Nothing(Op["ToyActor", None], tag="toy.nothing"):
        returns = ()

        def infer(self) -> dict[str, Layout]:
            return {}

    del OPS["toy.nothing"]
    parts = info_of(Nothing).split(Nothing())
    assert parts == Parts(msgspec.msgpack.encode(["toy.nothing", [], []]), [], [])
    assert info_of(Nothing).join(Nothing, [], []) == Nothing()


class Chosen(Op["ToyActor", None], tag="toy.chosen"):
    x: In
    norm: Literal["one", "two"] | None = None
    side: Literal["left", "right"] = "left"

    def infer(self) -> dict[str, Layout]:
        return {}


del OPS["toy.chosen"]  # other modules look at all messages that there are


def test_words_are_checked_once_each() -> None:
    """A message of the same types with another word is looked at; one with a word seen before is not."""
    info = info_of(Chosen)
    x = Placeholder(layout_of(DTYPES["f32"], (2,)))
    for fields in ({}, {"norm": "one"}, {"norm": "two", "side": "right"}):
        op = Chosen(x=x, **fields)  # type: ignore[arg-type]
        assert info.kinds(op) in info.accepted
    for wrong in ("three", 1, ["one"]):
        with pytest.raises(TypeError, match=r"toy\.chosen: norm = "):
            Chosen(x=x, norm=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"toy\.chosen: side = "):
            Chosen(x=x, side=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"toy\.chosen: side = None"):
        Chosen(x=x, side=None)  # type: ignore[arg-type]


class Along(Op["ToyActor", None], tag="toy.along"):
    x: In
    axes: tuple[int, ...] = (-1,)
    steps: tuple[int, ...] | None = None

    def infer(self) -> dict[str, Layout]:
        return {}


del OPS["toy.along"]  # other modules look at all messages that there are


def test_tuples_are_checked_once_for_the_types_of_their_items() -> None:
    info = info_of(Along)
    x = Placeholder(layout_of(DTYPES["f32"], (2,)))
    for fields in ({}, {"axes": (0, 1)}, {"axes": (), "steps": (3, 4, 5)}):
        op = Along(x=x, **fields)
        assert info.kinds(op) in info.accepted
    for wrong in ((0.5,), (0, "1"), 1, None):
        with pytest.raises(TypeError, match=r"toy\.along: axes = "):
            Along(x=x, axes=wrong)  # type: ignore[arg-type]
    assert Along(x=x, axes=[0, 1]).axes == (0, 1)  # type: ignore[arg-type]


class Padded(Op["ToyActor", None], tag="toy.padded"):
    x: In
    padding: int | tuple[int | tuple[int, int], ...] = 0

    def infer(self) -> dict[str, Layout]:
        return {}


del OPS["toy.padded"]  # other modules look at all messages that there are


def test_tuples_in_tuples_are_checked_once_for_the_types_of_their_items() -> None:
    info = info_of(Padded)
    x = Placeholder(layout_of(DTYPES["f32"], (2,)))
    for padding in (3, (), (1, 2), ((1, 2), 3), ((1, 2), (3, 4))):
        op = Padded(x=x, padding=padding)
        assert op.padding == padding
        assert info.kinds(op) in info.accepted
    for wrong in (None, (0.5,), (1, True), ((1, 2, 3),), ((1,),), ((1, 2.0),), ((1, (2,)),)):
        with pytest.raises(TypeError, match=r"toy\.padded: padding = "):
            Padded(x=x, padding=wrong)  # type: ignore[arg-type]
    for listed, wanted in (([1, [2, 3]], (1, (2, 3))), ((1, [2, 3]), (1, (2, 3))), (np.array([1, 2]), (1, 2))):
        op = Padded(x=x, padding=listed)  # type: ignore[arg-type]
        assert op.padding == wanted
