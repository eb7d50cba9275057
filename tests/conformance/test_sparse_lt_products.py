"""``Matmul`` and ``Linear``: products with a structured factor, against products in f64."""

from typing import Any

import numpy as np
import pytest
from blas_lab import SHARED, Array, execute, poisoned
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_lt_lab import (
    INNER_ADJACENT,
    LARGEST,
    LAYOUTS,
    NAMES,
    STEP,
    compressed,
    drawn,
    place,
    size_of,
    structured,
    wide,
)

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.sparse_lt import Linear, Matmul
from callboard.testing.tolerances import ACTIVATION, ROUNDOFF, assert_close

RESULTS = {
    "f16": ("f16",),
    "bf16": ("bf16",),
    "f32": ("f32",),
    "i8": ("i32", "i8", "f16", "bf16"),
    "f8_e4m3": ("bf16", "f16", "f32", "f8_e4m3"),
    "f8_e5m2": ("bf16", "f16", "f32", "f8_e5m2"),
}
PAIRS = [
    pytest.param(DTYPES[name], DTYPES[stored], id=f"{name}-{stored}")
    for name, kinds in RESULTS.items()
    for stored in kinds
]
EVERY = [pytest.param(DTYPES[name], id=name) for name in NAMES]
layouts = st.sampled_from(LAYOUTS)
seeds = st.integers(0, 2**16)


def kept(stored: DType) -> DType:
    """Of an addend."""
    return DTYPES["bf16"] if stored.name.startswith("f8") else stored


def bias_kind(stored: DType) -> DType:
    return DTYPES["f32"] if stored.is_integer else kept(stored)


def drawn_bias(stored: DType, outer: int, seed: int) -> Array:
    """Whole numbers beside integers: what is half way between two of them would be rounded either way."""
    return drawn(DTYPES["i8"] if stored.is_integer else kept(stored), (outer,), seed).astype(bias_kind(stored).np)


def by_columns(session: Any, array: Array) -> Any:
    """Its columns adjacent, as the tensor cores of Hopper want factors of 8 bits."""
    return place(session, array, "columns").ref


