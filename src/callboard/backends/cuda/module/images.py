"""Binaries of the user's: read, linked if there are several, and loaded."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from callboard.backends.cuda.compiling import architecture, load_nvrtc
from callboard.backends.cuda.driver import Driver
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.backends.cuda.nvrtc.linking import form_of, link, load_nvjitlink
from callboard.backends.cuda.nvrtc.loading import Loaded, Modules
from callboard.core.errors import LibraryError
from callboard.core.library import WouldBlock
from callboard.kernel.module import Image

__all__ = ["Images"]


class Images:
    """The binaries of one library of a device. Any thread on which its context is current.

    Args:
        driver: The CUDA driver API.
        capability: Compute capability of the device.
        may_wait: True if the calling thread may be held while something is read, linked or loaded.
    """

    def __init__(self, driver: Driver, capability: tuple[int, int], may_wait: Callable[[], bool]) -> None:
        self._capability = capability
        self._may_wait = may_wait
        self._modules = Modules(driver, may_wait)

    def function(self, images: Sequence[Image], options: Sequence[str], name: str) -> Loaded:
        """Return a kernel and count one more user, which must release it.

        Raises:
            BackendUnavailable: nvJitLink is needed and not installed.
            LibraryError: A file has changed, linker or driver refuse, or there is no such kernel.
            WouldBlock: Something has to be done first, and the calling thread may not wait.
        """

        def image() -> tuple[bytes, str]:
            if not self._may_wait():
                raise WouldBlock(f"{images[0].title} has not been loaded")
            contents = [(one.title, _content(one)) for one in images]
            if len(contents) == 1 and not options and form_of(contents[0][1]) in ("cubin", "ptx", "fatbin"):
                return contents[0][1], name
            return self.linked(images, options), name

        key = tuple(images), tuple(options), name
        return self._modules.function(key, ", ".join(one.title for one in images), image)

    def linked(self, images: Sequence[Image], options: Sequence[str]) -> bytes:
        """One cubin of all, linked at most once on this machine. Raises as :meth:`function`."""
        contents = [(one.title, _content(one)) for one in images]
        target, _ = architecture(load_nvrtc(), self._capability, specific=True)
        target = target.replace("compute_", "sm_")
        version = load_nvjitlink().version()
        key = [[hashlib.sha256(content).digest() for _, content in contents], list(options), target, list(version)]
        cache = KernelCache()
        name = f"linked-{hashlib.sha256(msgspec.msgpack.encode(key)).hexdigest()[:40]}.bin"
        found = cache.get(name)
        if found is None:
            found = link(contents, target, options)
            cache.keep(name, found)
        return found

    def close(self) -> None:
        """Unload all; nothing of them runs."""
        self._modules.close()


def _content(image: Image) -> bytes:
    if image.data:
        return image.data
    try:
        content = Path(image.path).read_bytes()
    except OSError as e:
        raise LibraryError(f"{image.path} cannot be read: {e}", "module") from e
    if hashlib.sha256(content).hexdigest() != image.digest:
        raise LibraryError(f"{image.path} has changed since it was loaded; load it again", "module")
    return content
