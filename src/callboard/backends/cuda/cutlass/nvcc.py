"""nvcc: from C++ of CUTLASS to a loaded library, at most once on this machine."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.errors import BackendUnavailable, LibraryError

__all__ = ["Toolchain", "built", "is_built", "library_of", "toolchain"]

OPTIONS = ["-std=c++17", "-O3", "-DNDEBUG", "-shared", "-Xcompiler", "-fPIC", "--expt-relaxed-constexpr", "-w"]
_loaded: dict[bytes, ctypes.CDLL] = {}
_loading = threading.Lock()
SECONDS = 1800.0
"""nvcc takes about 40 s; beyond this time something else is wrong."""


class Toolchain:
    """The compiler and the headers.

    Attributes:
        nvcc: Path of the compiler.
        source: Folder with CUTLASS's ``include``.
        version: All that a binary depends on beside its text.
    """

    def __init__(self, nvcc: str, source: Path, version: str) -> None:
        self.nvcc = nvcc
        self.source = source
        self.version = version


@cache
def toolchain() -> Toolchain:
    """Nvcc of this machine, and the headers of the package ``nvidia-cutlass``.

    Raises:
        BackendUnavailable: One of them is missing; says which, and what to install.
    """
    import importlib.metadata
    import importlib.util

    found = importlib.util.find_spec("cutlass_library")  # not imported: that takes a second, and NumPy and networkx
    source = Path(found.origin).parent / "source" if found is not None and found.origin else None
    if source is None or not (source / "include" / "cutlass").is_dir():
        raise BackendUnavailable('CUTLASS\'s headers are not installed; pip install "callboard[cutlass]"')
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=str(Path(home) / "bin"))
    if nvcc is None or shutil.which("g++") is None:
        missing = "nvcc" if nvcc is None else "g++"
        raise BackendUnavailable(f"CUTLASS's templates need {missing}, which is not on PATH; install CUDA's toolkit 13")
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False, timeout=60)
    package = importlib.metadata.version("nvidia-cutlass")
    return Toolchain(nvcc, source, f"{package}\n{told.stdout.strip().splitlines()[-1:]}\n{OPTIONS}")


def _name(text: str, architecture: str, tools: Toolchain) -> str:
    key = hashlib.sha256(f"{text}\0{architecture}\0{tools.version}".encode()).hexdigest()[:40]
    return f"cutlass-{key}.so"


def is_built(text: str, architecture: str, cache: KernelCache | None = None) -> bool:
    """True if the binary is in the cache; False also where the compiler or the headers are missing."""
    try:
        return (KernelCache() if cache is None else cache).get(_name(text, architecture, toolchain())) is not None
    except BackendUnavailable:
        return False


def built(text: str, architecture: str, cache: KernelCache | None = None) -> bytes:
    """The shared library of a text, from the cache or from nvcc, which takes about 40 s.

    If several threads or processes need a text that is not in the cache, one compiles it, and the others wait for it.

    Args:
        text: CUDA C++.
        architecture: ``"90a"``.
        cache: Where binaries are kept; the user's when None.

    Raises:
        BackendUnavailable: nvcc, g++ or the headers are missing.
        LibraryError: nvcc refuses the text, in its first words.
    """
    tools, cache = toolchain(), KernelCache() if cache is None else cache
    name = _name(text, architecture, tools)
    found = cache.get(name)
    if found is None:
        with cache.alone(name):
            found = cache.get(name)
            if found is None:
                found = _compiled(text, architecture, tools)
                cache.keep(name, found)
    return found


def _compiled(text: str, architecture: str, tools: Toolchain) -> bytes:
    with tempfile.TemporaryDirectory(prefix="callboard-cutlass-") as folder:
        source, target = Path(folder) / "kernel.cu", Path(folder) / "kernel.so"
        source.write_text(text)
        include = [f"-I{tools.source / name}" for name in ("include", "tools/util/include")]
        gencode = f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
        command = [tools.nvcc, gencode, *OPTIONS, *include, str(source), "-o", str(target)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise LibraryError(f"nvcc has not finished after {SECONDS:.0f} s", "nvcc", 1) from None
        if done.returncode:
            raise LibraryError(f"nvcc refuses the kernel: {_first_error(done.stderr)}", "nvcc", done.returncode)
        return target.read_bytes()


def _first_error(log: str) -> str:
    """The first error of a log with the lines below it, without those that only say where a template is used."""
    lines = log.splitlines()
    at = next((i for i, line in enumerate(lines) if "error" in line), 0)
    return "\n".join(lines[at : at + 6]) or "it says nothing"


def library_of(image: bytes) -> ctypes.CDLL:
    """Load a shared library from memory; the same image is loaded once.

    The loader takes a path that it has seen for the library that it found there. So each stays open, and no other gets
    the number of its descriptor. Its name is not that of an arena, whose descriptors are looked for after tests.
    """
    key = hashlib.sha256(image).digest()
    with _loading:
        if key not in _loaded:
            descriptor = os.memfd_create("cutlass-template", os.MFD_CLOEXEC)
            with open(descriptor, "wb", closefd=False) as file:
                file.write(image)
            _loaded[key] = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        return _loaded[key]
