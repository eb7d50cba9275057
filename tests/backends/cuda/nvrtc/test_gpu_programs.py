"""Programs and handles on a GPU: compiled, inspected, launched, and compiled again after a lost context."""

import asyncio
from pathlib import Path
from typing import Any

import kernels_lab as lab
import numpy as np
import pytest

import callboard as cb

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

AXPY = """
template<typename T> __global__ void axpy(const T *x, T *y, T a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
PARAMS = "in x: T[n], inout y: T[n], a: T, n: i32"
WAIT = 60.0


@pytest.fixture
async def dev() -> Any:
    async with cb.device("cuda", isolation="process", standby="warm") as opened:
        yield opened


async def test_a_program_and_its_kernels(dev: cb.Device) -> None:
    program = dev.nvrtc.compile(AXPY, expressions=("axpy<float>", "axpy<double>"), title="axpy.cu")
    for name, dtype in (("axpy<float>", "f4"), ("axpy<double>", "f8")):
        axpy = program.kernel(name, PARAMS)
        y = axpy(4, 256, dev.put(np.arange(1000, dtype=dtype)), dev.put(np.ones(1000, dtype)), 2)
        np.testing.assert_array_equal(await y.get(), 2 * np.arange(1000, dtype=dtype) + 1)
        attributes = await axpy.attributes()
        assert 0 < attributes.registers < 256
        assert attributes.max_threads == 1024
        assert attributes.binary_version >= 75
        occupancy = await axpy.occupancy(256)
        assert 0 < occupancy.occupancy <= 1
        assert occupancy.suggested_block % 32 == 0
    made = await program
    assert made.lowered == {"axpy<float>": "_Z4axpyIfEvPKT_PS0_S0_i", "axpy<double>": "_Z4axpyIdEvPKT_PS0_S0_i"}
    assert made.form == "CUBIN"


async def test_parameters_that_are_not_declared(dev: cb.Device) -> None:
    handle = dev.nvrtc.compile(AXPY).kernel("axpy<float>")
    x, y = dev.put(np.ones(8, "f4")), dev.put(np.zeros(8, "f4"))
    _, updated = handle(1, 32, x, y, np.float32(3), np.int32(8))
    assert (await updated.get()).tolist() == [3] * 8
    with pytest.raises(cb.LibraryError, match="parameter 2 is declared f64, 8 bytes; the kernel takes 4"):
        await handle(1, 32, x, y, np.float64(3), np.int32(8))[1]


async def test_a_refused_source_fails_what_launches_it(dev: cb.Device) -> None:
    program = dev.nvrtc.compile("__global__ void f(float *x) {\n  x[0] = nothing;\n}", title="f.cu")
    x = dev.put(np.ones(4, "f4"))
    launched = program.kernel("f", "inout x: f32[n]")(1, 1, x)
    with pytest.raises(cb.LibraryError, match=r'f\.cu\(2\): error: identifier "nothing" is undefined'):
        await program
    with pytest.raises(cb.LibraryError, match=r"f\.cu\(2\): error"):
        await launched
    handle = dev.nvrtc.compile(AXPY).kernel("no_such_kernel", "inout x: f32[n]")
    with pytest.raises(cb.LibraryError):
        await handle(1, 1, dev.put(np.ones(4, "f4")))


async def test_many_programs_are_compiled_while_other_ops_go_on(dev: cb.Device) -> None:
    sources = [
        f'extern "C" __global__ void f(int *x, int n) {{ if (threadIdx.x < n) x[threadIdx.x] += {k}; }}'
        for k in range(8)
    ]
    programs = [dev.nvrtc.compile(source) for source in sources]
    async with asyncio.timeout(WAIT):
        a = dev.put(np.eye(64, dtype="f4"))
        np.testing.assert_array_equal(await dev.blas.gemm(a, a).get(), np.eye(64))
        x = dev.put(np.zeros(32, "i4"))
        for program in programs:
            x = program.kernel("f", "inout x: i32[n], n: i32")(1, 32, x)
        assert (await x.get()).tolist() == [28] * 32


async def test_linked_with_optimisation(dev: cb.Device) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    handle = dev.nvrtc.compile(AXPY, lto=True).kernel("axpy<float>", PARAMS)
    y = handle(1, 32, dev.put(np.ones(5, "f4")), dev.put(np.zeros(5, "f4")), 4)
    assert (await y.get()).tolist() == [4] * 5


CLUSTERED = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void ranks(int *out) {
    __shared__ int mine;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) mine = blockIdx.x;
    cluster.sync();
    const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
    if (threadIdx.x == 0) out[blockIdx.x] = *cluster.map_shared_rank(&mine, next);
    cluster.sync();
}
extern "C" __global__ void everywhere(int *sums, int *out) {
    if (threadIdx.x == 0) sums[blockIdx.x] = blockIdx.x;
    cg::this_grid().sync();
    int sum = 0;
    for (int i = 0; i < gridDim.x; i++) sum += sums[i];
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
"""


async def test_blocks_of_a_cluster_read_each_others_memory(dev: cb.Device) -> None:
    handle = dev.nvrtc.compile(CLUSTERED).kernel("ranks", "inout out: i32[n]")
    out = handle(8, 32, dev.zeros(8, "i32"), cluster=4)
    assert (await out.get()).tolist() == [1, 2, 3, 0, 5, 6, 7, 4]


async def test_all_blocks_of_a_cooperative_launch_wait_for_each_other(dev: cb.Device) -> None:
    handle = dev.nvrtc.compile(CLUSTERED).kernel("everywhere", "inout sums: i32[n], inout out: i32[n]")
    _, out = handle(100, 32, dev.zeros(100, "i32"), dev.zeros(100, "i32"), cooperative=True)
    assert (await out.get()).tolist() == [4950] * 100
    with pytest.raises(cb.ShapeError, match="run at once"):
        await handle(10**6, 32, dev.zeros(10**6, "i32"), dev.zeros(10**6, "i32"), cooperative=True)[0]


@cb.kernel(
    "inout x: f32[n], by: i64",
    cuda='extern "C" __global__ void astray(float *x, long long by) { x[by] = 1; }',
    grid=1,
    block=1,
)
def astray(x: Any, by: int) -> None:
    x[by] = 1


@pytest.mark.fault
async def test_a_write_out_of_bounds_costs_one_generation_and_names_its_launch(dev: cb.Device, tmp_path: Path) -> None:
    before = dev.generation
    axpy = dev.nvrtc.compile(AXPY).kernel("axpy<float>", PARAMS)
    y = axpy(1, 32, dev.put(np.ones(5, "f4")), dev.put(np.zeros(5, "f4")), 4)
    await y
    with pytest.raises(cb.ContextPoisoned) as caught:
        await astray(dev.put(np.zeros(4, "f4")), 1 << 40)
    assert [suspect.op for suspect in caught.value.suspects] == ["nvrtc.launch(astray)"]
    assert Path(__file__).name in caught.value.suspects[0].where
    await dev.ready()
    assert dev.generation > before
    with pytest.raises(cb.GpuRefStale):
        axpy(1, 32, y, y, 4)
    again = axpy(1, 32, dev.put(np.ones(5, "f4")), dev.put(np.zeros(5, "f4")), 4)  # the handle is as good as before
    assert (await again.get()).tolist() == [4] * 5
    assert (await lab.scaled(dev.put(np.ones(5, "f4")), 2.0).get()).tolist() == [2] * 5
    assert dev.health().restarts == 1
