"""The kernels that put NaNs into their places behind a radix sort, compiled for the CPU, and histograms."""

import ctypes
from typing import Any

import numpy as np
import pytest
from host_cccl import by_bits
from host_compiler import HostCompiler

from callboard.backends.cuda.cub.arguments import CubArgs
from callboard.backends.cuda.cub.nans import WORKS
from callboard.backends.cuda.kernels import source_text
from callboard.core.dtype import DTYPES

THREADS = 256


@pytest.fixture(scope="module")
def kernels(compiler: HostCompiler) -> Any:
    """Functions ``run_<work>_<dtype>``."""
    return compiler.library(source_text("cub-f16-bf16-f32-f64").decode())


def launch(kernels: Any, name: str, args: CubArgs, blocks: int) -> None:
    at = (ctypes.c_void_p * 1)(ctypes.addressof(args))
    assert getattr(kernels, f"run_{name}")(at, blocks, 1, THREADS) == 0


def drawn(dtype: str, n: int, part: float, signs: tuple[int, ...]) -> Any:
    """Numbers, some of them NaNs of these signs, of several bits."""
    rng, kind = np.random.default_rng(n), DTYPES[dtype].np
    word = np.dtype(f"u{kind.itemsize}")
    nan = np.array([np.nan], kind).view(word)[0] | rng.integers(0, 3, n).astype(word)
    nan = np.where(rng.choice(signs, n) == 1, nan | word.type(1 << 8 * kind.itemsize - 1), nan)
    keys = np.round(rng.standard_normal(n) * 3).astype(kind)
    return np.where(rng.random(n) < part, nan, keys.view(word)).view(kind)


@pytest.mark.parametrize("dtype, size", [("f16", 0), ("bf16", 1), ("f32", 0), ("f32", 4), ("f64", 2), ("f64", 8)])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.few(1)
def test_nans_come_together_in_their_order(kernels: Any, dtype: str, size: int, descending: bool) -> None:
    for n in (1, 700):
        for part, signs, blocks in ((0, (0,), 1), (0.1, (0,), 3), (0.1, (1,), 2), (0.2, (0, 1), 3), (1, (0, 1), 2)):
            keys = drawn(dtype, n, part, signs)
            values = np.arange(n).astype(f"u{size}") if size else np.zeros(0, np.uint8)
            ranks = by_bits(keys)
            order = (
                n - 1 - np.argsort(ranks[::-1], kind="stable")[::-1] if descending else np.argsort(ranks, kind="stable")
            )
            out, second = keys[order], values[order] if size else values
            odd = np.isnan(keys.astype(np.float64))
            whole = np.where(odd, 0, ranks)
            by_rank = np.lexsort((np.arange(n), -whole.astype(object) if descending else whole)).astype(np.int64)
            numbers, nans = by_rank[~odd[by_rank]], np.flatnonzero(odd)
            want = np.concatenate([nans, numbers] if descending else [numbers, nans])
            room = -(-n * keys.itemsize // 16) * 16
            aside, state = np.zeros(room + n * size, np.uint8), np.full(3 + blocks, -1, np.int64)
            given: list[Any] = [keys, values, aside, state, out, second]
            addresses = [one.ctypes.data for one in given]
            args = CubArgs(*addresses, n=n, m=blocks, k=size, room=room, least=descending)
            for at, work in enumerate(WORKS):
                launch(kernels, f"{work}_{dtype}", args, 1 if at == 0 else blocks)
            assert out.tobytes() == keys[want].tobytes()
            if size:
                np.testing.assert_array_equal(second, values[want])


@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_histogram_counts_each_sample_once(kernels: Any, dtype: str, shared: int) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 256 * 3 + 1, 256 * 3 * 4 + 5):
        x = np.concatenate([rng.uniform(-0.1, 1.1, n - 1), [np.nan]]).astype(DTYPES[dtype].np)
        out = np.zeros(10, np.int64)
        args = CubArgs(x.ctypes.data, 0, 0, 0, out.ctypes.data, n=n, m=1, k=1, bins=10, shared=shared)
        args.lower, args.upper, args.scale = 0.0, 1.0, 10.0
        launch(kernels, f"even_{dtype}", args, 3)
        inside = x[(x >= 0) & (x < 1)].astype(np.float64)
        np.testing.assert_array_equal(out, np.bincount(np.minimum(np.floor(inside * 10), 9).astype(int), minlength=10))
