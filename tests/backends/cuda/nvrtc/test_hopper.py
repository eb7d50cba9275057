"""The headers for Hopper and Blackwell: compiled without a GPU, and run on one against NumPy."""

from typing import Any

import hopper_lab as lab
import numpy as np
import pytest

import callboard as cb
from callboard.backends.cuda.compiling import Compiled, compile_now, load_nvrtc
from callboard.backends.cuda.nvrtc.programs import job_of
from callboard.core.errors import BackendUnavailable
from callboard.kernel.nvrtc import Source
from callboard.kernel.nvrtc.wgmma import COLUMNS, FACTORS


def compiled(text: str, name: str, target: str = "sm_90a") -> Compiled:
    try:
        nvrtc = load_nvrtc()
    except BackendUnavailable as e:
        pytest.skip(f"NVRTC is not installed: {e}")
    return compile_now(nvrtc, job_of(Source(text), name, target, "CUBIN"))


def test_every_helper_for_hopper_compiles() -> None:
    assert compiled(lab.EVERY_HOPPER, "every").lowered == {"every": "every"}


def test_the_forms_for_blackwell_compile() -> None:
    assert compiled(lab.EVERY_BLACKWELL, "every", "sm_100a").lowered == {"every": "every"}


def test_what_is_older_than_hopper_compiles_too() -> None:
    text = "#include <callboard/hopper.cuh>\n#include <callboard/wgmma.cuh>\n"
    text += 'extern "C" __global__ void f(float *x) { extern __shared__ float s[]; callboard::copy_async<16>(s, x); }'
    assert compiled(text, "f", "sm_80").lowered == {"f": "f"}


def test_every_product_compiles() -> None:
    calls = "\n".join(
        f'extern "C" __global__ void {name}_{n}(float *out, unsigned long long a) {{ float d[{n // 2}] = {{}};'
        f" wgmma_fence(); wgmma_m64n{n}k{terms}_{name}(d, a, a, true); wgmma_commit(); wgmma_wait<0>();"
        f" for (int i = 0; i < {n // 2}; i++) out[i * 128 + threadIdx.x] = d[i]; }}"
        for name, (_, terms) in FACTORS.items()
        for n in COLUMNS
    )
    made = compiled(f"#include <callboard/wgmma.cuh>\nusing namespace callboard;\n{calls}", "f16_64")
    assert "serialized" not in made.log  # the compiler says so where it has to wait after each product


@pytest.fixture
async def hopper() -> Any:
    async with cb.device("cuda", isolation="process", standby=None) as dev:
        if (await dev.stats()).compute_capability != (9, 0):
            pytest.skip("tensor maps and wgmma are of compute capability 9.0")
        yield dev


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(8, 16), (64, 64), (13, 20)])
async def test_tiles_by_tensor_maps(hopper: cb.Device, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    maps = {name: cb.tensor_map((8, 16)) for name in ("x", "y")}
    tiles = hopper.nvrtc.compile(lab.TILED).kernel("tiles", "in x: f32[h, w], out y: f32[h, w]", tensor_maps=maps)
    y = tiles((-(-shape[1] // 16), -(-shape[0] // 8)), 128, hopper.put(x), None)
    np.testing.assert_array_equal(await y.get(), 2 * x + 1)


@pytest.mark.gpu
async def test_bulk_copies_and_the_memory_of_a_cluster(hopper: cb.Device) -> None:
    x = np.arange(8 * 64, dtype="u4")
    sums = hopper.nvrtc.compile(lab.SUMS).kernel("sums", "in x: u32[n], out y: u32[n]")
    y = sums(8, 64, hopper.put(x), None, cluster=4)
    wanted = x.reshape(2, 4, 64).sum(1, keepdims=True, dtype="u4").repeat(4, 1)
    np.testing.assert_array_equal((await y.get()).reshape(2, 4, 64), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [8, 64, 128, 256])
@pytest.mark.parametrize("name", lab.DTYPES)
async def test_a_product_of_a_warpgroup(hopper: cb.Device, name: str, n: int) -> None:
    """Small integers: every sum is exact."""
    kind = np.dtype(lab.DTYPES[name])
    k = 128 // kind.itemsize
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-4, 5, (rows, k)).astype(kind) for rows in (64, n))
    dtype = cb.as_dtype(kind).name
    maps = {"a": cb.tensor_map((64, k), swizzle="128B"), "b": cb.tensor_map((n, k), swizzle="128B")}
    product = hopper.nvrtc.compile(lab.product_text(name, n)).kernel(
        "product", f"in a: {dtype}[m, k], in b: {dtype}[n, k], out c: f32[m, n]", tensor_maps=maps
    )
    c = product(1, 128, hopper.put(a), hopper.put(b), None)
    np.testing.assert_array_equal(await c.get(), a.astype("f4") @ b.astype("f4").T)
