"""Struct operands as fields of messages, and layouts of which only bounds are known."""

from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.letters import LETTERS

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import BoundedExtent, OpenLayout, layout_of
from callboard.core.op import OPS, Op, StructOutputs, info_of, outputs_of
from callboard.core.operand import HostIn, In, InOut, Operand, Out, Placeholder, Role, StructOperand, parts_of
from callboard.core.opinfo import read_signature

F32, I32 = DTYPES["f32"], DTYPES["i32"]


class Left(StructOperand, tag="left"):
    values: Annotated[Operand, Role.IN]
    state: InOut
    shape: tuple[int, int]
    mode: str = "x"


class Right(StructOperand, tag="right"):
    values: In


class Take(Op["ToyActor", Left], tag="toy.take"):
    a: Left | Right
    b: In
    out: Annotated[Left, Role.OUT] | None = None
    c: Right | None = None
    count: Out | None = None
    level: int = 0

    def infer(self) -> StructOutputs:
        n = BoundedExtent(self.b.size) if self.out is None else self.out.values.size
        return {"out": Left(at("f32", n), at("i32", 2), (3, self.b.size))}


del OPS["toy.take"]  # other modules look at all messages that there are


def at(dtype: str, *shape: Any) -> Any:
    return Placeholder(layout_of(DTYPES[dtype], shape))


take: Any = Take
left: Any = Left
A, B = Left(at("f32", 4), at("i32", 2), (3, 4)), at("f32", 4)


@given(st.integers(0, 5), st.integers(0, 2**40), st.text(LETTERS, max_size=5), st.booleans(), st.booleans())
def test_struct_operands_come_back_from_the_signature(n: int, rows: int, mode: str, other: bool, extra: bool) -> None:
    a = Right(at("f64", n)) if other else Left(at("f32", n, 2), at("i32", 1), (rows, 2), mode)
    op = Take(a=a, b=B, c=Right(at("i8", n)) if extra else None, level=n)
    info = info_of(Take)
    parts = info.split(op)
    _, statics, skeleton = read_signature(parts.signature)
    again = info.join(Take, statics, skeleton)
    assert type(again.a) is type(a)
    assert [(leaf.name, leaf.role, leaf.item, leaf.at) for leaf in info.leaves(again)] == [
        (leaf.name, leaf.role, leaf.item, leaf.at) for leaf in info.leaves(op)
    ]
    assert [leaf.value.layout for leaf in info.leaves(again)] == [o.layout for o in parts.operands]
    assert info.split(again).signature == parts.signature
    if isinstance(a, Left):
        assert (again.a.shape, again.a.mode) == (a.shape, a.mode)


def test_signatures_tell_struct_operands_apart() -> None:
    def signature(**changes: Any) -> bytes:
        return info_of(Take).split(Take(**{"a": A, "b": B, **changes})).signature

    signatures = [
        signature(),
        signature(a=Right(A.values)),
        signature(a=Left(A.values, A.state, (4, 3))),
        signature(a=Left(A.values, A.state, (3, 4), "y")),
        signature(c=Right(B)),
    ]
    assert len(set(signatures)) == len(signatures)


def test_roles_are_those_of_the_parts_unless_the_message_says_another() -> None:
    leaves = {leaf.name: leaf.role for leaf in info_of(Take).leaves(Take(a=A, b=B, out=A))}
    assert leaves == {
        "a.values": Role.IN,
        "a.state": Role.INOUT,
        "b": Role.IN,
        "out.values": Role.OUT,
        "out.state": Role.OUT,
    }


