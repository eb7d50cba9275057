"""Generated kernels on host memory: the text that NVRTC would compile, compiled by g++ and run thread by thread.

Threads of a block are contexts that are switched at ``__syncthreads``, so what a kernel's barriers order is ordered
here too, and a barrier that not all threads reach ends the test.
"""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from host_driver import HostDriver, HostKernels

COMPILER = shutil.which("g++")

PTX = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));': "_Float16 h; memcpy(&h, &x, 2); f = (float)h;",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));': "_Float16 h = (_Float16)x; memcpy(&half, &h, 2);",
    'asm("cvt.rn.f16.f64 %0, %1;" : "=h"(half.bits) : "d"(x));': "_Float16 h = (_Float16)x; memcpy(&half, &h, 2);",
}
"""Instructions of the device, and what does the same."""

BEFORE = r"""
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>
using namespace std;
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(n)
#define __shared__ static
#define __align__(n) alignas(n)
struct Dim3 { unsigned x, y, z; };
static Dim3 threadIdx, blockIdx, blockDim, gridDim;
static ucontext_t scheduler;
static vector<ucontext_t> contexts;
static vector<int> arrived, ended;
static unsigned current;
static void __syncthreads() {
    const unsigned me = current;
    arrived[me]++;
    swapcontext(&contexts[me], &scheduler);
}
template <typename T> static T __shfl_xor_sync(unsigned, T x, int distance) {
    static T slots[1024];
    const unsigned me = threadIdx.x;
    slots[me] = x;
    __syncthreads();
    x = slots[me ^ distance];
    __syncthreads();
    return x;
}
template <typename T> static T rsqrt_of(T x) { return T(1) / sqrt(x); }
static float rsqrtf(float x) { return rsqrt_of(x); }
static double rsqrt(double x) { return rsqrt_of(x); }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
template <typename T> static T atomicAdd(T* at, T x) { const T before = *at; *at += x; return before; }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static double __dmul_rn(double a, double b) { return a * b; }
static long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __float2int_rn(float x) { return (int)rintf(x); }
"""

AFTER = r"""
static Args given;
static void (*kernel)(Args);
static void enter() { kernel(given); ended[current] = 1; swapcontext(&contexts[current], &scheduler); }
static int execute(void (*function)(Args), const Args* args, unsigned grid_x, unsigned grid_y, unsigned block) {
    kernel = function;
    given = *args;
    gridDim = {grid_x, grid_y, 1};
    blockDim = {block, 1, 1};
    const size_t room = 64 << 10;
    vector<char> stacks(room * block);
    for (unsigned b = 0; b < grid_x * grid_y; b++) {
        blockIdx = {b % grid_x, b / grid_x, 0};
        contexts.assign(block, {});
        arrived.assign(block, 0);
        ended.assign(block, 0);
        for (unsigned t = 0; t < block; t++) {
            getcontext(&contexts[t]);
            contexts[t].uc_stack.ss_sp = stacks.data() + room * t;
            contexts[t].uc_stack.ss_size = room;
            makecontext(&contexts[t], enter, 0);
        }
        for (bool some = true; some;) {
            some = false;
            for (unsigned t = 0; t < block; t++) {
                if (ended[t]) continue;
                current = t;
                threadIdx = {t, 0, 0};
                swapcontext(&scheduler, &contexts[t]);
                some |= !ended[t];
            }
            for (unsigned t = 0; some && t < block; t++) {
                if (ended[t] || arrived[t] != arrived[0]) return 719;  // a barrier that some threads never reach
            }
        }
    }
    return 0;
}
"""
RUN = """
extern "C" int run_{0}(const Args* args, unsigned x, unsigned y, unsigned block) {{
    return execute({0}, args, x, y, block);
}}
"""


class CompiledKernels(HostKernels):
    """Kernels whose texts are compiled by g++; in the folder given, once each."""

    def __init__(self, driver: "CompilingDriver", folder: Path) -> None:
        super().__init__(driver)
        self._runs = driver.runs
        self._folder = folder
        self._compiled: dict[bytes, dict[str, int]] = {}

    def compile(self, source: str, text: bytes, name: str) -> int:
        if text not in self._compiled:
            names = re.findall(r"(\w+)\(const Args p\)", text.decode())
            library = self._library(text.decode(), names)
            self._compiled[text] = {one: self.get(source, f"compiled_{one}") for one in names}
            for one, handle in self._compiled[text].items():
                self._runs[handle] = getattr(library, f"run_{one}")
        return self._compiled[text][name]

    def _library(self, text: str, names: list[str]) -> ctypes.CDLL:
        for instruction, same in PTX.items():
            text = text.replace(instruction, same)
        path = self._folder / f"{len(self._compiled)}.cpp"
        path.write_text("\n".join([BEFORE, text, AFTER, *map(RUN.format, names)]))
        library = path.with_suffix(".so")
        command = [COMPILER or "g++", "-std=c++17", "-O1", "-w", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC"]
        done = subprocess.run([*command, str(path), "-o", str(library)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        return ctypes.CDLL(str(library))


class CompilingDriver(HostDriver):
    """A stand-in for the driver that runs such kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[int, Any] = {}
        self.grids: list[tuple[int, int]] = []

    def launch_kernel(self, function: int, *arguments: Any) -> int:
        run = self.runs.get(function)
        if run is None:
            return super().launch_kernel(function, *arguments)
        (grid_x, grid_y), block, stream, params = arguments[0:2], arguments[3], arguments[7], arguments[8]
        assert 0 < grid_x < 2**31
        assert 0 < grid_y < 2**16
        self.grids.append((grid_x, grid_y))
        code: int = run(ctypes.c_void_p(params[0]), grid_x, grid_y, block)
        return code or self._enqueued("kernel", stream)
