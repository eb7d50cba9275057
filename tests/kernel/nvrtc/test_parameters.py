import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.kernel.nvrtc.binding import bound
from callboard.kernel.nvrtc.expressions import evaluate
from callboard.kernel.nvrtc.parameters import Declared, parameters

F32 = DTYPES["f32"]


def layouts(**shapes: tuple[int, ...]) -> dict[str, Any]:
    return {name: layout_of(F32, shape) for name, shape in shapes.items()}


def test_what_is_declared() -> None:
    found = parameters(
        "in u: f32[h, w], inout v: T[...], alpha: f64, out s: T[max(h, 2), 3], h: i32, n: i64 = h * (w + 1)"
    )
    assert found.all == (
        Declared("in", "u", "f32", ("h", "w")),
        Declared("inout", "v", "T", ("...",)),
        Declared("number", "alpha", "f64"),
        Declared("out", "s", "T", ("max(h, 2)", "3")),
        Declared("number", "h", "i32", (), "h"),
        Declared("number", "n", "i64", (), "h * (w + 1)"),
    )
    assert [one.name for one in found.passed] == ["u", "v", "alpha"]
    assert [one.name for one in found.outs] == ["s"]
    assert found.types == ("T",)


WRONG = {
    "": "a kernel needs a parameter",
    "x": "'x' declares no parameter; write 'in x: f32[n]' or 'alpha: f32'",
    "x: f32[n]": "x: an array needs a role, one of in, out, inout",
    "ref x: f32[n]": "x: an array needs a role",
    "in x: f32": "x has a role and no shape; write 'in x: f32[n]'",
    "in x: float[n]": "x: no dtype 'float'; use one of f16, ",
    "in x: f32[n], in x: f32[n]": "x is declared twice",
    "in x: f32[n.m]": "'n.m' is not an extent; use integers, names",
    "in x: f32[n], out y: f32[m]": "y: no array that is passed has an extent m",
    "out y: f32[...]": "y: no array that is passed has the shape [...]",
    "in x: f32[..., n]": "x: [...] cannot be combined",
    "in x: f32[n], out y: T[n]": "no passed array determines the dtype T",
    "in n: f32[n]": "n is an array and an extent",
    "in x: f32[n] = 3": "x: an array cannot be defined",
    "in x: f32[n], k: i32 = m": "k: no array that is passed has an extent m",
    "in x: f32[__import__('os')]": "is not an extent",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_declaration_names_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parameters(text)
    assert WRONG[text] in str(caught.value)


def test_extents_dtypes_and_outputs_follow_from_the_arrays() -> None:
    declared = parameters("in a: T[m, k], in b: T[k, n], out c: T[m, n], out d: f64[m - 1], k: i32, area: i64 = m * n")
    found = bound("f", declared, layouts(a=(3, 4), b=(4, 5)))
    assert found.extents == {"m": 3, "k": 4, "n": 5}
    assert found.outs == (layout_of(F32, (3, 5)), layout_of(DTYPES["f64"], (2,)))
    assert found.numbers == {"k": 4, "area": 15}
    assert found.dtypes == {"a": "f32", "b": "f32", "c": "f32", "d": "f64", "k": "i32", "area": "i64"}


UNFIT = {
    "an extent that differs": (
        "in a: f32[n], in b: f32[n]",
        {"a": (3,), "b": (4,)},
        "b is f32[4]; axis 0 has 4, expected n = 3",
    ),
    "axes": ("in a: f32[n]", {"a": (3, 3)}, "a is f32[3, 3], expected 1 axes, [n]"),
    "a dtype": ("in a: f64[n]", {"a": (3,)}, "a is f32[3], expected f64"),
    "an output that is too small": (
        "in a: f32[n], out b: f32[2 * n]",
        {"a": (3,), "b": (5,)},
        "b is f32[5]; axis 0 has 5",
    ),
    "any shape": ("in a: f32[...], in b: f32[...]", {"a": (2, 3), "b": (6,)}, "b is f32[6], expected the shape [2, 3]"),
    "less than nothing": ("in a: f32[n], out b: f32[n - 4]", {"a": (3,)}, "b would have the shape [-1]"),
    "nothing to divide by": ("in a: f32[n], out b: f32[8 // n]", {"a": (0,)}, "'8 // n' divides by zero"),
    "a fixed extent": ("in a: f32[n, 3]", {"a": (5, 4)}, "axis 1 has 4, expected 3"),
    "a formula too early": (
        "in a: f32[n + 1], in b: f32[n]",
        {"a": (5,), "b": (4,)},
        "declare the array that defines it",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_arrays_that_do_not_fit_are_named(case: str) -> None:
    text, shapes, says = UNFIT[case]
    with pytest.raises(ShapeError) as caught:
        bound("f", parameters(text), layouts(**shapes))
    assert says in str(caught.value)


def test_arrays_with_gaps_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"x is f32\[3\], strides \(2,\); a kernel takes arrays without gaps"):
        bound("f", parameters("in x: f32[n]"), {"x": layout_of(F32, (3,), (2,))})


@st.composite
def formulas(draw: st.DrawFn, depth: int = 3) -> str:
    kinds = ["number", "name"] + (["binary", "minus", "call"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "number":
            return str(draw(st.integers(0, 99)))
        case "name":
            return draw(st.sampled_from("hw"))
        case "minus":
            return f"-({draw(formulas(depth - 1))})"
        case "call":
            parts = [draw(formulas(depth - 1)) for _ in range(draw(st.integers(2, 3)))]
            return f"{draw(st.sampled_from(['min', 'max']))}({', '.join(parts)})"
    operator = draw(st.sampled_from(["+", "-", "*", "//", "%"]))
    return f"({draw(formulas(depth - 1))}) {operator} ({draw(formulas(depth - 1))})"


@given(formula=formulas(), h=st.integers(0, 50), w=st.integers(0, 50))
def test_formulas_mean_what_they_mean_to_python(formula: str, h: int, w: int) -> None:
    try:
        want = eval(formula, {"h": h, "w": w, "min": min, "max": max, "__builtins__": {}})
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="divides by zero"):
            evaluate(formula, {"h": h, "w": w})
        return
    assert evaluate(formula, {"h": h, "w": w}) == want


@given(shape=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_named_extents_round_trip(shape: list[int]) -> None:
    names = [f"n{axis}" for axis in range(len(shape))]
    text = f"in x: f32[{', '.join(names)}], out y: f32[{', '.join(reversed(names))}], size: i64 = {' * '.join(names)}"
    found = bound("f", parameters(text), layouts(x=tuple(shape)))
    assert found.outs[0].shape == tuple(reversed(shape))
    assert found.numbers["size"] == math.prod(shape)
