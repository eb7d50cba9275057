"""Modules in the context, each as long as a plan uses it."""

import ctypes
import threading
from collections.abc import Callable, Hashable
from ctypes import c_void_p
from types import TracebackType
from typing import Self

from callboard.backends.cuda.driver import Driver
from callboard.core.errors import DriverError, LibraryError
from callboard.core.library import WouldBlock

__all__ = ["Loaded", "Modules"]

NOT_FOUND = 500


class Loaded:
    """A kernel of a module. As a context it is kept, unless the block fails: then it is released.

    Attributes:
        function: The ``CUfunction``.
    """

    def __init__(self, modules: "Modules", key: Hashable, module: int, function: int) -> None:
        self._modules = modules
        self._key = key
        self.module = module
        self.function = function
        self.users = 0

    def release(self) -> None:
        """One user less; the last one unloads the module. Nothing of it runs for that user."""
        self._modules.released(self, self._key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.release()


class Modules:
    """The modules of one library of a device. Any thread on which its context is current.

    Args:
        driver: The CUDA driver API.
        may_wait: True if the calling thread may be held while a module is loaded.
    """

    def __init__(self, driver: Driver, may_wait: Callable[[], bool]) -> None:
        self._driver = driver
        self._may_wait = may_wait
        self._lock = threading.Lock()
        self._loaded: dict[Hashable, Loaded] = {}

    def function(self, key: Hashable, title: str, image: Callable[[], tuple[bytes, str]]) -> Loaded:
        """Return a kernel and count one more user, which must release it.

        Args:
            key: Key of the kernel.
            title: Title of the source or file, for errors.
            image: Returns the binary and the kernel's name in it; may block, and its exceptions are raised.

        Raises:
            LibraryError: The driver refuses the binary, or it has no such kernel.
            WouldBlock: It has to be loaded, and the calling thread may not wait.
        """
        with self._lock:
            found = self._loaded.get(key)
            if found is not None:
                found.users += 1
                return found
        binary, name = image()
        if not self._may_wait():
            raise WouldBlock(f"{title} has not been loaded")
        with self._lock:
            found = self._loaded.get(key)
            if found is None:
                found = self._loaded[key] = Loaded(self, key, *self._load(binary, name, title))
            found.users += 1
            return found

    def released(self, loaded: Loaded, key: Hashable) -> None:
        """A user has gone."""
        with self._lock:
            loaded.users -= 1
            if loaded.users == 0 and self._loaded.get(key) is loaded:
                del self._loaded[key]
                self._driver.module_unload(loaded.module)

    def close(self) -> None:
        """Unload all; nothing of them runs."""
        with self._lock:
            for loaded in self._loaded.values():
                self._driver.module_unload(loaded.module)
            self._loaded.clear()

    def _load(self, image: bytes, name: str, title: str) -> tuple[int, int]:
        module, function = c_void_p(), c_void_p()
        try:
            self._driver.module_load_data(ctypes.byref(module), image)
        except DriverError as e:
            raise LibraryError(f"{title} cannot be loaded: {e}", "module", e.code) from e
        try:
            self._driver.module_get_function(ctypes.byref(function), module, name.encode())
        except DriverError as e:
            self._driver.module_unload(module)
            if e.code == NOT_FOUND:
                raise LibraryError(f"{title} has no kernel {name}", "module", e.code) from e
            raise LibraryError(f"{name} of {title} cannot be loaded: {e}", "module", e.code) from e
        return module.value or 0, function.value or 0
