"""Templates for scaled fp8, TF32, i8 and a long inner axis, on a GPU: every tiling, over the borders of its tiles."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from fp8_lab import by_columns
from test_cutlass import drawn, wide
from test_cutlass_factors import scaled

import callboard as cb
from callboard.backends.cuda import backend
from callboard.backends.cuda.cutlass import ahead, templated
from callboard.backends.cuda.cutlass.templated import HOPPER
from callboard.backends.cuda.cutlass.tilings import BLOCKED, SHARED, SMALL, TILINGS, Tiling
from callboard.core.errors import BackendUnavailable
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import Explain, Gemm
from callboard.testing.session import LibrarySession

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(900)]  # nvcc takes a minute for each text

Tree = cb.EpilogueVisitorTree
SIZES = ((32, 48, 256), (132, 144, 272), (264, 528, 400), (1024, 768, 2048))
LONG = ((16, 16, 8192), (136, 264, 32768), (512, 512, 16384))


class Case(NamedTuple):
    """A kind of product.

    Attributes:
        dtype: Of the factors.
        tilings: Those that it may have.
        scales: A kind of :func:`scaled`.
        tree: The epilogue.
        settings: Of the message.
        atol: Relative to the largest value; 0: the result is exact.
        sizes: Extents.
    """

    dtype: str
    tilings: tuple[Tiling, ...]
    scales: str = ""
    tree: Any = None
    settings: tuple[tuple[str, Any], ...] = ()
    atol: float = 1e-2
    sizes: tuple[tuple[int, int, int], ...] = SIZES


SPLITS = (SHARED, SHARED._replace(splits=4))
TF32 = (("tf32", True),)
CASES = {
    "fp8, 128x128 of b": Case("f8_e4m3", BLOCKED, "128x128 of b"),
    "fp8, 128x128 of a": Case("f8_e4m3", BLOCKED[:1], "128x128 of a"),
    "fp8, 1x128": Case("f8_e4m3", BLOCKED[1:], "1x128"),
    "fp8, rows and columns": Case("f8_e4m3", SMALL[:1], "rows and columns", Tree().relu()),
    "tf32": Case("f32", TILINGS["f32"], settings=TF32, atol=1e-3),
    "i8": Case("i8", TILINGS["i8"], atol=0),
    "i8, rounded": Case("i8", TILINGS["i8"][:1], tree=Tree().scale(0.125).relu().quantize("i8"), atol=0),
    "bf16, shared": Case("bf16", SPLITS, sizes=LONG),
    "tf32, shared": Case("f32", SPLITS, settings=TF32, atol=1e-3, sizes=LONG),
}


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


def message(session: Any, case: Case, m: int, n: int, k: int) -> tuple[dict[str, Any], Any]:
    """The fields of a message with its operands, and the product in f64."""
    a, b = drawn(case.dtype, m, k), drawn(case.dtype, k, n, seed=2)
    given: dict[str, Any] = {"a": session.put(a), "engine": "cutlass", **dict(case.settings)}
    given["b"] = session.put(b) if case.dtype == "bf16" else by_columns(session, b)
    if case.tree is not None:
        given["epilogue"] = case.tree.nodes
    if not case.scales:
        return given, wide(a) @ wide(b)
    of_a, of_b, scales = scaled(session, case.scales, m, n, k)
    return given | scales, (wide(a) * of_a) @ (wide(b) * of_b)


def finished(case: Case, product: Any) -> Any:
    if case.dtype == "i8" and case.tree is not None:
        return np.rint(np.clip(np.maximum(product / 8, 0), -128, 127))
    return product if case.tree is None else np.maximum(product, 0)


def limit(monkeypatch: pytest.MonkeyPatch, *tilings: Tiling) -> None:
    """Only these tilings."""
    for module in (ahead, templated):
        monkeypatch.setattr(module, "tilings_of", lambda *_: tilings)


@pytest.mark.parametrize("name, tiling", [(name, one) for name, case in CASES.items() for one in case.tilings], ids=str)
def test_values(session: LibrarySession, monkeypatch: pytest.MonkeyPatch, name: str, tiling: Tiling) -> None:
    case = CASES[name]
    limit(monkeypatch, tiling)
    for m, n, k in case.sizes:
        given, product = message(session, case, m, n, k)
        try:
            ahead.compile_ahead(placed(given), False)
        except BackendUnavailable as e:
            pytest.skip(str(e))
        told = session.submit(Explain(**given))
        told = told.result() if hasattr(told, "result") else told
        assert str(told).startswith(f"cutlass: one launch, {tiling}")
        found = session.get(session.submit(Gemm(**given)))
        want = finished(case, product)
        assert np.isfinite(wide(found)).all()
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(wide(found) / scale, want / scale, rtol=0, atol=case.atol)


def placed(given: dict[str, Any]) -> Gemm:
    """The message with placeholders."""
    fields: dict[str, Any] = given | {k: Placeholder(one.layout) for k, one in given.items() if hasattr(one, "layout")}
    return Gemm(**fields)


@pytest.mark.parametrize("factor", [1, 64])
def test_sums_beyond_f32_are_exact(session: LibrarySession, factor: int) -> None:
    """Of i8 without an epilogue; with a factor they are rounded once."""
    m, n, k = 256, 256, 4096
    a, b = (np.random.default_rng(seed).integers(100, 128, s).astype(np.int8) for seed, s in ((1, (m, k)), (2, (k, n))))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    assert (exact > 1 << 24).all()
    op = Gemm(a=session.put(a), b=by_columns(session, b), engine="cutlass", alpha=1 / factor)
    want = exact if factor == 1 else np.rint(exact.astype(np.float32) / np.float32(factor))
    np.testing.assert_array_equal(session.get(session.submit(op)), want)


def test_few_tiles_with_a_long_inner_axis_are_measured_with_splits(
    session: LibrarySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, *SPLITS)
    given, _ = message(session, CASES["bf16, shared"], 512, 512, 16384)
    try:
        ahead.compile_ahead(placed(given), False)
    except BackendUnavailable as e:
        pytest.skip(str(e))
    told = session.submit(Explain(**(given | {"engine": "auto"})))
    told = told.result() if hasattr(told, "result") else told
    assert "measured as the fastest of 3 engines" in str(told)


def test_scales_of_one_block(session: LibrarySession) -> None:
    """One block along the inner axis has no step there; TMA is given one all the same."""
    given, product = message(session, CASES["fp8, 128x128 of b"], 132, 144, 128)
    found = session.get(session.submit(Gemm(**given)))
    np.testing.assert_allclose(wide(found), product, rtol=0, atol=1e-2 * np.abs(product).max())
