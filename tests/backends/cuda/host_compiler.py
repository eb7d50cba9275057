"""Our kernels on host memory: the text that NVRTC or nvcc would compile, compiled by g++ and run thread by thread.

What was compiled is kept under the content of the text, for all workers and later runs; ``pytest --cache-clear``
removes it.
"""

import ctypes
import hashlib
import platform
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from host_driver import HostDriver, HostKernels
from tests.once import made_once

from callboard.backends.cuda.kernels import source_text

__all__ = ["COMPILER", "CompiledKernels", "CompilingDriver", "HostCompiler"]

COMPILER = shutil.which("g++")
THREADS = Path(__file__).parent / "host_threads.hpp"
OPTIONS = "-std=c++17 -O1 -U_FORTIFY_SOURCE -w -fwrapv -ffp-contract=off -fno-strict-aliasing -fPIC"
CONVERSIONS = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));': "_Float16 h; memcpy(&h, &x, 2); f = (float)h;",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));': "_Float16 h = (_Float16)x; memcpy(&half, &h, 2);",
    'asm("cvt.rn.f16.f64 %0, %1;" : "=h"(half.bits) : "d"(x));': "_Float16 h = (_Float16)x; memcpy(&half, &h, 2);",
}
"""Instructions of the device, and what does the same. The others, of fp8, are left out: they cannot be tested here."""
KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\(.*?\)\s+)?(\w+)\(')
SHARED = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];")


class HostCompiler:
    """Libraries of texts.

    Args:
        folder: Where they are kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, ctypes.CDLL] = {}

    def library(self, text: str) -> ctypes.CDLL:
        """Functions ``run_<name>(addresses of the arguments, x, y, threads)``, which give a status of the driver."""
        if text not in self._open:
            whole = text.replace("#line 1\n", "")
            for instruction, same in CONVERSIONS.items():
                whole = whole.replace(instruction, same)
            whole = re.sub(r"asm\(.*?\);", ";", whole)
            whole = SHARED.sub(r"\1* const \2 = (\1*)shared_block;", whole)
            # The header takes longer to read than most kernels: it is compiled once.
            header = self._kept(THREADS.read_text(), "-x c++-header", ".hpp.gch").with_suffix("")
            names = KERNEL.findall(self._kept(text, "-E -P -DEMULATED -x c++", ".cpp").read_text())
            whole += "".join(f"\nRUN({name})" for name in names)
            found = self._kept(whole, f"-include {header} -shared -x c++", ".so")
            self._open[text] = ctypes.CDLL(str(found))
        return self._open[text]

    def _kept(self, text: str, options: str, suffix: str) -> Path:
        told = "\0".join([text, options, OPTIONS, str(COMPILER), platform.machine()])
        path = self._folder / (hashlib.sha256(told.encode()).hexdigest()[:32] + suffix)

        def compile_it(made: Path) -> None:
            source = made.with_name("text")
            source.write_text(text)
            command = [COMPILER or "g++", *OPTIONS.split(), *options.split(), str(source), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            assert done.returncode == 0, done.stderr[:4000]

        return made_once(path, compile_it)


class CompilingDriver(HostDriver):
    """A stand-in for the driver that runs compiled kernels.

    Attributes:
        runs: The functions, by handle.
        grids: Of their launches.
    """

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
        code: int = run(params, grid_x, grid_y, block)
        return code or self._enqueued(f"kernel {self.functions[function]}", stream)


class CompiledKernels(HostKernels):
    """Kernels of such a driver: those of generated texts, and those of some sources.

    Args:
        driver: Which one.
        compiler: With which they are made.
        sources: What the names of these sources begin with; the stand-in for the driver has the others.
    """

    def __init__(self, driver: CompilingDriver, compiler: HostCompiler, *sources: str) -> None:
        super().__init__(driver)
        self._runs = driver.runs
        self._compiler = compiler
        self._sources = sources

    def get(self, source: str, name: str) -> int:
        handle = super().get(source, name)
        if source.startswith(self._sources):
            self._runs[handle] = partial(self._run, source, name)
        return handle

    def _run(self, source: str, name: str, *arguments: Any) -> int:
        library = self._compiler.library(source_text(source).decode())
        code: int = getattr(library, f"run_{name}")(*arguments)
        return code

    def compile(self, source: str, text: bytes, name: str) -> int:
        run = getattr(self._compiler.library(text.decode()), f"run_{name}")
        handle = super().get(source, f"compiled_{name}")
        self._runs[handle] = run
        return handle
