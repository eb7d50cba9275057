"""Groups by the compiled templates, on a GPU: small and large tiles, arrays of every kind in the tree, fp8."""

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import callboard as cb
from callboard.backends.cuda import backend
from callboard.backends.cuda.cutlass import grouping
from callboard.backends.cuda.cutlass.grouped_text import leaves_of
from callboard.backends.cuda.cutlass.templated import HOPPER
from callboard.backends.cuda.cutlass.tilings import tilings_of_groups
from callboard.core.errors import BackendUnavailable
from callboard.core.layout import layout_of
from callboard.kernel.cutlass import GroupedGemm
from callboard.testing.session import LibrarySession, SessionArray

# nvcc takes up to 90 s of an idle core for each of at most three texts of a case, and other cases compile beside it
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(1800)]

Tree = cb.EpilogueVisitorTree
TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


@pytest.fixture(autouse=True)
def _hopper() -> None:
    try:
        if backend.devices()[0].compute_capability != HOPPER:
            pytest.skip("the templates are for compute capability 9.0")
    except BackendUnavailable as e:
        pytest.skip(str(e))


def drawn(dtype: str, *shape: int, seed: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape, np.float32) / 4).astype(TYPES[dtype])


def wide(x: Any) -> Any:
    return x.astype(np.float64)


def product(a: Any, b: Any, offsets: Any) -> Any:
    found = np.zeros((len(a), b.shape[2]))
    for g, (low, high) in enumerate(itertools.pairwise(offsets)):
        rows = slice(max(low, 0), min(high, len(a)))
        found[rows] = wide(a[rows]) @ wide(b[g])
    return found


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "sizes, k, n", [([5, 0, 17, 1, 0], 32, 24), ([700, 1, 0, 1347], 136, 520), ([0, 0], 64, 64), ([129] * 16, 64, 256)]
)
def test_groups(dtype: str, sizes: list[int], k: int, n: int) -> None:
    """Three texts for bf16, one for f16, of few rows or many."""
    offsets = np.cumsum([0, *sizes]).astype(np.int32)
    rows, groups = max(int(offsets[-1]), 3), len(sizes)
    a, b = drawn(dtype, rows, k, seed=1), drawn(dtype, groups, k, n, seed=2)
    bias = drawn(dtype, groups, n, seed=3)
    want = product(a, b, offsets)
    with cb.sync.System() as system, system.device("cuda", isolation="process", standby=None) as dev:
        x, y, at, z = dev.put(a), dev.put(b), dev.put(offsets), dev.put(bias)
        columns = dev.copy(y.mT).mT  # the same, with adjacent columns
        given: dict[str, Any] = {"engine": "cutlass", "alpha": 0.5}
        for factor in (y, columns) if dtype == "bf16" else (y,):
            near(dev.cutlass.grouped_gemm(x, factor, at, **given).get(), want / 2, dtype)
        shifted = dev.copy(dev.np.concatenate([x.reshape(-1)[:1], x.reshape(-1)]))[1:].reshape(rows, k)  # off 16 bytes
        near(dev.cutlass.grouped_gemm(shifted, y, at, **given).get(), want / 2, dtype)
        if dtype == "f16":
            return
        found = dev.cutlass.grouped_gemm(x, y, at, epilogue=Tree().bias().relu(), bias=z, **given).get()
        group = np.repeat(np.arange(groups), sizes)
        added = np.repeat(wide(bias)[:1], rows, 0)  # rows of no group take the first group's
        added[: len(group)] = wide(bias)[group]
        near(found, np.maximum(want / 2 + added, 0), dtype)


@pytest.fixture
def session() -> Iterator[LibrarySession]:
    """With the user's cache: what is compiled there already is not compiled again."""
    with LibrarySession("cuda") as opened:
        yield opened


WHOLE = Tree().bias().gelu().residual().scale("s", per="row").scale("t").gate("g", "silu")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def arrays_of(rows: int, groups: int, n: int) -> dict[str, Any]:
    return {
        "bias": drawn("bf16", groups, n, seed=3),
        "residual": drawn("bf16", rows, n, seed=4),
        "s": np.random.default_rng(5).standard_normal(rows).astype(np.float32),
        "t": np.float32(0.75),
        "g": np.random.default_rng(6).standard_normal((rows, n)).astype(np.float32),
    }


def whole(x: Any, group: Any, arrays: dict[str, Any]) -> Any:
    """The tree in f64; ``x`` is the product with the addend."""
    x = x + wide(arrays["bias"])[group]
    x = x * sigmoid(1.5957691216057308 * (x + 0.044715 * x**3)) + wide(arrays["residual"])
    gate = wide(arrays["g"])
    return x * wide(arrays["s"])[:, None] * 0.75 * gate * sigmoid(gate)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("sizes, k, n", [([5, 0, 17, 1], 72, 136), ([700, 1, 0, 1347], 136, 520)])
