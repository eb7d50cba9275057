"""Base of NVIDIA's libraries: loading their bindings, and calling them with callboard's errors.

NVIDIA calls ``nvmath.bindings`` experimental, so its modules, exceptions and codes stay in one module per library,
which is a :class:`Vendor`.
"""

import importlib
from collections.abc import Callable
from typing import Any, ClassVar

from callboard.core.errors import AccelError, BackendUnavailable, LibraryError, OutOfMemory

__all__ = ["Vendor", "load_binding", "not_loaded", "status_of"]

INSTALL = 'pip install "callboard[cuda13]"'


def load_binding(module: str, library: str, install: str = INSTALL) -> Any:
    """A module of ``nvmath.bindings``; it loads its library when it is first called.

    Args:
        module: ``"cublas"``.
        library: Display name of the library: ``"cuBLAS"``.
        install: The advice if it is missing.

    Raises:
        BackendUnavailable: It is not installed.
    """
    try:
        return importlib.import_module(f"nvmath.bindings.{module}")
    except ImportError as e:
        raise BackendUnavailable(f"{library} cannot be used: {e}; {install}") from e


def not_loaded(name: str, error: Exception, install: str = INSTALL) -> BackendUnavailable:
    """The library itself, or a function of it, is missing."""
    why = str(error).partition("\n")[0].partition(": No such file: ")[0]  # pathfinder lists folders
    return BackendUnavailable(f"lib{name} cannot be loaded: {why}; {install}")


def status_of(error: Exception) -> int:
    """The status that an exception of a binding carries."""
    return int(getattr(error, "status", 0))


class Vendor:
    """A library behind its binding.

    Args:
        library: The binding, or its substitute.
        failure: Exception class of the binding.

    Attributes:
        name: Prefix of the library's functions; set by the class.
        no_room: Statuses that mean a lack of memory; set by the class.
        install: The advice if the library is missing.
        library, failure: The binding (or its substitute) and its exception.
    """

    name: ClassVar[str]
    no_room: ClassVar[tuple[int, ...]]
    install: ClassVar[str] = INSTALL

    def __init__(self, library: Any, failure: type[Exception]) -> None:
        self.library = library
        self.failure = failure

    def checked(self, call: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the binding.

        Args:
            call: The name of the call in errors.

        Raises:
            OutOfMemory, LibraryError: The error that :meth:`error` makes from the binding's exception.
        """
        try:
            return function(*arguments)
        except self.failure as e:
            raise self.error(e, call) from None

    def make_handle(self, call: str, function: Callable[..., Any], *arguments: Any) -> int:
        """The same for the call that makes a handle, and loads the library.

        Raises:
            BackendUnavailable: The library cannot be loaded.
            OutOfMemory, LibraryError
        """
        try:
            return int(self.checked(call, function, *arguments))
        except AccelError:
            raise
        except Exception as e:  # pathfinder's and nvmath's own, when the library or a symbol is missing
            raise not_loaded(self.name, e, self.install) from e

    def error(self, error: Exception, call: str) -> AccelError:
        """Translate an exception of the binding."""
        status = status_of(error)
        if status in self.no_room:
            return OutOfMemory(f"{call}: {error}")
        return LibraryError(f"{call}: {error}", self.name.lower(), status)
