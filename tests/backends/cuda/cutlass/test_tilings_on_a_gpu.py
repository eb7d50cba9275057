"""Every tiling of a template on a GPU: the same product at the borders of its tiles; the fastest, by measurement."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import callboard as cb
from callboard.backends.cuda import backend
from callboard.backends.cuda.cutlass import grouping, templated
from callboard.backends.cuda.cutlass.ahead import compile_ahead
from callboard.backends.cuda.cutlass.templated import HOPPER
from callboard.backends.cuda.cutlass.tilings import WIDE, Tiling, tilings_of_groups
from callboard.core.dtype import DTYPES
from callboard.core.errors import BackendUnavailable
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import Explain, Gemm, GroupedGemm
from callboard.testing.session import LibrarySession

# nvcc takes up to 90 s of an idle core for each of its texts, which a case compiles side by side
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(1800)]

BF16 = np.dtype(ml_dtypes.bfloat16)
TREE = cb.EpilogueVisitorTree().bias().silu().gate("gate", None).residual()


@pytest.fixture
def session() -> Iterator[LibrarySession]:
    """With the user's cache: what is compiled there already is not compiled again."""
    try:
        if backend.devices()[0].compute_capability != HOPPER:
            pytest.skip("the templates are for compute capability 9.0")
        with LibrarySession("cuda") as opened:
            yield opened
    except BackendUnavailable as e:
        pytest.skip(str(e))


def drawn(*shape: int, seed: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape, np.float32) / 4).astype(BF16)


def wide(x: Any) -> Any:
    return x.astype(np.float64)


def placed(*shape: int, dtype: str = "bf16") -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def ahead(op: Gemm | GroupedGemm) -> None:
    try:
        compile_ahead(op, False)
    except BackendUnavailable as e:
        pytest.skip(str(e))


def product(m: int, n: int, k: int) -> tuple[list[Any], list[Any]]:
    return [drawn(m, k, seed=1), drawn(k, n, seed=2)], [drawn(n, seed=3), drawn(m, n, seed=4), drawn(m, n, seed=5)]


def near(found: Any, want: Any) -> None:
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(wide(found) / scale, want / scale, rtol=0, atol=2e-2)


@pytest.mark.parametrize("tiling", WIDE, ids=str)
def test_products(session: LibrarySession, monkeypatch: pytest.MonkeyPatch, tiling: Tiling) -> None:
    inputs = (placed(256), placed(256, 256), placed(256, 256))
    ahead(Gemm(a=placed(256, 256), b=placed(256, 256), epilogue=TREE.nodes, inputs=inputs, engine="cutlass"))
    for m, n, k in ((1, 8, 8), (264, 520, 72), (1024, 768, 256)):
        (a, b), arrays = product(m, n, k)
        x = wide(a) @ wide(b) + wide(arrays[0])
        want = x / (1 + np.exp(-x)) * wide(arrays[1]) + wide(arrays[2])
        for swizzle, raster in ((1, 0), (4, 1), (8, 2)):
            one = tiling._replace(swizzle=swizzle, raster=raster)
            monkeypatch.setattr(templated, "tilings_of", lambda *_, one=one: (one,))
            session._plans.clear()
            given = tuple(session.put(each) for each in arrays)
            op = Gemm(a=session.put(a), b=session.put(b), epilogue=TREE.nodes, inputs=given, engine="cutlass")
            near(session.get(session.submit(op)), want)


@pytest.mark.parametrize("rows", [64, 1024])
def test_groups(session: LibrarySession, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    sizes = [rows - 17, 0, 16, 1]
    offsets = np.cumsum([0, *sizes]).astype(np.int32)
    a, b = drawn(rows, 136, seed=1), drawn(4, 136, 520, seed=2)
    want = np.concatenate([wide(a[i:j]) @ wide(w) for i, j, w in zip(offsets, offsets[1:], b, strict=False)])
    given: dict[str, Any] = {"a": placed(rows, 136), "b": placed(4, 136, 520), "offsets": placed(5, dtype="i32")}
    ahead(GroupedGemm(**given, engine="cutlass"))
    for tiling in tilings_of_groups(rows, 4, 520):
        for swizzle, raster in ((1, 1), (2, 2)):
            one = tiling._replace(swizzle=swizzle, raster=raster)
            monkeypatch.setattr(grouping, "tilings_of_groups", lambda *extents, one=one: (one,))
            session._plans.clear()
            put: dict[str, Any] = {"a": session.put(a), "b": session.put(b), "offsets": session.put(offsets)}
            near(session.get(session.submit(GroupedGemm(**put, engine="cutlass"))), want)


def test_the_fastest_is_measured_and_told(session: LibrarySession) -> None:
    inputs = (placed(256), placed(256, 256), placed(256, 256))
    ahead(Gemm(a=placed(256, 256), b=placed(256, 256), epilogue=TREE.nodes, inputs=inputs, engine="cutlass"))
    (a, b), arrays = product(512, 512, 512)
    given = tuple(session.put(each) for each in arrays)
    told = session.submit(Explain(a=session.put(a), b=session.put(b), epilogue=TREE.nodes, inputs=given))
    told = told.result() if hasattr(told, "result") else told
    assert f"measured as the fastest of {len(WIDE) + 1} engines" in str(told)
