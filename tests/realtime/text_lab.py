"""CUDA texts of simulations on the host: compiled by g++ and run thread by thread, beside the NumPy bodies."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.once import made_once

HEADER = r"""
#include <cmath>
#include <cstring>
#define __global__
#define __device__ inline
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __fdividef(a, b) ((a) / (b))
#define __launch_bounds__(...)
#define __restrict__
struct Dim { int x, y, z; };
static Dim blockIdx, threadIdx, blockDim, gridDim;
struct float3 { float x, y, z; };
static float3 make_float3(float x, float y, float z) { return {x, y, z}; }
using std::min; using std::max;
static unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
static float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static int __float2int_rn(float x) {
    return x != x ? 0 : (int)std::min(std::max((double)rintf(x), -2147483648.0), 2147483647.0);
}
static unsigned pack_u8(int high, int low, unsigned above) {
    return above << 16 | (unsigned)min(max(high, 0), 255) << 8 | (unsigned)min(max(low, 0), 255);
}
static unsigned pack_u16(int high, int low) {
    return (unsigned)min(max(high, 0), 65535) << 16 | (unsigned)min(max(low, 0), 65535);
}
static unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
    const unsigned long long all = (unsigned long long)y << 32 | x;
    unsigned found = 0;
    for (int i = 0; i < 4; ++i) found |= (unsigned)(all >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return found;
}
"""

TURNS = r"""
#include <csetjmp>
#include <functional>
#include <ucontext.h>
#include <vector>
static ucontext_t first_context;
static jmp_buf main_place, places[1024];
static std::function<void()> thread_body;
static int left;
static void begin() { thread_body(); --left; _longjmp(main_place, 2); }
static void __syncthreads() { if (!_setjmp(places[threadIdx.x])) _longjmp(main_place, 1); }
static void in_turns(int threads, std::function<void()> body) {
    static std::vector<char> stacks(1024 << 14);
    static bool ended[1024];
    thread_body = body, left = threads;
    for (volatile bool begun = false; left; begun = true)
        for (volatile int t = 0; t < threads; ++t) {
            if (begun && ended[t]) continue;
            threadIdx = {t, 0, 0};
            const int how = _setjmp(main_place);
            if (how) { ended[t] = how == 2; continue; }
            if (begun) _longjmp(places[t], 1);
            getcontext(&first_context);
            first_context.uc_stack.ss_sp = &stacks[t << 14], first_context.uc_stack.ss_size = 1 << 14;
            makecontext(&first_context, begin, 0);
            setcontext(&first_context);
        }
}
"""

COMMAND = [
    "g++",
    "-std=c++17",
    "-O1",
    "-w",
    "-fPIC",
    "-fno-strict-aliasing",
    "-U_FORTIFY_SOURCE",
    "-shared",
    "-Wl,-Bsymbolic",
    "-x",
    "c++",
    "-",
    "-o",
]
"""With its own functions first: libc has an `advance`, too."""
TYPES = {"f4": "float", "f8": "double", "i4": "int", "i8": "long long", "u4": "unsigned", "u8": "unsigned long long"}
TYPES |= {"u1": "unsigned char", "u2": "unsigned short"}


def run_text(text: str, name: str, *args: Any, blocks: int | tuple[int, int, int], threads: int) -> None:
    """Launch a function of a text. Threads that wait for each other take turns, from barrier to barrier.

    Args:
        name: The function, with the types of a template.
        args: Arrays, which it may change in place; a float is f32, an int is i32.
    """
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    kinds = [TYPES[one.dtype.str[1:]] + "*" if isinstance(one, np.ndarray) else "" for one in args]
    kinds = [kind or ("float" if isinstance(one, float) else "int") for kind, one in zip(kinds, args, strict=True)]
    of = {"float": ctypes.c_float, "int": ctypes.c_int}
    run = _library(text, name, tuple(kinds)).run
    run.argtypes = [*(of.get(kind, ctypes.c_void_p) for kind in kinds), *[ctypes.c_int] * 4]
    grid = (blocks, 1, 1) if isinstance(blocks, int) else blocks
    run(*(one.ctypes.data if isinstance(one, np.ndarray) else one for one in args), *grid, threads)


@cache
def _library(text: str, name: str, kinds: tuple[str, ...]) -> ctypes.CDLL:
    parameters = ", ".join(f"{kind} a{n}" for n, kind in enumerate(kinds))
    arguments = ", ".join(f"a{n}" for n in range(len(kinds)))
    turns = "__syncthreads" in text
    whole = f"""{HEADER}{TURNS if turns else ""}{text}
extern "C" void run({parameters}, int x, int y, int z, int threads) {{
    gridDim = {{x, y, z}}, blockDim = {{threads, 1, 1}};
    for (int b = 0; b < x * y * z; ++b) {{
        blockIdx = {{b % x, b / x % y, b / x / y}};
        const auto one = [&] {{ {name}({arguments}); }};
        {"in_turns(threads, one)" if turns else "for (int t = 0; t < threads; ++t) threadIdx = {t, 0, 0}, one()"};
    }}
}}"""
    folder = Path(tempfile.gettempdir()) / f"callboard-texts-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    kept = folder / f"{hashlib.sha256(f'{COMMAND}{whole}'.encode()).hexdigest()[:24]}.so"

    def compile_it(made: Path) -> None:
        command = [*COMMAND, str(made)]
        done = subprocess.run(command, input=whole, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr[:4000]

    return ctypes.CDLL(str(made_once(kept, compile_it)))
