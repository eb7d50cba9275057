"""Sources and binaries as loaded modules, for as long as the context lives; compiled several at once."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from callboard.backends.cuda.compiling import Job, architecture, compiled, load_nvrtc
from callboard.backends.cuda.driver import Driver
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.backends.cuda.nvrtc.linking import link
from callboard.backends.cuda.nvrtc.loading import Loaded, Modules
from callboard.core.backend.machine import cores
from callboard.core.library import WouldBlock
from callboard.kernel.nvrtc.headers import with_own_headers
from callboard.kernel.nvrtc.source import Compiled, Source

__all__ = ["Programs", "job_of"]

MAX_COMPILING = 8
FORMS = {"ptx": "PTX", "ltoir": "LTOIR"}

Key = tuple[Source, str, str]
"""Source, name expression, and form: ``"binary"``, ``"ptx"`` or ``"ltoir"``."""


class Programs:
    """The programs of one library of a device. Any thread on which its context is current.

    Args:
        driver: The CUDA driver API.
        capability: Compute capability of the device.
        may_wait: True if the calling thread may be held while something is compiled or loaded.
    """

    def __init__(self, driver: Driver, capability: tuple[int, int], may_wait: Callable[[], bool]) -> None:
        self._capability = capability
        self._may_wait = may_wait
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._compiling: dict[Key, Future[Compiled]] = {}
        self._modules = Modules(driver, may_wait)

    def function(self, source: Source, name: str) -> Loaded:
        """Return a kernel of a source and count one more user, which must release it.

        Args:
            source: Compiled on a thread of the pool, so that several are compiled at once.
            name: A name expression: ``"step"``, ``"axpy<float>"``.

        Raises:
            BackendUnavailable: NVRTC is not installed.
            LibraryError: It refuses the source; with its log.
            WouldBlock: It is compiled, or has to be loaded, and the calling thread may not wait.
        """

        def image() -> tuple[bytes, str]:
            made = self.compiled(source, name)
            return made.image, made.lowered[name]

        return self._modules.function((source, name), source.title, image)

    def compiled(self, source: Source, name: str = "", form: str = "binary") -> Compiled:
        """Return the compiled source. Raises ``WouldBlock`` while the compiler runs.

        Args:
            source: The source.
            name: A name expression to look up.
            form: ``"binary"``: the form that the device loads, linked if the source requires it; ``"ptx"``,
                ``"ltoir"``.

        Raises:
            BackendUnavailable, LibraryError, WouldBlock: As for :meth:`function`.
        """
        key = source, name if name not in source.expressions else "", form
        with self._lock:
            found = self._compiling.get(key)
            if found is None:
                if self._pool is None:
                    workers = min(MAX_COMPILING, cores())
                    self._pool = ThreadPoolExecutor(workers, thread_name_prefix="callboard-nvrtc")
                with contextlib.suppress(RuntimeError):  # no thread can be started, or the main thread has ended
                    found = self._compiling[key] = self._pool.submit(self._compile, *key)
        if found is None:
            return self._compile(*key)
        if not self._may_wait():
            raise WouldBlock(f"{source.title} is being compiled")
        try:
            return found.result()
        finally:  # the binary is on disk now; after a failure, a missing file may exist the next time
            with self._lock:
                if self._compiling.get(key) is found:
                    del self._compiling[key]

    def close(self) -> None:
        """Unload all; nothing of them runs."""
        self._modules.close()
        with self._lock:
            pool, self._pool = self._pool, None
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


def job_of(source: Source, name: str, target: str, form: str) -> Job:
    """The compile job of a source for one of its kernels.

    Args:
        source: The source.
        name: A name expression; empty for sources that are linked.
        target, form: Target and form from :func:`callboard.backends.cuda.compiling.architecture`.
    """
    headers = with_own_headers(source.text, source.headers)
    names = source.expressions if not name or name in source.expressions else (*source.expressions, name)
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
