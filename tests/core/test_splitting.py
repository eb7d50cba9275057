from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout, layout_of
from callboard.core.op import OPS, Op, info_of
from callboard.core.operand import In, Operand, Out, Placeholder, Scalar
from callboard.core.opinfo import OpInfo
from callboard.core.splitting import Parts, is_cache_key


class Single(Op["ToyActor", None], tag="toy.single"):
    """Fields that can all be told apart."""

    returns = ()

    a: In
    out: Out | None = None
    alpha: Scalar = 1.0
    beta: Scalar | None = None
    flag: bool = False
    limit: int | None = None
    mode: Literal["fast", "exact"] = "fast"
    axes: tuple[int, ...] = ()
    rate: float = 1.0
    cap: float | None = None

    def infer(self) -> dict[str, Layout]:
        return {"out": self.a.layout}


del OPS["toy.single"]  # other modules look at all messages that there are


class General(OpInfo):
    """Takes every message apart in the general way."""

    def __init__(self, of: type[Op[Any, Any]], tag: str) -> None:
        super().__init__(of, tag)
        self.split = self._split


general = General(Single, "toy.single")
operands = st.builds(
    lambda dtype, n, transposed: Placeholder(layout_of(dtype, (n, 2), (1, n) if transposed else None)),
    st.sampled_from([DTYPES["f32"], DTYPES["c64"]]),
    st.integers(0, 3),
    st.booleans(),
)
numbers = st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False) | operands
small = st.integers(0, 1)
messages = st.builds(
    Single,
    a=operands,
    out=st.none() | operands,
    alpha=numbers,
    beta=st.none() | numbers,
    flag=st.booleans(),
    limit=st.none() | small,
    mode=st.sampled_from(["fast", "exact"]),
    axes=st.lists(small, max_size=2).map(tuple),
    rate=st.sampled_from([0.0, -0.0, 1.0, float("nan")]),
    cap=st.sampled_from([None, 0.0, -0.0, 1.0]),
)


def same(one: Parts, other: Parts) -> bool:
    return (
        one.signature == other.signature
        and [id(o) for o in one.operands] == [id(o) for o in other.operands]
        and repr(one.numbers) == repr(other.numbers)  # tells -0.0 from 0.0
    )


@given(st.lists(messages, min_size=1, max_size=20))
def test_messages_come_apart_as_in_the_general_way_however_often_they_come(ops: list[Single]) -> None:
    info = info_of(Single)
    assert info.split != getattr(info, "_split")  # noqa: B009 - which it must not be here
    for op in ops + ops:
        parts = info.split(op)
        assert type(parts) is Parts
        assert same(parts, general.split(op))


def test_what_has_been_learned_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from callboard.core import splitting

    monkeypatch.setattr(splitting, "MAX_SIGNATURES", 3)
    asked = []

    def signature_of(op: Single) -> bytes:
        asked.append(op.limit)
        return str(op.limit).encode()

    split = splitting.splitter([], ["limit"], signature_of)
    a = Placeholder(layout_of(DTYPES["f32"], ()))
    ops = [Single(a=a, limit=i) for i in range(4)]
    for op in (*ops[:3], *ops[:3], ops[3], ops[0]):
        assert split(op).signature == str(op.limit).encode()
    assert asked == [0, 1, 2, 3, 0]


class Frozen(msgspec.Struct, frozen=True):
    number: int
    flag: bool
    words: tuple[str, ...] = ()


class Loose(msgspec.Struct):
    number: int


@pytest.mark.parametrize(
    "hint, is_tellable",
    [
        (bool, True),
        (int | None, True),
        (Literal["a", "b"] | None, True),
        (tuple[int, ...], True),
        (tuple[tuple[int, int], str] | None, True),
        (float, False),
        (int | bool, False),
        (Literal[1, True], False),
        (float | None, False),
        (tuple[float, ...], False),
        (list[int], False),
        (dict[str, int], False),
        (Operand, False),
        (Frozen, True),
        (tuple[Frozen, ...] | None, True),
        (Loose, False),
        (Frozen | float, False),
    ],
)
def test_only_settings_that_can_be_told_apart_by_equality_stand_in_a_key(hint: Any, is_tellable: bool) -> None:
    assert is_cache_key(hint) is is_tellable
