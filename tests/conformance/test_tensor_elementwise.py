"""Reductions, permutations and element-wise ops, against NumPy in long double."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from blas_lab import SHARED, complex_factors, dtypes, execute, factors, poisoned, scale_of, seeds
from hypothesis import given
from hypothesis import strategies as st
from tensor_lab import (
    ALL,
    ENGINES,
    FLOATS,
    einsum,
    engine_session,
    long,
    place_tensor,
    placed,
    tensor_layouts,
    tensor_values,
    wrapped,
)

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.tensor import Einsum, ElementwiseBinary, ElementwiseTrinary, Permutation, Reduction
from callboard.kernel.tensor.operators import UNARY
from callboard.testing.tolerances import assert_close


@pytest.fixture(scope="module", params=ENGINES)
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """As the one of all suites; on CUDA once for each engine."""
    yield from engine_session(request.param)


EVERY = [pytest.param(DTYPES[name], id=name) for name in ALL]
REAL = [pytest.param(DTYPES[name], id=name) for name in FLOATS[:4]]
LETTERS = "abcd"
JOINS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}

# Operator, its reference, and where it is tried: inside its domain, and away from poles.
ONE = np.longdouble(1)
OPERATORS: dict[str, tuple[Any, float, float]] = {
    "identity": (lambda x: x, -9, 9),
    "conj": (np.conj, -9, 9),
    "neg": (np.negative, -9, 9),
    "abs": (np.abs, -9, 9),
    "relu": (lambda x: np.maximum(x, 0), -9, 9),
    "sqrt": (np.sqrt, 0, 9),
    "rcp": (lambda x: ONE / x, 0.1, 9),
    "sigmoid": (lambda x: ONE / (1 + np.exp(-x)), -9, 9),
    "tanh": (np.tanh, -9, 9),
    "exp": (np.exp, -9, 9),
    "log": (np.log, 0.01, 0.8),
    "sin": (np.sin, -3, 3),
    "cos": (np.cos, -1.5, 1.5),
    "tan": (np.tan, -1.5, 1.5),
    "sinh": (np.sinh, -9, 9),
    "cosh": (np.cosh, -9, 9),
    "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 0.9),
    "atan": (np.arctan, -9, 9),
    "asinh": (np.arcsinh, -9, 9),
    "acosh": (np.arccosh, 1.1, 9),
    "atanh": (np.arctanh, -0.9, 0.9),
    "ceil": (np.ceil, -9, 9),
    "floor": (np.floor, -9, 9),
    "mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), -9, 9),
    "swish": (lambda x: x / (1 + np.exp(-x)), -9, 9),
    "soft_plus": (lambda x: np.log1p(np.exp(x)), -9, 9),
    "soft_sign": (lambda x: x / (1 + np.abs(x)), -9, 9),
}


def numbers(dtype: DType) -> Any:
    if dtype.is_integer:
        return factors(0.0, 1.0, -3.0)
    return complex_factors() if dtype.is_complex else factors()


def operators(dtype: DType) -> Any:
    """Of those that every element has."""
    names = ["identity", "conj", "neg"]
    return st.sampled_from(names if dtype.is_complex else [*names, "abs", "relu"])


def joins(dtype: DType) -> Any:
    return st.sampled_from(["add", "mul"] if dtype.is_complex else list(JOINS))


def check(got: Any, dtype: DType, want: Any, scale: Any, terms: int = 4) -> None:
    assert_close(
        got, wrapped(want, dtype), dtype, terms, kind=None if dtype.is_integer else "sum",
        scale=None if dtype.is_integer else np.asarray(scale, np.float64),
    )  # fmt: skip


def test_every_operator_is_tried() -> None:
    assert list(OPERATORS) == list(UNARY)


@pytest.mark.parametrize("operator", UNARY)
@pytest.mark.parametrize("dtype", REAL)
def test_operators_on_elements(session: Any, dtype: DType, operator: str) -> None:
    function, low, high = OPERATORS[operator]
    x = np.random.default_rng(3).uniform(low, high, (40, 25)).astype(dtype.np)
    got = session.get(execute(session, Permutation(a=session.put(x), modes_a="ij", modes_out="ji", op_a=operator)))
    want = function(long(x)).T
    assert_close(got, np.asarray(want), dtype, 4, scale=np.abs(want).astype(np.float64))


@pytest.mark.parametrize("operator", ["relu", "abs", "neg", "sqrt", "floor"])
@pytest.mark.parametrize("dtype", REAL)
def test_operators_on_what_is_no_number(session: Any, dtype: DType, operator: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0], dtype.np)
    got = session.get(execute(session, Permutation(a=session.put(x), modes_a="i", modes_out="i", op_a=operator)))
    with np.errstate(all="ignore"):
        want = OPERATORS[operator][0](long(x)).astype(dtype.np)
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


# -- permutations ------------------------------------------------------------------------------------------------------


@SHARED
@given(data=st.data(), dtype=dtypes(*ALL), seed=seeds, axes=st.integers(0, 4))
def test_permutations(session: Any, data: st.DataObject, dtype: DType, seed: int, axes: int) -> None:
    modes = LETTERS[:axes]
    out_modes = "".join(data.draw(st.permutations(modes)))
    shape = tuple(data.draw(st.sampled_from([0, 1, 2, 3, 9])) for _ in modes)
    a = tensor_values(dtype, shape, seed)
    alpha, operator = data.draw(numbers(dtype)), data.draw(operators(dtype))
    out_shape = tuple(shape[modes.index(x)] for x in out_modes)
    out = None
    if data.draw(st.booleans()):
        out = place_tensor(session, poisoned(dtype, out_shape), data.draw(tensor_layouts(out_shape)))
    op = Permutation(
        a=place_tensor(session, a, data.draw(tensor_layouts(shape))),
        modes_a=modes,
        modes_out=out_modes,
        out=out,
        alpha=alpha.of(session, scale_of(dtype)),
        op_a=operator,
    )
    want = alpha.value * einsum(f"{modes}->{out_modes}", OPERATORS[operator][0](long(a)))
    check(session.get(execute(session, op)), dtype, want, abs(want))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("shape, modes_out", [((70, 6, 45), "cba"), ((130, 66, 3), "bca"), ((70, 66, 2), "bac")])
@pytest.mark.parametrize("dtype", EVERY)
def test_large_permutations_keep_every_bit(
    session: Any, dtype: DType, shape: tuple[int, ...], modes_out: str, first: int
) -> None:
    """Several tiles and parts of them, at an address of no more than an element's alignment, too."""
    a = tensor_values(dtype, shape, 1)
    flat = session.put(np.concatenate([a.ravel()[:first], a.ravel()]))
    ref = flat[first:].reshape(*shape)
    got = session.get(execute(session, Permutation(a=ref, modes_a="abc", modes_out=modes_out)))
    np.testing.assert_array_equal(got, a.transpose(["abc".index(x) for x in modes_out]))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("modes", ["ij", "i"])
