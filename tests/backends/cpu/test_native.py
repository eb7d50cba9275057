"""Expressions as machine code: the bits of NumPy's, and NumPy where there is no compiler."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.backends.cpu.elementwise import native
from callboard.backends.cpu.elementwise.mapped import MapPlan
from callboard.core.dtype import as_dtype
from callboard.core.layout import Layout, layout_of
from callboard.kernel.elementwise.program import Program, compiled

needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="no C compiler: install gcc")
ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.5, 1e-45, 3e38, 7.25]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(native, "AGAIN", 1)
    forget()
    yield
    forget()


def forget() -> None:
    native.compiler.cache_clear()
    native.compiling.cache_clear()


def compiled_by_now() -> None:
    compiling = native.compiling(os.getpid())
    if compiling is not None:
        compiling.settle()


def program(text: str, *dtypes: str, **numbers: float) -> Program:
    return compiled(text, tuple(map(as_dtype, dtypes)), tuple((name, "float") for name in numbers))


def both(made: Program, layouts: list[Layout], arrays: list[Any], numbers: list[float]) -> tuple[Any, Any, Any]:
    """What NumPy finds, what comes after the compilation, and the plan."""
    shape = np.broadcast_shapes(*(layout.shape for layout in layouts))
    out = layout_of(made.steps[made.results[0]].dtype, shape)
    plan = MapPlan(made, shape, layouts, [out])
    found = []
    for _ in range(2):
        into = np.empty(shape, out.dtype.np)
        plan([array.ctypes.data for array in arrays], numbers, (into.ctypes.data,))
        found.append(into)
        compiled_by_now()
    return found[0], found[1], plan


@needs_compiler
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    "text",
    [
        "out = (x + y) * x - y / x",
        "out = sqrt(abs(x)) + square(y) - -x",
        "out = where(x < y, x * 2, where(isnan(y), 0.5, y - x))",
        "out = where((x <= y) & (x != 0) | ~(y > x), x + 1, y * 3)",
        "out = f32(x) * f64(y) + 1",
        "t = x * n + y; out = t * t + n * x",
    ],
)
def test_the_bits_are_those_of_numpy(text: str, dtype: str) -> None:
    values = np.random.default_rng(3).normal(size=(25, 40)).astype(as_dtype(dtype).np)
    values.flat[: len(ODD)] = ODD
    x, y = values, np.roll(values, 3)
    numbers = {"n": 0.1} if "n" in text.split() else {}
    made = program(text, dtype, dtype, **numbers)
    layout = layout_of(as_dtype(dtype), x.shape)
    with np.errstate(all="ignore"):
        before, after, plan = both(made, [layout, layout], [x, y], list(numbers.values()))
    assert plan._native._compiled.run is not None
    np.testing.assert_array_equal(before.view(np.uint8), after.view(np.uint8))


@needs_compiler
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    "text",
    [
        "out = -x + y",
        "out = x - -y",
        "out = -x * -y",
        "out = x / -y + x",
        "out = abs(x) * abs(x) + y",
        "out = -x * -x + y",
        "out = abs(-x) - -abs(y)",
        "out = (x * -1) / -1 + y",
        "out = (x - 0) * 1 + (y + 0)",
        "out = -where(x > 0, y, -y) + where(x >= 0, x, -x)",
        "out = where(x == y, x, y) - -x",
        "out = f32(f64(x)) * 1 - -y",
    ],
)
def test_one_nan_keeps_sign_and_payload(text: str, dtype: str) -> None:
    bits = {"f32": np.uint32, "f64": np.uint64}[dtype]
    quiet, sign, signalling = {
        "f32": (0x7FC00000, 1 << 31, 0x7F800000),
        "f64": (0x7FF8 << 48, 1 << 63, 0x7FF << 52),
    }[dtype]
    nans = [word | s | 0x123 for word in (quiet, signalling) for s in (0, sign)]
    one = np.array(nans, bits).repeat(100).view(as_dtype(dtype).np)
    other = np.resize(np.array([1.5, -2.0, 0.0, -0.0, 3e38, 1e-45], as_dtype(dtype).np), one.shape)
    x, y = np.concatenate([one, other]), np.concatenate([other, one])
    layout = layout_of(as_dtype(dtype), x.shape)
    with np.errstate(all="ignore"):
        before, after, plan = both(program(text, dtype, dtype), [layout, layout], [x, y], [])
    assert plan._native._compiled.run is not None
    np.testing.assert_array_equal(before.view(np.uint8), after.view(np.uint8))


@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        "out = (x & y) | (x ^ y)",
        "out = x ^ y ^ x",
        "out = (x == y) | ~x",
        "out = (x != y) & y",
        "out = where(x & y, 1.5, 2.5) * 2",
        "out = where(x, 1.5, 2.5) + where(y, 1.5, 2.5)",
        "out = f32(x) * 2 + f32(y)",
    ],
)
def test_each_byte_but_0_is_true(text: str) -> None:
    x = (np.arange(500) % 5).astype("u1").view(np.bool_)
    y = (np.arange(500) // 5 % 5).astype("u1").view(np.bool_)
    layout = layout_of(as_dtype("bool"), x.shape)
    made = program(text, "bool", "bool")
    wanted, _, _ = both(made, [layout, layout], [x.view("u1") != 0, y.view("u1") != 0], [])
    forget()
    before, after, plan = both(made, [layout, layout], [x, y], [])
    assert plan._native._compiled.run is not None
    np.testing.assert_array_equal(before.view(np.uint8), wanted.view(np.uint8))
    np.testing.assert_array_equal(after.view(np.uint8), wanted.view(np.uint8))


@needs_compiler
def test_comparisons_of_integers() -> None:
    x = np.array([0, -1, 2**62, -(2**63), 7, 2**24 + 1] * 50, "i8")
    layout = layout_of(as_dtype("i64"), x.shape)
    before, after, plan = both(
        program("out = where(x < y, f32(x), f32(x == y))", "i64", "i64"), [layout] * 2, [x, x[::-1].copy()], []
    )
    assert plan._native._compiled.run is not None
    np.testing.assert_array_equal(before, after)


@needs_compiler
def test_reductions() -> None:
    rng = np.random.default_rng(3)
    with cb.sync.device("cpu", isolation="thread", standby=None) as dev:
        xp = dev.xp
        host = [rng.normal(size=shape).astype("f4") for shape in ((300, 1), (300, 10), (10,))]
        a, b, c = map(dev.put, host)
        found = []
        for _ in range(2):
            far = a - 2 * b + c
            found.append([xp.argmin(far, axis=1).get(), xp.sum(a - 2 * b + c, axis=0).get(), xp.max(a * b - c).get()])
            compiled_by_now()
    for before, after in zip(*found, strict=True):
        np.testing.assert_array_equal(before, after)
    compiling = native.compiling(os.getpid())
    assert compiling is not None
    assert any(one.run is not None for one in compiling._known.values())
    np.testing.assert_array_equal(found[1][0], np.argmin(host[0] - 2 * host[1] + host[2], axis=1))


@needs_compiler
def test_any_strides_and_broadcast_operands() -> None:
    wide = np.random.default_rng(3).normal(size=(30, 64)).astype("f4")
    row = np.arange(32, dtype="f4")
    layouts = [Layout(as_dtype("f32"), (30, 32), (64, 2)), layout_of(as_dtype("f32"), (32,))]
    before, after, plan = both(program("out = (x - y) * y + x", "f32", "f32"), layouts, [wide, row], [])
    assert plan._native._compiled.run is not None
    np.testing.assert_array_equal(before, (wide[:, ::2] - row) * row + wide[:, ::2])
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("text", ["out = exp(x) * x + x", "out = maximum(x, 0) * x - x"])
def test_what_is_not_exact_stays_with_numpy(text: str) -> None:
    x = np.ones(500, "f4")
    before, after, plan = both(program(text, "f32"), [layout_of(as_dtype("f32"), (500,))], [x], [])
    assert plan._native._compiled is None
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("given", ["off", "no-such-compiler", "false"])
def test_without_a_compiler(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, given)  # `false` is a program that fails
    x = np.arange(500, dtype="f4")
    before, after, _ = both(program("out = x * x + x - 1", "f32"), [layout_of(as_dtype("f32"), (500,))], [x], [])
    np.testing.assert_array_equal(before, x * x + x - 1)
    np.testing.assert_array_equal(before, after)


@needs_compiler
def test_a_result_in_the_memory_of_an_operand() -> None:
    x = np.arange(500, dtype="f4")
    layout = layout_of(as_dtype("f32"), (500,))
    plan = MapPlan(program("out = x * x + x - 1", "f32"), (500,), [layout], [layout])
    for _ in range(3):
        wanted = x * x + x - 1
        plan([x.ctypes.data], [], (x.ctypes.data,))
        compiled_by_now()
        np.testing.assert_array_equal(x, wanted)
        x %= 7