def test_arrays_of_every_kind_in_one_launch(
    session: LibrarySession, monkeypatch: pytest.MonkeyPatch, sizes: list[int], k: int, n: int, at: int
) -> None:
    """One text for each case. Rows are in no group before the first and behind the last one."""
    monkeypatch.setattr(grouping, "tilings_of_groups", lambda *extents: tilings_of_groups(*extents)[at : at + 1])
    offsets = np.cumsum([2, *sizes]).astype(np.int32)
    rows, groups = int(offsets[-1]) + 3, len(sizes)
    a, b, c = drawn("bf16", rows, k, seed=1), drawn("bf16", groups, k, n, seed=2), drawn("bf16", rows, n, seed=7)
    arrays = arrays_of(rows, groups, n)
    group = np.zeros(rows, int)
    group[2:-3] = np.repeat(np.arange(groups), sizes)
    op = GroupedGemm(
        a=session.put(a),
        b=session.put(b),
        c=session.put(c),
        offsets=session.put(offsets),
        epilogue=WHOLE.nodes,
        inputs=tuple(session.put(one) for one in arrays.values()),
        alpha=0.5,
        beta=2.0,
        engine="cutlass",
    )
    assert leaves_of(op) is not None
    near(session.get(session.submit(op)), whole(product(a, b, offsets) / 2 + 2 * wide(c), group, arrays), "bf16")


def test_reductions_follow_sums_by_a_template(session: LibrarySession) -> None:
    """One text."""
    a, b = drawn("bf16", 40, 64, seed=1), drawn("bf16", 3, 64, 64, seed=2)
    offsets = np.array([0, 17, 17, 40], np.int32)
    sums = session.put(np.zeros(40, np.float32))
    op = GroupedGemm(
        a=session.put(a),
        b=session.put(b),
        offsets=session.put(offsets),
        epilogue=Tree().silu().reduce("sum", "row", "sums").nodes,
        reductions=(sums,),
        engine="cutlass",
    )
    x = product(a, b, offsets)
    near(session.get(session.submit(op)), x * sigmoid(x), "bf16")
    near(session.get(sums), (x * sigmoid(x)).sum(1), "bf16")


@pytest.mark.parametrize("at", [0, 1])
def test_groups_of_fp8(session: LibrarySession, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """One text for each case: scales for each row and a bias, as a quantised model has them."""
    monkeypatch.setattr(grouping, "tilings_of_groups", lambda *extents: tilings_of_groups(*extents)[at : at + 1])
    kind = np.dtype(ml_dtypes.float8_e4m3fn)
    sizes, k, n = [130, 0, 7, 260], 144, 272
    offsets, groups = np.cumsum([0, *sizes]).astype(np.int32), len(sizes)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(kind) for shape in ((int(offsets[-1]), k), (groups, n, k)))
    s, bias = rng.standard_normal(len(a)).astype(np.float32), rng.standard_normal((groups, n)).astype(np.float32)
    op = GroupedGemm(
        a=session.put(a),
        b=turned(session.put(b)),
        offsets=session.put(offsets),
        epilogue=Tree().scale("s", per="row").bias().nodes,
        inputs=(session.put(s), session.put(bias)),
        engine="cutlass",
    )
    group = np.repeat(np.arange(groups), sizes)
    want = product(a, b.swapaxes(1, 2), offsets) * s[:, None].astype("f8") + bias[group]
    near(session.get(session.submit(op)), want, "bf16")


def turned(array: SessionArray) -> SessionArray:
    """The last two axes exchanged."""
    layout = array.layout
    (groups, rows, columns), (far, down, across) = layout.shape, layout.strides
    return SessionArray(
        array.block, layout_of(layout.dtype, (groups, columns, rows), (far, across, down)), array.offset
    )


def test_rows_of_no_group_and_offsets_out_of_range() -> None:
    """One text, that of the small groups with a bias."""
    a, b = drawn("bf16", 300, 64, seed=1), drawn("bf16", 2, 64, 64, seed=2)
    bias = drawn("bf16", 2, 64, seed=3)
    with cb.sync.System() as system, system.device("cuda", isolation="process", standby=None) as dev:
        x, y, z = dev.put(a), dev.put(b), dev.put(bias)
        for offsets in ([2, -5, 1 << 30], [10, 200, 290], [-7, 100, 100]):
            at = np.array(offsets, np.int32)
            group = np.zeros(300, int)
            group[max(at[1], 0) : max(at[2], 0)] = 1
            tree = Tree().bias().relu()
            found = dev.cutlass.grouped_gemm(x, y, dev.put(at), epilogue=tree, bias=z, engine="cutlass").get()
            near(found, np.maximum(product(a, b, at) + wide(bias)[group], 0), "bf16")


def near(found: Any, want: Any, dtype: str) -> None:
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(wide(found) / scale, want / scale, rtol=0, atol={"f16": 1e-3, "bf16": 4e-3}[dtype])
