import itertools
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.op import OPS, Op, _self_overlap, info_of, outputs_of
from callboard.core.operand import In, InOut, Out, Placeholder, Scalar

F32 = DTYPES["f32"]


def placeholder(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, dtype: str = "f32") -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape, strides))


class Solve(Op["ToyActor", None], tag="toy.solve"):
    a: In
    state: InOut
    out: Out | None = None
    info: Out | None = None
    alpha: Scalar = 1.0

    def infer(self) -> dict[str, Layout]:
        return {"out": layout_of(self.a.dtype, self.a.shape, self.a.strides), "info": layout_of(DTYPES["i32"], ())}


del OPS["toy.solve"]  # other modules look at all messages that there are

A = placeholder((2, 3), (1, 2))


def test_outputs_left_out_are_made_row_major() -> None:
    made = outputs_of(Solve(a=A, state=A))
    assert made == {"out": layout_of(F32, (2, 3)), "info": layout_of(DTYPES["i32"], ())}
    assert outputs_of(Solve(a=A, state=A, out=A, info=placeholder((), dtype="i32"))) == {}


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"out": placeholder((3, 2))}, r"toy.solve: out is f32[3, 2], expected f32[2, 3]"),
        ({"out": placeholder((2, 3), dtype="f64")}, r"out is f64[2, 3], expected f32[2, 3]"),
        ({"out": placeholder((2, 3), (0, 1))}, "its elements overlap; write to a copy"),
        ({"state": placeholder((4, 4), (1, 1))}, "state is f32[4, 4], strides (1, 1): its elements overlap"),
        ({"alpha": placeholder((1,))}, "alpha is f32[1]; pass a number or a 0-d array"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ShapeError) as caught:
        outputs_of(Solve(**{"a": A, "state": A, **changes}))
    assert says in str(caught.value)


def test_reading_overlapping_elements_is_no_fault() -> None:
    wide = placeholder((5, 3), (0, 1))
    assert "out" in outputs_of(Solve(a=wide, state=A))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-12, 12)), max_size=3))
def test_an_overlap_is_never_missed(axes: list[tuple[int, int]]) -> None:
    layout = layout_of(F32, tuple(n for n, _ in axes), tuple(s for _, s in axes))
    indices = itertools.product(*(range(n) for n, _ in axes))
    offsets = [sum(i * s for i, (_, s) in zip(index, axes, strict=True)) for index in indices]
    if len(set(offsets)) < len(offsets):
        assert _self_overlap(layout)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, -1])), max_size=4), st.randoms())
def test_a_view_of_a_dense_array_never_counts_as_overlapping(axes: list[tuple[int, int, int]], random: Any) -> None:
    """Slices with steps of either sign, axes in any order."""
    shape, strides, dense = [], [], 1
    for extent, step, sign in axes:
        shape.append(extent)
        strides.append(sign * step * dense)
        dense *= extent * step
    order = list(range(len(axes)))
    random.shuffle(order)
    assert not _self_overlap(layout_of(F32, tuple(shape[i] for i in order), tuple(strides[i] for i in order)))


def test_a_tag_is_taken_once() -> None:
    def define(name: str) -> None:
        type(Op)(name, (Op,), {"__annotations__": {}, "__module__": __name__, "__qualname__": name}, tag="toy.taken")

    define("First")
    try:
        define("First")  # the same class again, as a reload makes it
        with pytest.raises(TypeError, match=r"tag 'toy\.taken' of Second is taken by First"):
            define("Second")
    finally:
        del OPS["toy.taken"]


def test_a_field_cannot_be_called_as_the_answers_are_described() -> None:
    with pytest.raises(TypeError, match=r"Fill: \['value'\] declare how an op is answered"):

        class Fill(Op["ToyActor", None], tag="toy.fill"):
            value: float = 0.0  # type: ignore[misc, assignment]

    assert "toy.fill" not in OPS


def test_class_attributes_are_no_fields() -> None:
    class Norm(Op["ToyActor", float], tag="toy.norm"):
        value: ClassVar[bool] = True
        x: In

    del OPS["toy.norm"]
    assert Norm.__struct_fields__ == ("x",)
    assert Norm(x=A).value is Norm.value is True


def test_a_message_without_a_tag_is_no_op() -> None:
    class Untagged(Op["ToyActor", None]):
        pass

    with pytest.raises(TypeError, match=r"has no tag; write class Untagged\(Op"):
        info_of(Untagged)
    for passed in (None, "gemm", Untagged):  # the last in place of a message of it
        with pytest.raises(TypeError, match=r"is not an op; pass a message, as in dev\.ask\(Gemm\(a=a, b=b\)\)"):
            info_of(type(passed))
    with pytest.raises(TypeError, match="'toy' is not an op"):
        info_of("toy")  # type: ignore[arg-type]
