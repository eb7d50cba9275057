"""Groups by the compiled templates, on a GPU: small and large tiles, with and without an epilogue of arrays."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import callboard as cb
from callboard.backends.cuda import backend
from callboard.backends.cuda.cutlass.templated import HOPPER
from callboard.core.errors import BackendUnavailable

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(900)]  # nvcc takes a minute for each text

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
    offsets = np.cumsum([0, *sizes]).astype(np.int32)
    rows, groups = max(int(offsets[-1]), 3), len(sizes)
    a, b = drawn(dtype, rows, k, seed=1), drawn(dtype, groups, k, n, seed=2)
    bias = drawn(dtype, groups, n, seed=3)
    want = product(a, b, offsets)
    with cb.sync.System() as system, system.device("cuda", isolation="process", standby=None) as dev:
        x, y, at, z = dev.put(a), dev.put(b), dev.put(offsets), dev.put(bias)
        columns = dev.copy(y.mT).mT  # the same, with adjacent columns
        given: dict[str, Any] = {"engine": "cutlass", "alpha": 0.5}
        for factor in (y, columns):
            near(dev.cutlass.grouped_gemm(x, factor, at, **given).get(), want / 2, dtype)
        found = dev.cutlass.grouped_gemm(x, y, at, epilogue=Tree().bias().relu(), bias=z, **given).get()
        group = np.repeat(np.arange(groups), sizes)
        added = np.repeat(wide(bias)[:1], rows, 0)  # rows of no group take the first group's
        added[: len(group)] = wide(bias)[group]
        near(found, np.maximum(want / 2 + added, 0), dtype)
        shifted = dev.copy(dev.np.concatenate([x.reshape(-1)[:1], x.reshape(-1)]))[1:].reshape(rows, k)  # off 16 bytes
        near(dev.cutlass.grouped_gemm(shifted, y, at, **given).get(), want / 2, dtype)


def test_rows_of_no_group_and_offsets_out_of_range() -> None:
    a, b = drawn("bf16", 300, 64, seed=1), drawn("bf16", 2, 64, 64, seed=2)
    with cb.sync.System() as system, system.device("cuda", isolation="process", standby=None) as dev:
        x, y = dev.put(a), dev.put(b)
        for offsets in ([2, -5, 1 << 30], [10, 200, 290], [-7, 100, 100]):
            at = np.array(offsets, np.int32)
            found = dev.cutlass.grouped_gemm(x, y, dev.put(at), epilogue=Tree() + 1.0, engine="cutlass").get()
            near(found, product(a, b, at) + 1, "bf16")


def near(found: Any, want: Any, dtype: str) -> None:
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(wide(found) / scale, want / scale, rtol=0, atol={"f16": 2e-3, "bf16": 2e-2}[dtype])