def test_outputs_are_made_part_by_part() -> None:
    made = outputs_of(Take(a=A, b=B))
    assert made == {"out.values": layout_of(F32, (BoundedExtent(4),)), "out.state": layout_of(I32, (2,))}
    assert outputs_of(Take(a=A, b=B, out=A)) == {}


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"out": Left(at("f64", 4), at("i32", 2), (3, 4))}, "toy.take: out.values is f64[4], expected f32[4]"),
        ({"out": Left(at("f32", 4), at("i32", 3), (3, 4))}, "toy.take: out.state is i32[3], expected i32[2]"),
        (
            {"out": Left(at("f32", 4), at("i32", 2), (4, 3))},
            "out is ('Left', (4, 3), 'x'), expected ('Left', (3, 4), 'x')",
        ),
        (
            {"a": Left(at("f32", 4), Placeholder(layout_of(I32, (2,), (0,))), (3, 4))},
            "a.state is i32[2], strides (0,): its",
        ),
        ({"count": at("i64")}, "toy.take: count is i64[], and this call does not write it; leave it out"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ShapeError) as caught:
        outputs_of(Take(**{"a": A, "b": B, **changes}))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: take(a=B, b=B), "toy.take: a is Placeholder; pass a Left or Right"),
        (lambda: take(a=A, b=A), "toy.take: b is Left; pass a GpuRef"),
        (lambda: take(a=A, b=B, c=A), "toy.take: c is Left; pass a Right"),
        (
            lambda: info_of(Take).split(take(a=left(np.zeros(3), B, (1, 2)), b=B)),
            "toy.take: a.values is ndarray; pass a GpuRef (dev.put(array) makes one)",
        ),
        (lambda: left(B, B, (1, 2, 3)), "Left: shape = (1, 2, 3): Expected `tuple` of length 2, got 3"),
        (lambda: left(B, B, ("x", 2)), "Left: shape = ('x', 2): Expected `int`, got `str` - at `shape[0]`"),
    ],
)
def test_wrong_types_are_named(make: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert says in str(caught.value)


def test_settings_are_normalised() -> None:
    value = left(B, B, [np.int64(3), np.int32(4)])
    assert value.shape == (3, 4)
    assert [type(n) for n in value.shape] == [int, int]


SKELETON = read_signature(info_of(Take).split(Take(a=A, b=B)).signature)[2]


@pytest.mark.parametrize(
    "mark, says",
    [
        (None, "a: None is not an operand"),
        ([2, [1], []], "a: [2, [1], []] is not an operand"),
        (["middle", [], []], "a: 'middle' is not an operand"),
        (["right", [1], [[2, [1], []]]], "a: 1 settings and 1 operands are no right"),
        (["left", [[1, 2], "x"], [[2, [1], []]]], "a: 2 settings and 1 operands are no left"),
        (["left", ["x", "x"], [[2, [1], []], [2, [1], []]]], "a: Left: shape = 'x'"),
        (["right", [], [3]], "a.values: 3 is not an operand"),
    ],
)
def test_a_wrong_skeleton_is_refused(mark: Any, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        info_of(Take).join(Take, [0], [mark, *SKELETON[1:]])
    assert says in str(caught.value)


def test_a_struct_operand_says_what_it_is_made_of() -> None:
    assert parts_of(Left)[:3] == ("left", (("values", Role.IN), ("state", Role.INOUT)), ("shape", "mode"))

    class Untagged(StructOperand):
        values: In

    with pytest.raises(TypeError, match=r"Untagged.* has no tag; write class Untagged\(StructOperand"):
        parts_of(Untagged)

    class Staged(StructOperand, tag="staged"):
        host: HostIn

    with pytest.raises(TypeError, match=r"\['host'\] cannot be parts of a struct operand"):
        parts_of(Staged)


# -- open layouts ------------------------------------------------------------------------------------------------------


def test_an_open_layout_says_what_it_can_and_refuses_the_rest() -> None:
    layout = layout_of(F32, (3, BoundedExtent(5)))
    assert isinstance(layout, OpenLayout)
    assert (layout.dtype, layout.ndim, repr(layout)) == (F32, 2, "f32[3, <=5]")
    for name in ("shape", "size", "nbytes", "strides", "wire", "raw", "contiguous", "span"):
        with pytest.raises(ShapeError, match=r"f32\[3, <=5\]: extents depend on data; await it first"):
            getattr(layout, name)
    with pytest.raises(AttributeError):
        layout.nothing  # noqa: B018
    assert layout == layout_of(F32, (3, BoundedExtent(5))) != layout_of(F32, (3, 5))
    assert layout != layout_of(F32, (3, BoundedExtent(6)))
    assert len({layout, layout_of(F32, (3, BoundedExtent(5))), layout_of(F32, (3, 5))}) == 2


def test_it_is_closed_by_extents_as_announced() -> None:
    layout = layout_of(F32, (3, BoundedExtent(5)))
    assert isinstance(layout, OpenLayout)
    for n in (0, 4, 5):
        assert layout.closed((3, n)) == layout_of(F32, (3, n))
    for shape in ((3, 6), (3, -1), (2, 5), (3,), (3, 1, 1)):
        with pytest.raises(ValueError, match="announced as"):
            layout.closed(shape)
