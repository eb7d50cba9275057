"""The kernels of ``data/attention*.cu``, compiled for the CPU: in f32 and f64 they compute on host memory."""

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from host_driver import HostDriver, HostKernels

from callboard.backends.cuda import kernels

__all__ = ["COMPILER", "Emulated", "emulated"]

COMPILER = shutil.which("g++")
HERE = Path(__file__).parent


class Emulated(HostKernels):
    """The kernels of a device, of which those of attention compute."""

    def get(self, source: str, name: str) -> int:
        function = super().get(source, name)
        if source.startswith("attention"):
            self._driver.emulated[function] = source, name  # type: ignore[attr-defined] # set by emulated()
        return function


def emulated(driver: HostDriver, folder: Path) -> None:
    """Have a stand-in for the driver run the kernels of attention."""
    driver.emulated = {}  # type: ignore[attr-defined]
    launch: Callable[..., int] = driver.launch_kernel

    def launch_kernel(function: int, *arguments: Any) -> int:
        found = driver.emulated.get(function)  # type: ignore[attr-defined]
        if found is None:
            return launch(function, *arguments)
        source, name = found
        grid, block, stream, params = arguments[0], arguments[3], arguments[7], arguments[8]
        getattr(compiled(source, folder), f"run_{name}")(ctypes.c_void_p(params[0]), grid, block)
        return driver._enqueued(f"kernel {name}", stream)

    driver.launch_kernel = launch_kernel  # type: ignore[method-assign]


@cache
def compiled(source: str, folder: Path) -> ctypes.CDLL:
    """A source with its kernels behind functions ``run_<name>(arguments, blocks, threads)``."""
    assert COMPILER is not None
    text = kernels.source_text(source).decode()
    text = re.sub(r"asm\(.*?\);", ";", text)  # of halves and fp8, which are not run here
    text = re.sub(r"extern __shared__[^;]*;", "", text)
    text += "".join(
        f'\nextern "C" void run_{name}(void* a, unsigned blocks, unsigned threads) '
        f"{{ run([a] {{ {name}(*({args}*)a); }}, blocks, threads); }}"
        for name, args in re.findall(
            r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?(\w+)\(const (\w+) \w\)', text
        )
    )
    path, library = folder / f"{source}.cpp", folder / f"{source}.so"
    path.write_text((HERE / "emulation.hpp").read_text() + text.replace("#line 1\n", ""))
    subprocess.run(
        [COMPILER, "-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-shared", "-fPIC", "-o", library, path],
        check=True,
        timeout=300,
    )
    return ctypes.CDLL(str(library))