@pytest.mark.parametrize("name", ["f16", "f32", "i64", "c128"])
def test_large_sums_of_elements_are_exact(session: Any, name: str, modes: str, first: int) -> None:
    """More than one pack of neighbours for a thread: whole ones and, an element on, parts of them."""
    dtype = DTYPES[name]
    sizes = {"i": 1030, "j": 8192 // dtype.itemsize}  # 527,360 packs for 2,048 blocks of 256 threads
    a, b = (tensor_values(dtype, tuple(sizes[x] for x in m), seed) for seed, m in enumerate((modes, "ij")))
    refs = [session.put(np.concatenate([x.ravel()[:first], x.ravel()]))[first:].reshape(*x.shape) for x in (a, b)]
    op = ElementwiseBinary(a=refs[0], c=refs[1], modes_a=modes, modes_out="ij", op_ac="add")
    want = a.reshape([n if x in modes else 1 for x, n in sizes.items()]) + b
    np.testing.assert_array_equal(session.get(execute(session, op)), want)


SIZES = {"i": 3, "j": 7, "k": 24}
"""Of rows four at once and what is left of them, in whole packs of neighbours."""


def along(array: Any, modes: str) -> Any:
    return long(array).reshape([n if x in modes else 1 for x, n in SIZES.items()])


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("join", ["add", "mul", "max"])
@pytest.mark.parametrize("modes", ["i", "j", "ij", "k"])
@pytest.mark.parametrize("dtype", EVERY)
def test_an_element_meets_a_row(session: Any, dtype: DType, modes: str, join: str, first: int) -> None:
    if dtype.is_complex and join == "max":
        return  # complex numbers have no order
    a, c = (tensor_values(dtype, tuple(SIZES[x] for x in m), seed) for seed, m in enumerate((modes, "ijk")))
    alpha, gamma = (2, -1) if dtype.is_integer else (2.0, -1.0)
    op = ElementwiseBinary(
        a=placed(session, a, first), c=placed(session, c, first), modes_a=modes, modes_out="ijk",
        op_ac=join, alpha=alpha, gamma=gamma,
    )  # fmt: skip
    left, right = alpha * along(a, modes), gamma * along(c, "ijk")
    want = JOINS[join](left, right)
    check(session.get(execute(session, op)), dtype, want, abs(left) + abs(right) + abs(want))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("modes", [("ij", "k"), ("k", "ij"), ("ijk", "ij"), ("i", "jk"), ("ik", "j")])
@pytest.mark.parametrize("dtype", EVERY)
def test_products_of_all_pairs(session: Any, dtype: DType, modes: tuple[str, str], first: int) -> None:
    a, b = (tensor_values(dtype, tuple(SIZES[x] for x in m), seed) for seed, m in enumerate(modes))
    op = Einsum(equation=f"{modes[0]},{modes[1]}->ijk", operands=tuple(placed(session, x, first) for x in (a, b)))
    want = along(a, modes[0]) * along(b, modes[1])
    check(session.get(execute(session, op)), dtype, want, abs(want))


def test_a_diagonal(session: Any) -> None:
    a = tensor_values(DTYPES["f32"], (4, 3, 4), 1)
    got = session.get(execute(session, Permutation(a=session.put(a), modes_a="iji", modes_out="ji")))
    np.testing.assert_array_equal(got, einsum("iji->ji", a))


# -- reductions --------------------------------------------------------------------------------------------------------

NUMPY_REDUCTIONS = {"add": np.sum, "mul": np.prod, "max": np.max, "min": np.min}


@SHARED
@given(data=st.data(), dtype=dtypes(*ALL), seed=seeds, axes=st.integers(0, 4))
def test_reductions(session: Any, data: st.DataObject, dtype: DType, seed: int, axes: int) -> None:
    modes = LETTERS[:axes]
    out_modes = "".join(
        data.draw(st.permutations(data.draw(st.lists(st.sampled_from(modes), unique=True) if modes else st.just([]))))
    )
    operator, reduce = data.draw(operators(dtype)), data.draw(joins(dtype))
    extents = [0, 1, 2, 3, 40] if reduce == "add" else [1, 2, 3]
    shape = tuple(data.draw(st.sampled_from(extents)) for _ in modes)
    a = tensor_values(dtype, shape, seed)
    alpha, beta = data.draw(numbers(dtype)), data.draw(numbers(dtype))
    out_shape = tuple(shape[modes.index(x)] for x in out_modes)
    c = tensor_values(dtype, out_shape, seed + 1) if beta.on_device or beta.value != 0 else None
    op = Reduction(
        a=place_tensor(session, a, data.draw(tensor_layouts(shape))),
        modes_a=modes,
        modes_out=out_modes,
        c=None if c is None else place_tensor(session, c, data.draw(tensor_layouts(out_shape))),
        op_reduce=reduce,
        alpha=alpha.of(session, scale_of(dtype)),
        beta=beta.of(session, scale_of(dtype)),
        op_a=operator,
        op_c="neg",
    )
    rest = [x for x in modes if x not in out_modes]
    turned = OPERATORS[operator][0](long(a)).transpose([modes.index(x) for x in (*out_modes, *rest)])
    axis = tuple(range(len(out_modes), len(modes)))
    terms = int(np.prod([turned.shape[i] for i in axis]))
    with np.errstate(all="ignore"):
        want = alpha.value * NUMPY_REDUCTIONS[reduce](turned, axis=axis)
    size = np.sum(abs(turned), axis=axis) if reduce == "add" else abs(want)
    scale = abs(alpha.value) * size if reduce == "add" else size * np.sqrt(terms)
    if c is not None:
        want, scale = want - beta.value * long(c), scale + abs(beta.value) * abs(long(c))
    check(session.get(execute(session, op)), dtype, want, scale, terms + 4)


@pytest.mark.parametrize(
    "shape, modes_out", [((300_000,), ""), ((3, 100_000), "i"), ((100_000, 3), "j"), ((600, 700), "")]
)
@pytest.mark.parametrize("dtype", EVERY)
def test_long_reductions(session: Any, dtype: DType, shape: tuple[int, ...], modes_out: str) -> None:
    """They are done in parts, in a fixed order."""
    a = tensor_values(dtype, shape, 1)
    op = Reduction(a=session.put(a), modes_a="ij"[: len(shape)], modes_out=modes_out)
    got = session.get(execute(session, op))
    axis = tuple(i for i in range(len(shape)) if "ij"[i] not in modes_out)
    want, scale = np.sum(long(a), axis=axis), np.sum(abs(long(a)), axis=axis)
    check(got, dtype, want, scale, a.size // max(got.size, 1))
    np.testing.assert_array_equal(got, session.get(execute(session, op)))


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("dtype", [p for p in EVERY if not p.values[0].is_complex])
def test_extremes(session: Any, dtype: DType, reduce: str) -> None:
    a = tensor_values(dtype, (5, 4000), 1)
    ref = session.put(a)
    got = session.get(execute(session, Reduction(a=ref, modes_a="ij", modes_out="i", op_reduce=reduce)))
    np.testing.assert_array_equal(got, getattr(np, reduce)(a, axis=1))
    if dtype.is_float:
        a[2, 1234] = np.nan
        got = session.get(execute(session, Reduction(a=session.put(a), modes_a="ij", modes_out="i", op_reduce=reduce)))
        assert np.isnan(got.astype("f8")).tolist() == [False, False, True, False, False]


def test_of_nothing(session: Any) -> None:
    none = session.put(np.ones((3, 0), "f4"))
    for reduce, want in (("add", 0), ("mul", 1)):
        got = session.get(execute(session, Reduction(a=none, modes_a="ij", modes_out="i", op_reduce=reduce)))
        np.testing.assert_array_equal(got, np.full(3, want))
    with pytest.raises(ShapeError, match=re.escape("a is f32[3, 0]: nothing has no max")):
        session.submit(Reduction(a=none, modes_a="ij", modes_out="i", op_reduce="max"))
    empty = execute(session, Reduction(a=none, modes_a="ij", modes_out="j", op_reduce="max"))
    assert session.get(empty).shape == (0,)


# -- two and three tensors ---------------------------------------------------------------------------------------------


@SHARED
@given(data=st.data(), dtype=dtypes(*ALL), seed=seeds, axes=st.integers(0, 4), three=st.booleans())
def test_elementwise(session: Any, data: st.DataObject, dtype: DType, seed: int, axes: int, three: bool) -> None:
    modes = LETTERS[:axes]
    out_modes = "".join(data.draw(st.permutations(modes)))
    extents = {x: data.draw(st.sampled_from([0, 1, 2, 3, 9])) for x in modes}
    names = "abc" if three else "ac"
    theirs = {x: "".join(data.draw(st.permutations(modes)))[: data.draw(st.integers(0, 4))] for x in names}
    theirs["c"] = out_modes
    arrays, fields, terms = {}, {}, {}
    for i, name in enumerate(names):
        shape = tuple(extents[x] for x in theirs[name])
        arrays[name] = tensor_values(dtype, shape, seed + i)
        ref = place_tensor(session, arrays[name], data.draw(tensor_layouts(shape)))
        factor, operator = data.draw(numbers(dtype)), data.draw(operators(dtype))
        number = {"a": "alpha", "b": "beta", "c": "gamma"}[name]
        fields |= {name: ref, number: factor.of(session, scale_of(dtype)), f"op_{name}": operator}
        value = factor.value * OPERATORS[operator][0](long(arrays[name]))
        terms[name] = einsum(f"{theirs[name]}->{''.join(x for x in out_modes if x in theirs[name])}", value)[
            tuple(slice(None) if x in theirs[name] else None for x in out_modes)
        ]
    fields |= {f"modes_{name}": theirs[name] for name in names if name != "c"} | {"modes_out": out_modes}
    first, second = data.draw(joins(dtype)), data.draw(joins(dtype))
    op = ElementwiseTrinary(**fields, op_ab=first, op_abc=second) if three else ElementwiseBinary(**fields, op_ac=first)
    want, scale = terms["a"], abs(terms["a"])
    for name, join in (("b", first), ("c", second)) if three else (("c", first),):
        want = JOINS[join](want, terms[name])
        scale = scale * abs(terms[name]) if join == "mul" else scale + abs(terms[name])
    got = session.get(execute(session, op))
    check(got, dtype, np.broadcast_to(want, got.shape), np.broadcast_to(scale, got.shape))


@pytest.mark.parametrize("dtype", EVERY)
def test_out_may_be_c(session: Any, dtype: DType) -> None:
    a, b, c = (tensor_values(dtype, (4, 5), i) for i in range(3))
    at = session.put(c)
    execute(session, ElementwiseBinary(a=session.put(a), c=at, modes_a="ij", modes_out="ij", out=at))
    check(session.get(at), dtype, long(a) + long(c), abs(a) + abs(long(c)))
    at = session.put(c)
    op = ElementwiseTrinary(
        a=session.put(a), b=session.put(b), c=at, modes_a="ij", modes_b="ij", modes_out="ij", out=at, op_ab="mul"
    )
    execute(session, op)
    check(session.get(at), dtype, long(a) * long(b) + long(c), abs(long(a) * long(b)) + abs(long(c)))


@pytest.mark.parametrize("dtype", [pytest.param(DTYPES[name], id=name) for name in FLOATS])
def test_what_0_multiplies_is_not_read(session: Any, dtype: DType) -> None:
    a, nan = session.put(tensor_values(dtype, (3, 4), 1)), session.put(poisoned(dtype, (3, 4)))
    for zero in (0.0, session.put(np.array(0, scale_of(dtype).np))):
        fields: dict[str, Any] = {"modes_a": "ij", "modes_out": "ij"}
        got = session.get(execute(session, ElementwiseBinary(a=a, c=nan, gamma=zero, **fields)))
        np.testing.assert_array_equal(got, session.get(a))
        got = session.get(execute(session, Permutation(a=nan, alpha=zero, **fields)))
        np.testing.assert_array_equal(got.astype("c16"), 0)


@pytest.mark.parametrize("join, want", [("max", [np.nan, np.nan, 2]), ("min", [np.nan, np.nan, 1])])
def test_extremes_are_nan_where_an_operand_is(session: Any, join: Any, want: list[float]) -> None:
    a, c = session.put(np.array([np.nan, 1, 1], "f4")), session.put(np.array([1, np.nan, 2], "f4"))
    got = session.get(execute(session, ElementwiseBinary(a=a, c=c, modes_a="i", modes_out="i", op_ac=join)))
    np.testing.assert_array_equal(got, want)


# -- refused -----------------------------------------------------------------------------------------------------------

BAD: list[tuple[Any, str]] = [
    (lambda x: Permutation(a=x.f, modes_a="ij", modes_out="i"), "modes_out 'i' leaves out 'j'"),
    (lambda x: Permutation(a=x.f, modes_a="ij", modes_out="ijk"), "modes_out 'ijk' names 'k'"),
    (lambda x: Permutation(a=x.c, modes_a="ij", modes_out="ij", op_a="exp"), "op_a is 'exp' and the arrays are c64"),
    (lambda x: Permutation(a=x.i, modes_a="ij", modes_out="ij", op_a="sqrt"), "op_a is 'sqrt' and the arrays are i32"),
    (lambda x: Permutation(a=x.i, modes_a="ij", modes_out="ij", alpha=0.5), "alpha is 0.5; with i32 arrays"),
    (lambda x: Reduction(a=x.c, modes_a="ij", modes_out="i", op_reduce="max"), "op_reduce is 'max' and the arrays"),
    (lambda x: Reduction(a=x.f, modes_a="ij", modes_out="i", c=x.f, beta=1.0), "c is f32[2, 3], expected f32[2]"),
    (lambda x: Reduction(a=x.f, modes_a="ij", modes_out="i", beta=1.0), "beta is 1.0 and c is None"),
    (
        lambda x: ElementwiseBinary(a=x.f, c=x.f, modes_a="ji", modes_out="ij"),
        "mode 'i' has extent 2 in out (f32[2, 3]) and 3 in a (f32[2, 3])",
    ),
    (lambda x: ElementwiseBinary(a=x.f, c=x.c, modes_a="ij", modes_out="ij"), "c is c64[2, 3] and a is f32[2, 3]"),
    (lambda x: ElementwiseBinary(a=x.f, c=x.f, modes_a="ik", modes_out="ij"), "leaves out 'k'"),
]  # fmt: skip


class Arrays:
    def __init__(self, session: Any) -> None:
        ones = np.ones((2, 3))
        self.f, self.c, self.i = (session.put(ones.astype(kind)) for kind in ("f4", "c8", "i4"))


@pytest.mark.parametrize("make, text", BAD)
def test_refused_by_name(session: Any, make: Any, text: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(text)):
        session.submit(make(Arrays(session)))


@pytest.mark.parametrize("name", ["f32", "c128"])
@pytest.mark.few(1)
def test_large_arrays(session: Any, name: str) -> None:
    """Large enough that a backend with several ways goes another one than with small arrays."""
    dtype = DTYPES[name]
    rows = (16 << 20) // (1030 * dtype.itemsize) + 1
    a, c = tensor_values(dtype, (rows, 1030), 1), tensor_values(dtype, (1030, rows), 2)
    at_a, at_c = session.put(a), session.put(c)
    wide = a.astype("c16" if dtype.is_complex else "f8")
    got = session.get(execute(session, Permutation(a=at_a, modes_a="ij", modes_out="ji", alpha=-2.0)))
    np.testing.assert_array_equal(got, -2 * a.T)
    op = ElementwiseBinary(a=at_a, c=at_c, modes_a="ij", modes_out="ji", gamma=2.0, op_c="neg")
    check(session.get(execute(session, op)), dtype, wide.T - 2 * c, abs(wide.T) + 2 * abs(c))
    for modes_out, axis in (("i", 1), ("j", 0), ("", (0, 1))):
        got = session.get(execute(session, Reduction(a=at_a, modes_a="ij", modes_out=modes_out)))
        want, scale = wide.sum(axis=axis), abs(wide).sum(axis=axis)
        check(got, dtype, want, scale, a.size // max(got.size, 1))
