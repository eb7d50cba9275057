"""The language of expressions: accepted and rejected texts."""

import ast
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel.elementwise.functions import ALIASES, FUNCTIONS
from callboard.kernel.elementwise.language import CONSTANTS, REDUCTIONS, read
from callboard.kernel.elementwise.program import compiled
from callboard.kernel.elementwise.shorthands import SHORTHANDS
from callboard.kernel.elementwise.tree import Apply, Literal, Name

F32 = DTYPES["f32"]


def test_an_assignment() -> None:
    found = read("z = alpha * x + max(y, 0)")
    product = Apply("multiply", (Name("alpha"), Name("x")))
    assert found.statements == (("z", Apply("add", (product, Apply("maximum", (Name("y"), Literal(0)))))),)
    assert (found.inputs, found.target) == (("alpha", "x", "y"), "z")


def test_inputs_are_what_is_read_before_it_is_assigned() -> None:
    assert read("t = b + a; a = t; c = a + d").inputs == ("b", "a", "d")
    assert read("x += y").inputs == ("x", "y")
    assert read("  t = x \n  t * pi\n".replace("t * pi", "u = t * pi")).inputs == ("x",)
    assert read("x").statements == (("out", Name("x")),)


def test_python_operators() -> None:
    assert read("a < b <= c").statements[0][1] == Apply(
        "logical_and", (Apply("less", (Name("a"), Name("b"))), Apply("less_equal", (Name("b"), Name("c"))))
    )
    assert read("a if c else b").statements[0][1] == Apply("where", (Name("c"), Name("a"), Name("b")))
    assert read("max(a, b, c)").statements[0][1] == Apply(
        "maximum", (Apply("maximum", (Name("a"), Name("b"))), Name("c"))
    )
    assert read("astype(a, f16)").statements[0][1] == read("f16(a)").statements[0][1]
    assert read("max(a)").statements[0][1] == Apply("reduce:max", (Name("a"),))


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "is empty"),
        ("z =", "invalid syntax"),
        ("x @ y", "no such operator"),
        ("a in b", "no such operator"),
        ("foo(x)", "there is no function 'foo'"),
        ("sqrt(x, y)", "takes 1 arguments, not 2"),
        ("clip(x, 0)", "takes 3 arguments, not 2"),
        ("f32(x, y)", "takes 1 arguments, not 2"),
        ("x.real", "there are names, numbers"),
        ("x[0]", "there are names, numbers"),
        ("'a' + x", "there are names, numbers"),
        ("sqrt(x=1)", "there are names, numbers"),
        ("__import__('os')", "there are names, numbers"),
        ("import os", "write assignments"),
        ("x; y = 2", "write assignments"),
        ("a, b = x, y", "write assignments"),
        ("pi = x", "choose another name"),
        ("x + 'a\0'", "null"),
        ("(" * 5000 + "x" + ")" * 5000, "nested|recursion|memory"),
        ("x" + " + x" * 5000, "recursion|nested"),
        ("x = x + 1\n" * 3000, "more than"),
        ("y" * 70_000, "characters"),
    ],
    ids=lambda value: value[:20],
)
def test_what_is_no_expression_is_refused(text: str, why: str) -> None:
    with pytest.raises(ShapeError, match=why):
        read(text)


@given(st.text(alphabet="xy =+-*/%&|^~<>()[]{}.,:;\n'\"#@!0129e_jifpmaxsqrtnot", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read(text)
    except ShapeError:
        return
    assert found.statements
    ast.parse("\n".join(line.strip() for line in text.strip().splitlines()))


def test_names_are_not_used_twice() -> None:
    words = [*FUNCTIONS, *ALIASES, *SHORTHANDS, *(name for name in REDUCTIONS if name not in ("min", "max")), *DTYPES]
    twice = {word for word in words if words.count(word) > 1}
    assert not twice
    assert set(ALIASES.values()) <= set(FUNCTIONS)
    assert all(function.numpy for function in FUNCTIONS.values())


def constant(text: str) -> object:
    program = compiled(f"where(x != x, 0, {text})", (F32,))
    return next(s.value for s in program.steps if s.function == "constant" and s.value != 0)


@pytest.mark.parametrize(
    "text, value",
    [
        ("1 + 2 * 3", 7),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("2 ** -1", 0.5),
        ("sqrt(2)", math.sqrt(2)),
        ("1j * 1j", -1),
        ("3 if 1 < 2 else 4", 3),
        ("max(1, 2.5)", 2.5),
        ("pi / 2", math.pi / 2),
        ("rsqrt(4)", 0.5),
        ("erf(0.5)", math.erf(0.5)),
        ("1 / 0", math.inf),
    ],
)
def test_what_is_computed_of_numbers_alone_is_one_constant(text: str, value: complex) -> None:
    assert complex(constant(text)) == pytest.approx(value)  # type: ignore[arg-type]


def test_constants_are_the_ones_of_mathematics() -> None:
    assert CONSTANTS["pi"] == np.pi
    assert math.isnan(CONSTANTS["nan"].real)
