"""Arrays across the border of a CUDA device in a thread, with PyTorch and CuPy: no copy, and in stream order."""

import asyncio
import gc
import os
import threading
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.core import registry

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

N = 512
LONG = 100_000_000
"""Clock cycles that the other package's stream stands still first: some 50 ms, so that a missing wait shows."""


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch with its context, which it keeps for good: made before a test's descriptors are counted."""
    try:
        registry.resolve("cuda")
    except cb.BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
            pytest.fail(f"CALLBOARD_REQUIRE=cuda, and it cannot be used: {e}")
        pytest.skip(f"cuda cannot be used: {e}")
    torch = pytest.importorskip("torch")
    torch.cuda.current_stream()
    return torch


def cuda_thread() -> Any:
    return cb.device("cuda", isolation="thread")


def test_torch_takes_a_ref_and_later_ops_wait_for_its_stream(torch: Any) -> None:
    async def main() -> None:
        async with cuda_thread() as gpu:
            x = np.random.default_rng(1).integers(0, 100, (N, N)).astype("f4")  # sums of these are exact
            ref = gpu.copy(gpu.put(x))
            for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
                before = await ref.get()
                with torch.cuda.stream(stream):
                    tensor = torch.from_dlpack(ref)
                    assert tensor.data_ptr() == ref.raw_device_ptr()
                    assert ref.__dlpack_device__() == tensor.__dlpack_device__()
                    torch.cuda._sleep(LONG)
                    tensor.add_(1)
                np.testing.assert_array_equal(await gpu.copy(ref).get(), before + 1)
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(LONG)
                    tensor.add_(1)
                del tensor  # its last write comes before what follows
                np.testing.assert_array_equal(await ref.get(), before + 2)
            held = torch.from_dlpack(ref)
            ref.free()
            for _ in range(4):
                gpu.zeros((N, N))
            await gpu.drain()
            np.testing.assert_array_equal(held.cpu().numpy(), x + 4)

    asyncio.run(main())


def test_a_ref_takes_a_tensor_after_its_streams_work(torch: Any) -> None:
    async def main() -> None:
        async with cuda_thread() as gpu:
            tensor = torch.zeros((N, N), device="cuda")
            torch.cuda._sleep(LONG)
            tensor.add_(torch.eye(N, device="cuda"))
            ref = gpu.put(tensor)
            assert ref.raw_device_ptr() == tensor.data_ptr()
            np.testing.assert_array_equal(await gpu.blas.gemm(ref, ref).get(), np.eye(N, dtype="f4"))
            await gpu.fill(ref, 3)
            assert float(tensor[5, 5]) == 3
            transposed = gpu.adopt(tensor.T[1:])
            assert transposed.shape == (N - 1, N)
            with pytest.raises(TypeError, match="DLPack device"):
                gpu.adopt(torch.zeros(3))

    asyncio.run(main())


def test_cuda_array_interface_both_ways(torch: Any) -> None:
    cupy = pytest.importorskip("cupy")

    class Plain:
        def __init__(self, array: Any) -> None:
            self.array = array
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    async def main() -> None:
        async with cuda_thread() as gpu:
            ref = gpu.full((3, 4), 2)
            theirs = cupy.asarray(ref.T)
            assert theirs.shape == (4, 3)
            theirs *= 5
            assert (await gpu.copy(ref).get()).tolist() == [[10] * 4] * 3
            mine = cupy.arange(6, dtype="f8").reshape(2, 3)
            assert (await gpu.copy(gpu.adopt(Plain(mine[:, ::2]))).get()).tolist() == [[0, 2], [3, 5]]

    asyncio.run(main())


def test_memory_stays_as_long_as_a_ref_whose_address_was_told(torch: Any) -> None:
    n = 1 << 26

    async def opened() -> tuple[cb.GpuRef, int]:
        async with cuda_thread() as gpu:
            ref = await gpu.put(np.full(n, 7, "f4"))
            return ref, ref.raw_device_ptr()

    ref, address = asyncio.run(opened())

    class There:
        __cuda_array_interface__ = {  # noqa: RUF012 - as NumPy wants it
            "version": 3,
            "shape": (n,),
            "typestr": "<f4",
            "data": (address, False),
        }

    assert float(torch.as_tensor(There(), device="cuda").sum(dtype=torch.float64)) == 7 * n
    gc.collect()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    del ref
    gc.collect()
    assert torch.cuda.mem_get_info()[0] >= free + 4 * n


def test_work_that_is_left_behind_ends_and_its_thread_after_it(torch: Any) -> None:
    async def main() -> None:
        async with cb.device("cuda", isolation="thread", close_timeout=0.05) as gpu:
            a = await gpu.xp.ones((8192, 8192), dtype="f8")
            products = [gpu.blas.gemm(a, a) for _ in range(40)]
            assert not products[-1].done()

    before = set(threading.enumerate())
    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("callboard-host"):
            thread.join(60.0)
            assert not thread.is_alive()
    torch.cuda.synchronize()
    assert float(torch.ones(8, device="cuda").sum()) == 8

    async def again() -> float:
        async with cuda_thread() as gpu:
            return float((await gpu.put(np.ones(8, "f4")).get()).sum())

    assert asyncio.run(again()) == 8
