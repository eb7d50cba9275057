"""``dev.cutlass``: products with epilogues, groups, convolutions, other weights; against NumPy in f64."""

import math
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import callboard as cb
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel.cutlass import Conv, Explain, ExplainConv, Gemm, GroupedGemm, Refit
from callboard.kernel.cutlass.api import CutlassApi
from callboard.kernel.cutlass.fused import inputs_of
from callboard.testing.device_session import DeviceSession

Tree = cb.EpilogueVisitorTree
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-5, "f64": 1e-12}
"""Relative to the largest value: of the dtype of the result."""
M, N, K = 19, 24, 32


def drawn(dtype: str, *shape: int, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    if dtype == "i8":
        return rng.integers(-9, 9, shape).astype(np.int8)
    return (rng.standard_normal(shape) / 2).astype(DTYPES[dtype].np)


def run(session: Any, op: type, a: Any, b: Any, tree: Any = None, *, arrays: Any = None, **settings: Any) -> Any:
    nodes = () if tree is None else tree.nodes
    inputs = tuple(session.put((arrays or {})[name]) for name in inputs_of(nodes))
    return session.get(
        session.submit(op(a=session.put(a), b=session.put(b), epilogue=nodes, inputs=inputs, **settings))
    )


def close(found: Any, want: Any, dtype: str) -> None:
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(found.astype(np.float64) / scale, want / scale, rtol=0, atol=TOLERANCE[dtype])


def wide(x: Any) -> Any:
    return x.astype(np.float64)


def gelu(x: Any) -> Any:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


erf = np.vectorize(math.erf, otypes=[np.float64])

TREES: dict[str, tuple[Any, Any]] = {
    "bias": (Tree().bias(), lambda x, g: x + g["bias"]),
    "bias_relu": (Tree().bias().relu(), lambda x, g: np.maximum(x + g["bias"], 0)),
    "gelu_residual": (Tree().gelu().residual(), lambda x, g: gelu(x) + g["residual"]),
    "exact_gelu": (Tree().bias().gelu("none"), lambda x, g: (x + g["bias"]) / 2 * (1 + erf((x + g["bias"]) / 2**0.5))),
    "softplus": ((Tree().apply("exp") + 1).apply("log"), lambda x, g: np.log1p(np.exp(x))),
    "rows": (Tree().bias("r", per="row").scale("t"), lambda x, g: (x + g["r"][:, None]) * g["t"]),
    "gated": (Tree().silu().gate("residual", "sigmoid"), lambda x, g: x * sigmoid(x) * sigmoid(g["residual"])),
    "shared": (
        (Tree().tanh() * 2.0 + Tree().scale("bias", per="column")).clamp(-0.5, 0.75),
        lambda x, g: np.clip(np.tanh(x) * 2 + x * g["bias"], -0.5, 0.75),
    ),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_epilogues(session: Any, dtype: str, name: str) -> None:
    """Any tree, of arrays and numbers, in one and two uses of the product."""
    tree, oracle = TREES[name]
    a, b = drawn(dtype, M, K), drawn(dtype, K, N, seed=2)
    arrays = {"bias": drawn(dtype, N), "residual": drawn(dtype, M, N), "r": drawn("f32", M), "t": np.float32(1.5)}
    found = run(session, Gemm, a, b, tree, arrays=arrays, alpha=0.5)
    close(found, oracle(0.5 * wide(a) @ wide(b), {n: wide(x) for n, x in arrays.items()}), dtype)


@pytest.mark.parametrize("dtype, stored", [("f16", "f32"), ("f32", "f32"), ("f32", "bf16"), ("f64", "f64")])
def test_an_addend_in_place_and_a_batch(session: Any, dtype: str, stored: str) -> None:
    a, b, c = drawn(dtype, 3, M, K), drawn(dtype, K, N, seed=2), drawn(stored, 3, M, N)
    placed = session.put(c)
    message = {"c": placed, "out": placed, "beta": 2.0, "out_dtype": stored}
    found = run(session, Gemm, a, b, Tree().bias(), arrays={"bias": drawn("f32", 3, N)}, **message)
    close(found, wide(a) @ wide(b) + 2 * wide(c) + wide(drawn("f32", 3, N))[:, None], stored)


@pytest.mark.parametrize("dtype", ["i8", "f8_e4m3", "f8_e5m2"])
def test_quantised_results_are_rounded_once_and_saturate(session: Any, dtype: str) -> None:
    a, b = drawn("f32", M, K), drawn("f32", K, N, seed=2)
    scale = np.where(np.arange(N) % 2, 8.0, 1e6).astype(np.float32)
    tree = Tree().scale("scale", per="column").quantize(dtype)
    found = run(session, Gemm, np.eye(M, K, dtype="f4"), b, tree, arrays={"scale": scale})
    exact = (np.eye(M, K, dtype="f4") @ b) * scale
    limits = (-128.0, 127.0) if dtype == "i8" else (-float(ml_dtypes.finfo(DTYPES[dtype].np).max),) * 2
    clipped = np.clip(exact, limits[0], abs(limits[1]))
    want = np.rint(clipped).astype(np.int8) if dtype == "i8" else clipped.astype(DTYPES[dtype].np)
    np.testing.assert_array_equal(found.astype(np.float32), want.astype(np.float32))
    assert a.dtype == np.float32
    assert found.dtype == DTYPES[dtype].np


def test_narrow_factors(session: Any) -> None:
    """i8 sums in i32, exactly; fp8 in f32."""
    a, b = drawn("i8", 16, K), drawn("i8", 16, K, seed=2)
    exact = a.astype(int) @ b.astype(int).T
    message = Gemm(a=session.put(a), b=session.put(b).T)
    np.testing.assert_array_equal(session.get(session.submit(message)), exact)
    tree = Tree().scale(0.125).quantize("i8")
    found = session.get(session.submit(Gemm(a=message.a, b=message.b, epilogue=tree.nodes)))
    np.testing.assert_array_equal(found, np.clip(np.rint(exact / 8), -128, 127))
    x, y = drawn("f8_e4m3", 16, K), drawn("f8_e4m3", 16, K, seed=2)
    found = session.get(session.submit(Gemm(a=session.put(x), b=session.put(y).T, epilogue=Tree().relu().nodes)))
    close(found, np.maximum(wide(x) @ wide(y).T, 0), "bf16")


@pytest.mark.parametrize("batch", [(), (2,)])
def test_reductions(session: Any, batch: tuple[int, ...]) -> None:
    """Sums, maxima, minima and means of a value anywhere in the tree, for each row and column."""
    a, b = drawn("f32", *batch, M, K), drawn("f32", *batch, K, N, seed=2)
    tree = Tree().reduce("max", "row", "top").scale(2.0).reduce("sum", "column", "sums").reduce("mean", "row", "means")
    tree = tree.reduce("min", "column", "least")
    shapes = [(*batch, M), (*batch, N), (*batch, M), (*batch, N)]
    targets = tuple(session.put(np.zeros(shape, np.float32)) for shape in shapes)
    close(run(session, Gemm, a, b, tree, reductions=targets), 2 * wide(a) @ wide(b), "f32")
    product = wide(a) @ wide(b)
    want = [product.max(-1), 2 * product.sum(-2), 2 * product.mean(-1), 2 * product.min(-2)]
    for target, numbers in zip(targets, want, strict=True):
        close(session.get(target), numbers, "f32")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64"])
@pytest.mark.few(1)
def test_groups(session: Any, dtype: str) -> None:
    """Ragged, empty ones among them; a bias and an activation for each."""
    sizes = [5, 0, 17, 1, 0]
    offsets = np.cumsum([0, *sizes]).astype(np.int32)
    rows, groups = int(offsets[-1]), len(sizes)
    a, b, bias = drawn(dtype, rows, K), drawn(dtype, groups, K, N, seed=2), drawn(dtype, groups, N)
    group = np.repeat(np.arange(groups), sizes)
    found = run(session, GroupedGemm, a, b, Tree().bias().relu(), arrays={"bias": bias}, offsets=session.put(offsets))
    close(found, np.maximum(np.einsum("mk,mkn->mn", wide(a), wide(b)[group]) + wide(bias)[group], 0), dtype)


def test_offsets_out_of_range_are_limited(session: Any) -> None:
    """Nothing outside of the arrays is read; rows in no group are the epilogue of 0."""
    a, b = drawn("f32", 6, K), drawn("f32", 2, K, N, seed=2)
    offsets = np.array([2, -5, 1 << 30], np.int32)
    found = run(session, GroupedGemm, a, b, Tree() + 1.0, offsets=session.put(offsets))
    close(found, wide(a) @ wide(b)[1] + 1, "f32")
    offsets = np.array([1, 3, 4], np.int32)
    found = run(session, GroupedGemm, a, b, Tree() + 1.0, offsets=session.put(offsets))
    np.testing.assert_array_equal(found[[0, 4, 5]], np.ones((3, N), np.float32))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_convolutions(session: Any, dtype: str) -> None:
    """Forward with an epilogue, and both gradients, against sums over the filter's places."""
    x, w = drawn(dtype, 2, 7, 6, 8), drawn(dtype, 8, 3, 2, 8, seed=2)
    settings: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
    bias = drawn(dtype, 8)
    padded = np.pad(wide(x), ((0, 0), (1, 1), (2, 2), (0, 0)))
    places = [(r, s, padded[:, r : r + 7 : 2, 2 * s : 2 * s + 8]) for r in range(3) for s in range(2)]
    y = sum(part @ wide(w)[:, r, s].T for r, s, part in places)
    found = run(session, Conv, x, w, Tree().bias().relu(), arrays={"bias": bias}, **settings)
    close(found, np.maximum(y + wide(bias), 0), dtype)
    dy = drawn(dtype, *y.shape, seed=3)
    back = np.zeros_like(padded)
    for r, s, _ in places:
        back[:, r : r + 7 : 2, 2 * s : 2 * s + 8] += wide(dy) @ wide(w)[:, r, s]
    found = run(session, Conv, dy, w, kind="dgrad", extent=(7, 6), out_dtype="f32", **settings)
    close(found, back[:, 1:-1, 2:-2], dtype)
    found = run(session, Conv, dy, x, kind="wgrad", extent=(3, 2), out_dtype="f32", **settings)
    want = np.zeros(w.shape)
    for r, s, part in places:
        want[:, r, s] = np.einsum("npqk,npqc->kc", wide(dy), part)
    close(found, want, dtype)


def test_refit_and_empty_extents(session: Any) -> None:
    old, new = session.put(drawn("f32", K, N)), session.put(drawn("f32", K, N, seed=9))
    session.submit(Refit(new=(new,), into=(old,)))
    np.testing.assert_array_equal(session.get(old), session.get(new))
    found = run(session, Gemm, drawn("f32", 3, 0), drawn("f32", 0, N), Tree() + 1.0)
    np.testing.assert_array_equal(found, np.ones((3, N)))
    assert run(session, Gemm, drawn("f32", 0, K), drawn("f32", K, N), Tree() + 1.0).shape == (0, N)


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda a: Gemm(a=a, b=a[:2]), r"32 columns and 2 rows"),
        (lambda a: Gemm(a=a, b=a, beta=1.0), "c is None; pass c="),
        (
            lambda a: Gemm(a=a, b=a, epilogue=Tree().bias().nodes, inputs=(a,)),
            r"node %1 = column\('bias'\): .* expected \[32\]",
        ),
        (lambda a: Gemm(a=a, b=a, epilogue=Tree().bias().nodes), "0 inputs for the epilogue's bias"),
        (lambda a: Gemm(a=a, b=a, epilogue=Tree.number(1).nodes), "no node reads the accumulator"),
        (lambda a: Gemm(a=a, b=a, accum="f64"), "accum is f64; products of f32 are summed in f32"),
        (lambda a: Gemm(a=a, b=a, out_dtype="c64"), "its dtype must be one of f16"),
        (lambda a: GroupedGemm(a=a, b=a, offsets=a), r"expected \[rows, k\] and \[groups, k, n\]"),
        (lambda a: Conv(a=a, b=a), "it must have 4 axes"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(session: Any, make: Any, why: str) -> None:
    with pytest.raises(ShapeError, match=why):
        session.submit(make(session.put(drawn("f32", 32, 32))))


def test_what_executes_a_product_is_told(session: Any) -> None:
    a, x = session.put(drawn("f32", 32, 32)), session.put(drawn("f32", 2, 4, 4, 8))
    for message in (Explain(a=a, b=a, epilogue=Tree().relu().nodes), ExplainConv(a=x, b=x)):
        told = session.submit(message)
        told = told.result() if hasattr(told, "result") else told
        if told is None:
            pytest.skip("a recording answers with arrays, and not in words")
        assert "launch" in told or "numpy" in told


COMPILING = 900.0
"""Seconds. nvcc takes up to 90 s of an idle core for a text, thrice that on busy ones; a case needs up to three."""
ENGINES = ("auto", "vendor", pytest.param("cutlass", marks=pytest.mark.timeout(COMPILING + 60)))


def by(engine: str, session: Any, op: type, *operands: Any, **settings: Any) -> Any:
    """The result by an engine; None if the session says that it cannot be this one."""
    if engine == "cutlass" and not getattr(session, "launches_templates", True):
        pytest.skip("stand-ins for the driver run no template")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "wait", COMPILING, raising=False)
            return run(session, op, *operands, engine=engine, **settings)
    except (cb.UnsupportedOp, cb.BackendUnavailable) as e:
        if engine == "cutlass" and any(
            word in str(e) for word in ("engine is 'cutlass'", "templates", "headers", "nvcc")
        ):
            return None
        raise


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["bias_relu", "gelu_residual", "gated"])
def test_every_engine_gives_the_same_product(session: Any, engine: str, name: str) -> None:
    """Extents over the borders of a template's tile, and rows of 16 bytes, as templates need them."""
    tree, oracle = TREES[name]
    for m, n, k in ((128, 256, 64), (136, 264, 72)):
        a, b = drawn("bf16", m, k), drawn("bf16", k, n, seed=2)
        arrays = {"bias": drawn("bf16", n), "residual": drawn("bf16", m, n)}
        found = by(engine, session, Gemm, a, b, tree, arrays=arrays, alpha=0.5)
        if found is not None:
            close(found, oracle(0.5 * wide(a) @ wide(b), {key: wide(x) for key, x in arrays.items()}), "bf16")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_same_groups_and_convolutions(session: Any, engine: str) -> None:
    a, b = drawn("bf16", 24, 32), drawn("bf16", 3, 32, 16, seed=2)
    offsets = np.array([0, 7, 7, 24], np.int32)
    found = by(engine, session, GroupedGemm, a, b, Tree().relu(), offsets=session.put(offsets))
    if found is not None:
        group = np.repeat(np.arange(3), np.diff(offsets))
        close(found, np.maximum(np.einsum("mk,mkn->mn", wide(a), wide(b)[group]), 0), "bf16")
    x, w = drawn("bf16", 2, 5, 5, 8), drawn("bf16", 8, 1, 1, 8, seed=2)
    found = by(engine, session, Conv, x, w, Tree().relu())
    if found is not None:
        close(found, np.maximum(np.einsum("nhwc,kc->nhwk", wide(x), wide(w)[:, 0, 0]), 0), "bf16")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_experts_are_grouped_products(session: Any, dtype: str) -> None:
    """:class:`callboard.GroupedExperts` on the session: a gate, and an expert without rows."""
    if not isinstance(session, DeviceSession):
        pytest.skip("experts take the refs of a device")
    up, gate = drawn(dtype, 3, 16, 24), drawn(dtype, 3, 16, 24, seed=2)
    down, rows = drawn(dtype, 3, 24, 16, seed=3), drawn(dtype, 9, 16, seed=4)
    offsets = np.array([0, 4, 4, 9], np.int32)
    device: Any = SimpleNamespace(put=session.put, cutlass=CutlassApi(session.submit, session.put))
    experts = cb.GroupedExperts(device, up, down, activation="silu", gate=gate)
    found = session.get(experts(session.put(rows), session.put(offsets)))
    of_row = np.repeat(np.arange(3), np.diff(offsets))
    x, gates = (np.einsum("rk,rkn->rn", wide(rows), wide(each)[of_row]) for each in (up, gate))
    close(found, np.einsum("rk,rkn->rn", gates * sigmoid(gates) * x, wide(down)[of_row]), dtype)
