"""Kernels of our own: CUDA C++ in ``data/``, compiled by NVRTC for the device on first use.

A compile takes a few tenths of a second; the binary is kept on disk, keyed by source, architecture and compiler, so
that the next process loads it within a millisecond.
"""

import ctypes
import hashlib
import re
import threading
from collections.abc import Callable
from ctypes import c_void_p
from importlib import resources
from pathlib import Path

from callboard.backends.cuda import compiling
from callboard.backends.cuda.compiling import Job, load_nvrtc
from callboard.backends.cuda.driver import Driver
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.library import WouldBlock

__all__ = ["Kernels", "compiled", "data_text", "source_text"]


class Kernels:
    """The kernels of a device. Any thread on which its context is current.

    Args:
        driver: The CUDA driver API.
        capability: Compute capability of the device.
        may_wait: True if the calling thread may be held while something is compiled.
    """

    def __init__(
        self, driver: Driver, capability: tuple[int, int], may_wait: Callable[[], bool] = lambda: True
    ) -> None:
        self._driver = driver
        self._capability = capability
        self._may_wait = may_wait
        self._lock = threading.Lock()
        self._modules: dict[str, int] = {}
        self._functions: dict[tuple[str, str], int] = {}

    def get(self, source: str, name: str) -> int:
        """The ``CUfunction`` of kernel ``name`` in ``data/<source>.cu``.

        The first call for a source may compile: not for a launch. A long file is compiled in parts: of the source
        ``"tensor_elements-f32"``, what ``data/tensor_elements.cu`` has for ``FOR_f32``; of ``"array_cast-FROM=F32"``,
        with ``FROM`` defined as ``F32``.

        Raises:
            BackendUnavailable: NVRTC is not installed.
            LibraryError: It refuses the source.
            WouldBlock: It has to be compiled or loaded, and the calling thread may not wait for that.
        """
        found = self._functions.get((source, name))
        if found is not None:
            return found
        module = self._modules.get(source)
        if module is None:
            if not self._may_wait():
                raise WouldBlock(f"{source}.cu has not been loaded")
            with self._lock:
                module = self._modules.get(source)
                if module is None:
                    module = self._modules[source] = self._load(source)
        function = c_void_p()
        self._driver.module_get_function(ctypes.byref(function), module, name.encode())
        found = self._functions[source, name] = function.value or 0
        return found

    def compile(self, source: str, text: bytes, name: str) -> int:
        """The ``CUfunction`` of kernel ``name`` in a text of CUDA C++; compiles: not for a launch.

        Args:
            source: The name of the text in compiler messages, with ``.cu``.
            text: Equal texts are compiled once, and stay as long as the device.
            name: Name of the kernel, which is ``extern "C"``.

        Raises:
            BackendUnavailable: NVRTC is not installed.
            LibraryError: NVRTC rejects the text; with the compiler's log.
        """
        key = f"{source}-{hashlib.sha256(text).hexdigest()}"
        with self._lock:
            if key not in self._modules:
                nvrtc = load_nvrtc()
                job = _job(source, text, *compiling.architecture(nvrtc, self._capability))
                self._modules[key] = self._loaded(compiling.compiled(nvrtc, job, KernelCache()).image)
        return self.get(key, name)

    def linkable(self, source: str, text: bytes) -> bytes:
        """Compile CUDA C++ to LTO-IR for linking; too slow for a launch.

        Args:
            source: The name of the text in compiler messages, with ``.cu``.
            text: Functions for the device.

        Raises:
            BackendUnavailable: NVRTC is not installed.
            LibraryError: NVRTC rejects the text; with the compiler's log.
        """
        nvrtc = load_nvrtc()
        job = _job(source, text, compiling.architecture(nvrtc, self._capability)[0], "LTOIR")
        return compiling.compiled(nvrtc, job, KernelCache()).image

    def close(self) -> None:
        """Unload all; nothing of them runs."""
        with self._lock:
            for module in self._modules.values():
                self._driver.module_unload(module)
            self._modules.clear()
            self._functions.clear()

    def _load(self, source: str) -> int:
        return self._loaded(compiled(source, self._capability))

    def _loaded(self, image: bytes) -> int:
        module = c_void_p()
        self._driver.module_load_data(ctypes.byref(module), image)
        return module.value or 0


def compiled(source: str, capability: tuple[int, int], cache: Path | None = None) -> bytes:
    """The binary (a cubin; PTX where NVRTC is older than the device) of ``data/<source>.cu``.

    Args:
        source: Name of the file without its suffix, then, each after a dash, parts of it or macros to define.
        capability: Compute capability of the device.
        cache: Folder of the binaries; the user's when None.

    Raises:
        BackendUnavailable: NVRTC is not installed.
        LibraryError: It refuses the source.
    """
    nvrtc = load_nvrtc()
    job = _job(source, source_text(source), *compiling.architecture(nvrtc, capability))
    return compiling.compiled(nvrtc, job, KernelCache(cache)).image


def _job(source: str, text: bytes, architecture: str, form: str) -> Job:
    return Job(f"{source}.cu", text, architecture, form)


def source_text(source: str) -> bytes:
    """The text of ``data/<source>.cu``, preceded by its definitions."""
    lib, *parts = source.split("-")
    text = data_text(f"{lib}.cu")
    if parts:
        defined = [part.replace("=", " ") if "=" in part else f"FOR_{part}" for part in parts]
        text = "".join(f"#define {one}\n" for one in defined).encode() + b"#line 1\n" + text
    return text


def data_text(name: str) -> bytes:
    """A file of ``data/`` with the files that it includes put in their places."""
    text = (resources.files("callboard.backends.cuda") / "data" / name).read_bytes()
    return re.sub(rb'^#include "(.+)"$', lambda found: data_text(found[1].decode()), text, flags=re.MULTILINE)
