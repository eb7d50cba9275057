"""Resident actors that poison the CUDA context they live in: by kernels of their own, inside torch, inside CuPy."""

import ctypes
import os
from typing import Any

import callboard as cb

SOURCE = rb"""
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, decltype(sizeof(0)));
__device__ int room[4];
extern "C" __global__ void illegal() { *(volatile int*)16 = 1; }
extern "C" __global__ void misaligned() { *(volatile int*)((char*)room + 1) = 1; }
extern "C" __global__ void trap() { asm volatile("trap;"); }
extern "C" __global__ void endless() { while (*(volatile int*)room == 0) { } }
extern "C" __global__ void assertion() { __assertfail("told to", "actors.py", 1, "assertion", 1); }
"""

KINDS = {
    "illegal": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "misaligned": "CUDA_ERROR_MISALIGNED_ADDRESS",
    "trap": "CUDA_ERROR_(LAUNCH_FAILED|ILLEGAL_INSTRUCTION)",  # drivers differ
    "assertion": "CUDA_ERROR_ASSERT",
}
"""Kernels, and what the driver says afterwards."""


class Striker(cb.ResidentActor):
    """Launches a faulty kernel on its stream. It may not be restarted: a single failure of its own would end it."""

    supervision = cb.OneForOne(max_restarts=0, within=60.0)

    def setup(self, ctx: cb.HostContext) -> None:
        from callboard.backends.cuda.compiling import Job, architecture, compile_now, load_nvrtc
        from callboard.backends.cuda.driver import load_driver

        self.driver = driver = load_driver()
        nvrtc = load_nvrtc()
        job = Job("actors.cu", SOURCE, *architecture(nvrtc, ctx.info.compute_capability))
        module = ctypes.c_void_p()
        driver.module_load_data(ctypes.byref(module), compile_now(nvrtc, job).image)
        self.functions: dict[str, int] = {}
        for kind in (*KINDS, "endless"):
            function = ctypes.c_void_p()
            driver.module_get_function(ctypes.byref(function), module.value, kind.encode())
            self.functions[kind] = function.value or 0
        self.stream = ctx.stream.native

    def pid(self) -> int:
        return os.getpid()

    def strike(self, kind: str) -> None:
        """Launch it; the method has returned when the kernel fails."""
        code = self.driver.launch_kernel(self.functions[kind], 1, 1, 1, 1, 1, 1, 0, self.stream, None, None)
        self.driver.check(code, "cuLaunchKernel")

    def strike_and_raise(self, kind: str) -> None:
        """Launch it, wait for it, and fail as users' code does that checks its status."""
        self.strike(kind)
        try:
            self.driver.stream_synchronize(self.stream)
        except cb.AccelError as e:
            raise RuntimeError(f"the simulation failed: {e}") from e


class TorchStriker(cb.ResidentActor):
    """Poisons the context inside torch."""

    supervision = cb.OneForOne(max_restarts=0, within=60.0)

    def prepare(self) -> None:
        import torch

        self.torch = torch

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx
        if self.usable():
            self.table = self.torch.arange(4.0, device=ctx.torch_device)

    def usable(self) -> bool:
        """Whether it is a build for CUDA."""
        return bool(self.torch.cuda.is_available())

    def pick(self, index: int) -> float:
        """An element of a table of 4; the device asserts that there is one of this index."""
        at: Any = self.torch.tensor([index], device=self.ctx.torch_device)
        return float(self.table[at].cpu()[0])

    def too_much(self) -> None:
        self.torch.empty(1 << 42, dtype=self.torch.uint8, device=self.ctx.torch_device)


class CupyStriker(cb.ResidentActor):
    """Poisons the context inside CuPy."""

    supervision = cb.OneForOne(max_restarts=0, within=60.0)

    def setup(self, ctx: cb.HostContext) -> None:
        import cupy

        self.cupy = cupy
        self.ctx = ctx
        self.kernel = cupy.RawKernel(
            'extern "C" __global__ void put(float* out, long long at) { out[at] = 7; }', "put", backend="nvrtc"
        )

    def put(self, at: int) -> float:
        """Write an element of an array of 4, wherever it is, and read the array's first one."""
        _ = self.ctx.stream
        out = self.cupy.zeros(4, "f4")
        self.kernel((1,), (1,), (out, self.cupy.int64(at)))
        return float(out.get()[0])


class TritonStriker(cb.ResidentActor):
    """Poisons the context by a kernel of Triton's."""

    supervision = cb.OneForOne(max_restarts=0, within=60.0)

    def prepare(self) -> None:
        import torch
        from tests.faults.cuda import triton_kernel

        self.torch = torch
        self.kernel = triton_kernel.put

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx

    def put(self, at: int) -> float:
        """Write an element of an array of 4, wherever it is, and read the array's first one."""
        out = self.torch.zeros(4, device=self.ctx.torch_device)
        self.kernel[(1,)](out, at)
        return float(out.cpu()[0])