def gelu(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def activated(activation: str | None, x: Array) -> Array:
    return np.maximum(x, 0) if activation == "relu" else gelu(x) if activation == "gelu" else x


def check(
    session: Any,
    got: Array,
    pre: Array,
    scale: Array,
    activation: str | None,
    factor: DType,
    stored: DType,
    k: int,
    between: Any = 0,
) -> None:
    """Compare a result: exact sums of integers, rounded once; on CUDA f32 factors are TF32.

    ``between``: the magnitude of a product that was stored before it was scaled.
    """
    want = activated(activation, pre)
    if stored.is_integer:
        limits = np.iinfo(stored.np)
        exact = np.clip(np.rint(want), limits.min, limits.max)
        away = 1 if activation == "gelu" else 0  # near a half the tanh decides
        assert abs(wide(got) - exact).max(initial=0) <= away
        return
    if stored.name in LARGEST:
        want = np.clip(want, -LARGEST[stored.name], LARGEST[stored.name])
    kind: Any = "tf32" if factor.name == "f32" and session.backend.name == "cuda" else stored
    # GELU has an error of its own, and may be taken of what was rounded.
    own = between
    if activation == "gelu":
        own = 1.2 * between + abs(pre) * (1.2 + ACTIVATION / ROUNDOFF[stored.name].unit)
    fp8 = factor if factor.name.startswith("f8") else None
    assert_close(got, want, kind, k + 4, scale=scale + abs(want), factors=fp8, between=own)


class Case:
    """A drawn product: operands on the device, and the reference."""

    def __init__(self, session: Any, data: st.DataObject, factor: DType, stored: DType, small: bool) -> None:
        self.linear = data.draw(st.booleans(), "linear")
        own, other = data.draw(st.sampled_from([((), ()), ((), (3,)), ((1,), (2,)), ((2,), (2,)), ((3,), ())]), "batch")
        multiple = size_of(factor) if small else STEP[factor.name]
        outer = (1 if small else multiple) * data.draw(st.integers(0, 4), "outer")
        self.k = multiple * data.draw(st.integers(1, 4), "k")
        n = (1 if small else max(16 // factor.itemsize, 4)) * data.draw(st.integers(0, 4), "n")
        seed = data.draw(seeds, "seed")
        w, x = structured(factor, (*own, outer, self.k), seed), drawn(factor, (*other, self.k, n), seed + 1)
        batch = () if not (own or other) else (max([*own, *other]),)
        self.shape = (*batch, n, outer) if self.linear else (*batch, outer, n)
        self.alpha = data.draw(st.sampled_from([1.0, 0.5, -2.0]), "alpha") * (0.125 if stored.itemsize == 1 else 1)
        self.beta = data.draw(st.sampled_from([0.0, 1.0, -0.5]), "beta")
        c = drawn(kept(stored) if stored.name != "i32" else DTYPES["i8"], self.shape, seed + 2).astype(kept(stored).np)
        bias = drawn_bias(stored, outer, seed + 3)
        self.pre = self.alpha * (wide(w) @ wide(x))
        self.scale = abs(self.alpha) * (abs(wide(w)) @ abs(wide(x)))
        lie = data.draw(st.sampled_from([(), ("alpha",), ("beta",), ("alpha", "beta")]), "factors on the device")
        self.between = abs(self.pre) if lie else abs(self.pre) * 0
        out_layout, self.out = data.draw(layouts, "out"), None
        operands: dict[str, Any] = {}
        if data.draw(st.booleans(), "bias given"):
            operands["bias"] = session.put(bias)
            self.pre = self.pre + wide(bias)[:, None]
            self.scale = self.scale + abs(wide(bias))[:, None]
        if self.linear:
            self.pre, self.scale = self.pre.swapaxes(-1, -2), self.scale.swapaxes(-1, -2)
            self.between = self.between.swapaxes(-1, -2)
        adds = self.beta != 0 or "beta" in lie
        if adds:
            self.pre, self.scale = self.pre + self.beta * wide(c), self.scale + abs(self.beta * wide(c))
        if data.draw(st.booleans(), "out given"):
            inside = adds and kept(stored) is stored and data.draw(st.booleans(), "out is c")
            self.out = place(session, c if inside else poisoned(stored, self.shape), out_layout)
            operands["out"] = self.out.ref
            if inside:
                operands["c"] = self.out.ref
        if adds and "c" not in operands:
            operands["c"] = place(session, c, out_layout if self.out is not None else "rows").ref
        a = compressed(session, w)
        lying = layouts
        if session.backend.name == "cuda" and factor.name in INNER_ADJACENT:  # test_rules has what the rest is told
            lying = st.sampled_from(LAYOUTS[:2] if self.linear else LAYOUTS[2:])
        dense = place(session, x.swapaxes(-1, -2) if self.linear else x, data.draw(lying, "dense")).ref
        factors = {"x": dense, "w": a} if self.linear else {"a": a, "b": dense}
        message: Any = Linear if self.linear else Matmul
        self.activation = data.draw(st.sampled_from([None, "relu", "gelu"]), "activation")
        if self.out is None:
            operands["out_dtype"] = stored.name
        numbers: dict[str, Any] = {"alpha": self.alpha, "beta": self.beta}
        numbers |= {name: session.put(np.float32(numbers[name])) for name in lie}
        timed = data.draw(st.booleans(), "autotune")
        self.op = message(**factors, **operands, **numbers, activation=self.activation, autotune=timed)


@pytest.mark.parametrize("factor, stored", PAIRS)
@settings(SHARED, max_examples=6)  # on a GPU a process loads the kernels of all algorithms to time them: seconds
@given(data=st.data())
def test_any_product(session: Any, factor: DType, stored: DType, data: st.DataObject) -> None:
    """Orders, batches, steps, addends, biases and activations; nothing else is written."""
    case = Case(session, data, factor, stored, small=False)
    got = session.get(execute(session, case.op))
    assert got.shape == case.shape
    check(session, got, case.pre, case.scale, case.activation, factor, stored, case.k, case.between)
    if case.out is not None:
        case.out.check_surroundings(session)


@pytest.mark.parametrize("factor, stored", PAIRS)
@settings(SHARED, max_examples=15)
@given(data=st.data())
def test_extents_of_any_size(session: Any, factor: DType, stored: DType, data: st.DataObject) -> None:
    """The CPU takes all that consists of whole groups; other backends say beforehand what they want."""
    if session.backend.name != "cpu":
        pytest.skip("tensor cores take multiples of 32 bytes; test_rules has what is said then")
    case = Case(session, data, factor, stored, small=True)
    got = session.get(execute(session, case.op))
    check(session, got, case.pre, case.scale, case.activation, factor, stored, case.k, case.between)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("factor, stored", PAIRS)
def test_every_activation_with_a_bias(session: Any, factor: DType, stored: DType, activation: Any) -> None:
    outer, n, k = 64, 48, 96
    w, x = structured(factor, (outer, k), 1), drawn(factor, (n, k), 2)
    bias = drawn_bias(stored, outer, 3)
    alpha = {"i8": 2.0**-9, "f8_e4m3": 0.25}.get(stored.name, 1.0)
    op = Linear(
        x=session.put(x),
        w=compressed(session, w),
        bias=session.put(bias),
        alpha=alpha,
        activation=activation,
        out_dtype=stored.name,
    )
    pre = alpha * (wide(x) @ wide(w).T) + wide(bias)
    scale = alpha * (abs(wide(x)) @ abs(wide(w)).T) + abs(wide(bias))
    check(session, session.get(execute(session, op)), pre, scale, activation, factor, stored, k)


@pytest.mark.parametrize("lies", [False, True], ids=["a number", "an array"])
@pytest.mark.parametrize("factor", EVERY)
def test_an_addend_is_not_read_where_beta_is_0(session: Any, factor: DType, lies: bool) -> None:
    w, x = structured(factor, (64, 64), 1), drawn(factor, (64, 32), 2)
    stored = DTYPES[RESULTS[factor.name][0]]
    c = session.put(poisoned(stored, (64, 32)))
    beta = session.put(np.float32(0)) if lies else 0.0
    got = session.get(execute(session, Matmul(a=compressed(session, w), b=by_columns(session, x), c=c, beta=beta)))
    check(session, got, wide(w) @ wide(x), abs(wide(w)) @ abs(wide(x)), None, factor, stored, 64)


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("factor, stored", PAIRS)
def test_alpha_and_beta_on_the_device(session: Any, factor: DType, stored: DType, activation: Any) -> None:
    outer, n, k = 64, 48, 96
    w, x = structured(factor, (outer, k), 1), drawn(factor, (n, k), 2)
    bias, c = drawn_bias(stored, outer, 4), drawn(DTYPES["i8"], (n, outer), 3).astype(kept(stored).np)
    a, beta = 2.0**-9 if stored.name in ("i8", "f8_e4m3") else 0.5, 2.0
    op = Linear(
        x=session.put(x),
        w=compressed(session, w),
        c=session.put(c),
        bias=session.put(bias),
        alpha=session.put(np.float32(a)),
        beta=session.put(np.float32(beta)),
        activation=activation,
        out_dtype=stored.name,
    )
    product, size = a * (wide(x) @ wide(w).T), a * (abs(wide(x)) @ abs(wide(w)).T)
    pre, scale = product + beta * wide(c) + wide(bias), size + beta * abs(wide(c)) + abs(wide(bias))
    got = session.get(execute(session, op))
    check(session, got, pre, scale, activation, factor, stored, k, abs(product))


def test_a_number_beside_an_array_scales_before_anything_is_rounded(session: Any) -> None:
    """The products alone would be infinite in f16."""
    factor = DTYPES["f16"]
    w, x = np.zeros((32, 64), factor.np), np.full((64, 16), 64, factor.np)
    w[:, ::2] = 64
    c, beta = session.put(np.ones((32, 16), factor.np)), session.put(np.float32(2))
    op = Matmul(a=compressed(session, w), b=by_columns(session, x), c=c, alpha=2.0**-7, beta=beta)
    np.testing.assert_array_equal(wide(session.get(execute(session, op))), 64 * 64 * 32 / 128 + 2)


@pytest.mark.parametrize("out", ["rows", "columns"])
@pytest.mark.parametrize("dense", ["rows", "columns"])
@pytest.mark.parametrize("factor", EVERY)
def test_the_fastest_algorithm_gives_the_same(session: Any, factor: DType, dense: str, out: str) -> None:
    outer, n, k = 128, 96, 256
    w, x = structured(factor, (outer, k), 1), drawn(factor, (k, n), 2)
    stored = DTYPES[RESULTS[factor.name][0]]
    result = place(session, poisoned(stored, (outer, n)), out).ref
    op = Matmul(a=compressed(session, w), b=place(session, x, dense).ref, out=result, autotune=True)
    for _ in range(2):
        got = session.get(execute(session, op))
        check(session, got, wide(w) @ wide(x), abs(wide(w)) @ abs(wide(x)), None, factor, stored, k)


def test_large_sums_of_i8(session: Any) -> None:
    """Sums that f32 does not hold come back as they are."""
    k = 4096
    w, x = np.zeros((32, k), np.int8), np.full((k, 16), 127, np.int8)
    w[:, ::4], w[:, 1::4] = 127, 127
    x[0] = 1
    got = session.get(execute(session, Matmul(a=compressed(session, w), b=by_columns(session, x))))
    np.testing.assert_array_equal(got, w.astype(np.int64) @ x.astype(np.int64))


@pytest.mark.parametrize("name", ["f8_e4m3", "f8_e5m2"])
def test_fp8_results_saturate(session: Any, name: str) -> None:
    factor = DTYPES[name]
    w = structured(factor, (32, 64), 1)
    w[wide(w) != 0] = 16
    w[1] = -wide(w)[1]
    x = np.full((64, 16), 16).astype(factor.np)
    op = Matmul(a=compressed(session, w), b=by_columns(session, x), alpha=1000.0, out_dtype=name)
    got = wide(session.get(execute(session, op)))
    np.testing.assert_array_equal(got[0], LARGEST[name])
    np.testing.assert_array_equal(got[1], -LARGEST[name])


@pytest.mark.parametrize("lie", [False, True], ids=["numbers", "arrays"])
def test_calls_in_flight_keep_their_own_operands(session: Any, lie: bool) -> None:
    """One plan, with other addresses and numbers each time, called far ahead of the device."""
    factor = DTYPES["f16"]
    w, x = structured(factor, (32, 64), 1), drawn(factor, (16, 64), 2)
    a, X = compressed(session, w), session.put(x)
    biases = [drawn(factor, (32,), 10 + i) for i in range(40)]
    held = [session.put(bias) for bias in biases]
    alphas = [session.put(np.float32(1 + i / 8)) if lie else 1 + i / 8 for i in range(40)]
    calls = [Linear(x=X, w=a, bias=z, alpha=f, activation="relu") for z, f in zip(held, alphas, strict=True)]
    ask = getattr(session.device, "ask", None) or session.submit
    for i, (ref, bias) in enumerate(zip([ask(op) for op in calls], biases, strict=True)):
        product = (1 + i / 8) * (wide(x) @ wide(w).T)
        pre, scale = product + wide(bias), (1 + i / 8) * (abs(wide(x)) @ abs(wide(w)).T) + abs(wide(bias))
        check(session, session.get(ref), pre, scale, "relu", factor, factor, 64, abs(product))


@pytest.mark.parametrize("factor", EVERY)
def test_wrong_operands_are_refused_at_the_call(session: Any, factor: DType) -> None:
    a = compressed(session, structured(factor, (64, 96), 1))
    x = session.put(drawn(factor, (96, 32), 2))
    wrong = session.put(np.zeros((96, 32), np.float64))
    for says, fields in {
        r"b is f64\[96, 32\] and a holds .*; both must have one dtype": {"b": wrong},
        r"the rows of b must be 96": {"b": x[:32]},
        r"out would be f64; with .* must be one of": {"b": x, "out_dtype": "f64"},
        r"bias is .*, expected .*\[64\] without gaps": {"b": x, "bias": x[:64, 0]},
        r"c is f64\[96, 32\], expected": {"b": x, "c": wrong, "beta": 1.0},
        r"beta is 1.0 and c is None": {"b": x, "beta": 1.0},
        r"alpha is f64\[\]; a 0-d array must be f32": {"b": x, "alpha": wrong[0, 0]},
        r"alpha is complex": {"b": x, "alpha": 1j},
    }.items():
        with pytest.raises(ShapeError, match=says):
            session.submit(Matmul(a=a, **fields))
    with pytest.raises(ShapeError, match=r"the columns of x must be 96"):
        session.submit(Linear(x=x, w=a))
    with pytest.raises(TypeError, match=r"a is .*; pass a StructuredRef"):
        Matmul(a=x, b=x)
