"""Sources and binaries as loaded modules, for as long as the context lives; compiled several at once."""

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes import c_void_p

from callboard.backends.cuda.compiling import Job, architecture, compiled, load_nvrtc
from callboard.backends.cuda.driver import Driver
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.backends.cuda.nvrtc.linking import link
from callboard.core.errors import DriverError, LibraryError
from callboard.core.library import WouldBlock
from callboard.kernel.nvrtc.headers import with_own_headers
from callboard.kernel.nvrtc.source import Compiled, Source

__all__ = ["Programs", "job_of"]

MAX_COMPILING = 8
NOT_FOUND = 500
FORMS = {"ptx": "PTX", "ltoir": "LTOIR"}

Key = tuple[Source, str, str]
"""Source, name expression, and form: ``"binary"``, ``"ptx"`` or ``"ltoir"``."""


class Programs:
    """The programs of one library of a device. Any thread on which its context is current.

    Args:
        driver: What to call.
        capability: Compute capability of the device.
        may_wait: Whether the calling thread may be held while something is compiled or loaded.
    """

    def __init__(self, driver: Driver, capability: tuple[int, int], may_wait: Callable[[], bool]) -> None:
        self._driver = driver
        self._capability = capability
        self._may_wait = may_wait
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._compiling: dict[Key, Future[Compiled]] = {}
        self._modules: list[int] = []
        self._functions: dict[tuple[Source, str], int] = {}
        self._images: dict[tuple[bytes, str], int] = {}

    def function(self, source: Source, name: str) -> int:
        """The ``CUfunction`` of a kernel of a source.

        Args:
            source: Compiled on a thread of the pool, so that several are compiled at once, at most once.
            name: A name expression: ``"step"``, ``"axpy<float>"``.

        Raises:
            BackendUnavailable: NVRTC is not installed.
            LibraryError: It refuses the source; with its log.
            WouldBlock: It is compiled, or has to be loaded, and the calling thread may not wait.
        """
        found = self._functions.get((source, name))
        if found is not None:
            return found
        made = self.compiled(source, name)
        with self._lock:
            found = self._functions.get((source, name))
            if found is None:
                found = self._functions[source, name] = self._load(made.image, made.lowered[name], source.title, name)
        return found

    def function_of_image(self, image: bytes, name: str) -> int:
        """The ``CUfunction`` of a kernel of a cubin, a PTX text or a fatbin.

        Raises:
            LibraryError: The driver refuses the image, or it has no such kernel.
            WouldBlock: It has to be loaded, and the calling thread may not wait.
        """
        found = self._images.get((image, name))
        if found is not None:
            return found
        if not self._may_wait():
            raise WouldBlock(f"{name} has not been loaded")
        with self._lock:
            found = self._images.get((image, name))
            if found is None:
                found = self._images[image, name] = self._load(image, name, "the image", name)
        return found

    def compiled(self, source: Source, name: str = "", form: str = "binary") -> Compiled:
        """What the source is compiled to. The compiler is at work when this raises ``WouldBlock``.

        Args:
            source: The source.
            name: A name expression to look up.
            form: ``"binary"``: what the device loads, linked where the source asks for that; ``"ptx"``, ``"ltoir"``.

        Raises:
            BackendUnavailable, LibraryError, WouldBlock: As :meth:`function`.
        """
        key = source, name if name not in source.expressions else "", form
        with self._lock:
            found = self._compiling.get(key)
            if found is None:
                if self._pool is None:
                    workers = min(MAX_COMPILING, os.cpu_count() or 1)
                    self._pool = ThreadPoolExecutor(workers, thread_name_prefix="callboard-nvrtc")
                found = self._compiling[key] = self._pool.submit(self._compile, *key)
        if not self._may_wait():
            raise WouldBlock(f"{source.title} is being compiled")
        try:
            return found.result()
        except BaseException:  # Ctrl-C, too
            with self._lock:  # the next launch tries again: what was missing may be there then
                if self._compiling.get(key) is found:
                    del self._compiling[key]
            raise

    def close(self) -> None:
        """Unload all; nothing of them runs."""
        with self._lock:
            pool, self._pool = self._pool, None
            for module in self._modules:
                self._driver.module_unload(module)
            self._modules.clear()
            self._functions.clear()
            self._images.clear()
            self._compiling.clear()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, source: Source, name: str, form: str) -> Compiled:
        nvrtc = load_nvrtc()
        target, usual = architecture(nvrtc, self._capability, specific=True)
        linked = form == "binary" and source.lto
        job = job_of(source, name, target, "LTOIR" if linked else FORMS.get(form, usual))
        made = compiled(nvrtc, job, KernelCache())
        if not linked:
            return made
        return Compiled(link([(source.title, made.image)], target), "CUBIN", made.lowered, made.log)

    def _load(self, image: bytes, name: str, title: str, shown: str) -> int:
        module, function = c_void_p(), c_void_p()
        try:
            self._driver.module_load_data(ctypes.byref(module), image)
            self._modules.append(module.value or 0)
            self._driver.module_get_function(ctypes.byref(function), module, name.encode())
        except DriverError as e:
            if e.code == NOT_FOUND:
                raise LibraryError(f"{title} has no kernel {shown}", "nvrtc", e.code) from e
            raise LibraryError(f"{title} cannot be loaded: {e}", "nvrtc", e.code) from e
        return function.value or 0


def job_of(source: Source, name: str, target: str, form: str) -> Job:
    """How a source is compiled for a kernel of it.

    Args:
        source: The source.
        name: A name expression; empty: none, for what is linked.
        target, form: Of :func:`callboard.backends.cuda.compiling.architecture`.
    """
    headers = with_own_headers(source.text, source.headers)
    names = tuple(dict.fromkeys((*source.expressions, *([name] if name else []))))
    return Job(
        source.title,
        source.text.encode(),
        target,
        form,
        (f"--std={source.std}", *source.options),
        headers,
        source.include_paths,
        names,
    )
