"""Kernels of our own: CUDA C++ in ``data/``, compiled by NVRTC for the device on first use.

A compile takes a few tenths of a second; the binary is kept on disk, keyed by source, architecture and compiler, so
that the next process loads it within a millisecond.
"""

import ctypes
import hashlib
import logging
import os
import re
import threading
from collections.abc import Callable
from ctypes import c_void_p
from importlib import resources
from pathlib import Path
from typing import Any

from callboard.backends.cuda.driver import Driver
from callboard.core.errors import BackendUnavailable, LibraryError
from callboard.core.library import WouldBlock

__all__ = ["Kernels", "cache_folder", "compiled", "data_text", "keep", "source_text"]

_log = logging.getLogger("callboard.cuda")


class Kernels:
    """The kernels of a device. Any thread on which its context is current.

    Args:
        driver: What to call.
        capability: Compute capability of the device.
        may_wait: Whether the calling thread may be held while something is compiled.
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
            source: What messages of the compiler call the text, with ``.cu``.
            text: Equal texts are compiled once, and stay as long as the device.
            name: Of the kernel, which is ``extern "C"``.

        Raises:
            BackendUnavailable: NVRTC is not installed.
            LibraryError: It refuses the text; with what it says.
        """
        key = f"{source}-{hashlib.sha256(text).hexdigest()}"
        with self._lock:
            if key not in self._modules:
                nvrtc = load_nvrtc()
                self._modules[key] = self._loaded(_kept(nvrtc, source, text, *_architecture(nvrtc, self._capability)))
        return self.get(key, name)

    def linkable(self, source: str, text: bytes) -> bytes:
        """What NVRTC makes of a text of CUDA C++ for others to link (LTO-IR); compiles: not for a launch.

        Args:
            source: What messages of the compiler call the text, with ``.cu``.
            text: Functions for the device.

        Raises:
            BackendUnavailable: NVRTC is not installed.
            LibraryError: It refuses the text; with what it says.
        """
        nvrtc = load_nvrtc()
        architecture, _ = _architecture(nvrtc, self._capability)
        return _kept(nvrtc, source, text, architecture, "LTOIR")

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
        source: Stem of the file, and after a dash each, parts of it or what is defined.
        capability: Of the device.
        cache: Folder of the binaries; :func:`cache_folder` when None.

    Raises:
        BackendUnavailable: NVRTC is not installed.
        LibraryError: It refuses the source.
    """
    nvrtc = load_nvrtc()
    architecture, form = _architecture(nvrtc, capability)
    return _kept(nvrtc, source, source_text(source), architecture, form, cache)


def _kept(nvrtc: Any, source: str, text: bytes, architecture: str, form: str, cache: Path | None = None) -> bytes:
    """What NVRTC makes of a source, compiled at most once on this machine."""
    version = ".".join(str(n) for n in _checked(nvrtc, nvrtc.nvrtcVersion(), "nvrtcVersion"))
    key = hashlib.sha256(b"\0".join((text, architecture.encode(), form.encode(), version.encode()))).hexdigest()[:32]
    kept = (cache_folder() if cache is None else cache) / f"{source}-{key}.bin"
    try:
        return kept.read_bytes()
    except OSError:
        pass
    image = _compile(nvrtc, source, text, architecture, form)
    keep(kept, image)
    return image


def source_text(source: str) -> bytes:
    """The text of ``data/<source>.cu``, with what is defined before it."""
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


def cache_folder() -> Path:
    """``$CALLBOARD_CACHE_DIR/cuda``, else the user's cache folder."""
    own = os.environ.get("CALLBOARD_CACHE_DIR")
    base = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "callboard"
    return base / "cuda"


def load_nvrtc() -> Any:
    """NVIDIA's binding of NVRTC; its library is found through ``cuda.pathfinder``.

    Raises:
        BackendUnavailable: It is not installed.
    """
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as e:  # cuda.bindings raises RuntimeError, pathfinder its own, the import ImportError
        raise BackendUnavailable(f'NVRTC cannot be loaded: {e}; pip install "callboard[cuda13]"') from e
    return nvrtc


def _architecture(nvrtc: Any, capability: tuple[int, int]) -> tuple[str, str]:
    (supported,) = _checked(nvrtc, nvrtc.nvrtcGetNumSupportedArchs(), "nvrtcGetNumSupportedArchs")
    (numbers,) = _checked(nvrtc, nvrtc.nvrtcGetSupportedArchs(), "nvrtcGetSupportedArchs")
    wanted = capability[0] * 10 + capability[1]
    known = [n for n in list(numbers)[:supported] if n <= wanted]
    if not known:
        raise BackendUnavailable(
            f"NVRTC does not compile for compute capability {capability[0]}.{capability[1]}; it needs at least "
            f"{min(numbers) // 10}.{min(numbers) % 10} (install CUDA 12's packages for older GPUs)"
        )
    if wanted in known:
        return f"sm_{wanted}", "CUBIN"
    return f"compute_{max(known)}", "PTX"  # PTX, which the driver compiles for the newer device


def _compile(nvrtc: Any, source: str, text: bytes, architecture: str, form: str) -> bytes:
    (program,) = _checked(
        nvrtc, nvrtc.nvrtcCreateProgram(text, f"{source}.cu".encode(), 0, [], []), "nvrtcCreateProgram"
    )
    try:
        options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
        if form == "LTOIR":
            options += [b"-dlto", b"--relocatable-device-code=true"]
        status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        if int(status):
            (size,) = _checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program), "nvrtcGetProgramLogSize")
            log = b" " * size
            nvrtc.nvrtcGetProgramLog(program, log)
            raise LibraryError(f"NVRTC refuses {source}.cu: {log.decode(errors='replace')}", "nvrtc", int(status))
        (size,) = _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{form}Size")(program), f"nvrtcGet{form}Size")
        image = b" " * size
        _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{form}")(program, image), f"nvrtcGet{form}")
        return bytes(image)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(nvrtc: Any, answer: tuple[Any, ...], call: str) -> tuple[Any, ...]:
    status, *values = answer
    if int(status):
        raise LibraryError(f"{call}: {status!r}", "nvrtc", int(status))
    return tuple(values)


def keep(path: Path, image: bytes) -> None:
    """Write it whole or not at all: other processes read."""
    partial = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(image)
        partial.replace(path)
    except OSError as e:  # a read-only home: the next process compiles again
        _log.debug("%s is not kept: %s", path.name, e)
