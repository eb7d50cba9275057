"""``dev.cutlass.gemm`` of factors that need more than their dtype: scales of fp8, TF32, sums of i8, a long ``k``."""

from typing import Any

import numpy as np
import pytest
from fp8_lab import by_columns
from test_blas_lt_scales import scales_for, spread
from test_cutlass import ENGINES, Tree, by, close, drawn, sigmoid, wide

from callboard.core.errors import ShapeError
from callboard.kernel.cutlass import Explain, Gemm

BLOCKS = {"1x128": (1, 1), "128x128 of a": (128, 1), "128x128 of b": (1, 128)}
"""Rows of ``a`` and columns of ``b`` that share a scale of a block."""


def factors(session: Any, m: int, n: int, k: int, dtype: str = "f8_e4m3") -> tuple[Any, Any, dict[str, Any]]:
    """Both factors and, as operands, ``a`` by rows and ``b`` by columns."""
    a, b = drawn(dtype, m, k), drawn(dtype, k, n, seed=2)
    return a, b, {"a": session.put(a), "b": by_columns(session, b)}


def numbers(*shape: int, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


def scaled(session: Any, kind: str, m: int, n: int, k: int) -> tuple[Any, Any, dict[str, Any]]:
    """Factors of ``a`` and ``b`` as arrays, and the operands of a message."""
    if kind in BLOCKS:
        rows, columns = BLOCKS[kind]
        of_a, of_b = numbers(-(-m // rows), -(-k // 128), seed=3), numbers(-(-k // 128), -(-n // columns), seed=4)
        given = {"scale_a": scales_for(session, of_a, inner=1, tiled=rows > 1)}
        given["scale_b"] = scales_for(session, of_b, inner=0, tiled=columns > 1)
        return spread(of_a, (m, k), (rows, 128)), spread(of_b, (k, n), (128, columns)), given
    if kind == "rows and columns":
        of_a, of_b = numbers(m, seed=3), numbers(n, seed=4)
        return of_a[:, None], of_b, {"scale_a": session.put(of_a), "scale_b": session.put(of_b)}
    one = np.float32(0.75)
    return one, np.float32(1), {"scale_a": session.put(one)}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [*BLOCKS, "rows and columns", "one"])
def test_scales_of_factors(session: Any, kind: str, engine: str) -> None:
    """With an epilogue that cuBLASLt has, and with one that follows as a kernel; blocks at the edges are smaller."""
    for m, n, k in ((144, 160, 208), (260, 384, 512)):
        a, b, given = factors(session, m, n, k)
        of_a, of_b, scales = scaled(session, kind, m, n, k)
        product = 0.5 * (wide(a) * of_a) @ (wide(b) * of_b)
        gate = drawn("bf16", m, n, seed=5)
        trees: Any = [(Tree().relu(), (), np.maximum(product, 0))]
        trees += [(Tree().silu().gate("g"), (session.put(gate),), product * sigmoid(product) * wide(gate))]
        for tree, inputs, want in trees:
            message = {**given, **scales, "epilogue": tree.nodes, "inputs": inputs, "alpha": 0.5}
            found = by_message(engine, session, message)
            if found is not None:
                close(found, want, "bf16")


def by_message(engine: str, session: Any, message: Any) -> Any:
    """The result of a message whose operands are placed; see :func:`by`."""

    def operation(**fields: Any) -> Gemm:
        placed = {name: value for name, value in fields.items() if name not in ("a", "b", "epilogue", "inputs")}
        return Gemm(**message, **placed)

    return by(engine, session, operation, np.float32(0), np.float32(0))  # type: ignore[arg-type]


def test_scales_and_precision_are_told(session: Any) -> None:
    """An explanation takes what the product takes."""
    _, _, given = factors(session, 128, 128, 256)
    _, _, scales = scaled(session, "128x128 of b", 128, 128, 256)
    told = session.submit(Explain(**given, **scales))
    told = told.result() if hasattr(told, "result") else told
    if told is None:
        pytest.skip("a recording answers with arrays, and not in words")
    assert "launch" in told or "numpy" in told


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tree", [None, Tree().silu()], ids=["plain", "silu"])
def test_tf32(session: Any, engine: str, tree: Any) -> None:
    """Numbers of few bits are exact in it; all others are right to 10 bits."""
    m, n, k = 136, 264, 72
    for step, dtype in ((1 / 8, "f32"), (0, "f16")):
        a, b, _ = factors(session, m, n, k, "f32")
        if step:
            a, b = (np.rint(x / step).astype(np.float32) * np.float32(step) for x in (a, b))
        message: dict[str, Any] = {"a": session.put(a), "b": by_columns(session, b), "tf32": True}
        if tree is not None:
            message["epilogue"] = tree.nodes
        found = by_message(engine, session, message)
        if found is not None:
            x = wide(a) @ wide(b)
            close(found, x if tree is None else x * sigmoid(x), dtype)


@pytest.mark.parametrize("engine", ENGINES)
def test_i8(session: Any, engine: str) -> None:
    """Sums that f32 cannot hold are exact in i32; an epilogue takes them in f32."""
    m, n, k = 144, 160, 2048
    a, b = (np.random.default_rng(seed).integers(100, 128, s).astype(np.int8) for seed, s in ((1, (m, k)), (2, (k, n))))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    assert (exact > 1 << 24).all()
    assert (exact % 2).any()
    given: dict[str, Any] = {"a": session.put(a), "b": by_columns(session, b)}
    found = by_message(engine, session, given)
    if found is not None:
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, exact)
    found = by_message(engine, session, {**given, "alpha": 0.5})
    if found is not None:
        np.testing.assert_array_equal(found, np.rint(exact.astype(np.float32) * np.float32(0.5)))
    tree, scale = Tree().scale("s", per="column").bias().quantize("i8"), numbers(n, seed=3) / np.float32(1 << 18)
    inputs = session.put(scale), session.put(np.full(n, -25, np.float32))
    found = by_message(engine, session, {**given, "epilogue": tree.nodes, "inputs": inputs})
    if found is not None:
        want = np.clip(np.rint(exact.astype(np.float32) * scale - np.float32(25)), -128, 127)
        assert np.unique(want).size > 20
        assert np.abs(found.astype(int) - want).max() <= 1  # the GPU multiplies and adds in one step
        assert (found == want).mean() > 0.999


@pytest.mark.parametrize("engine", ENGINES)
def test_a_long_inner_axis(session: Any, engine: str) -> None:
    a, b = drawn("bf16", 136, 8192), drawn("bf16", 8192, 72, seed=2)
    message = {"a": session.put(a), "b": session.put(b), "epilogue": Tree().relu().nodes}
    found = by_message(engine, session, message)
    if found is not None:
        close(found, np.maximum(wide(a) @ wide(b), 0), "bf16")


@pytest.mark.parametrize(
    "dtype, settings, why",
    [
        ("f16", {"scale_a": ()}, "only fp8 factors are scaled"),
        ("f8_e4m3", {"scale_a": (3,)}, r"scale_a is f32\[3\], expected f32 of shape \[\] or \[32\]"),
        ("f8_e4m3", {"scale_a": (32,)}, "scale_a scales by outer and scale_b by tensor; both must scale"),
        ("bf16", {"tf32": True}, "tf32 is True and the arrays are bf16"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(session: Any, dtype: str, settings: Any, why: str) -> None:
    a = session.put(drawn(dtype, 32, 32))
    given = {
        name: session.put(numbers(*shape, seed=1)) if name != "tf32" else shape for name, shape in settings.items()
    }
    with pytest.raises(ShapeError, match=why):
        session.submit(Gemm(a=a, b=a, **given))
