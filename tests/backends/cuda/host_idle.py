"""Stand-ins for vendors' libraries that compute nothing: they say where each call would be enqueued."""

import ctypes
from collections.abc import Callable
from typing import Any

from host_driver import HostDriver

HANDLE = 0xC5000000
"""The first one; others follow. No descriptor and no address is such a number."""
ANYTHING = 64
"""A size, a status or a descriptor."""


class IdleError(Exception):
    pass


class Idle:
    """Any function of a binding whose handles have a stream.

    Attributes:
        streams: Of handles.
    """

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self.streams: dict[int, int] = {}

    def create(self, *settings: int) -> int:
        self.streams[handle := HANDLE + len(self.streams)] = 0
        return handle

    def set_stream(self, handle: int, stream: int) -> None:
        assert handle in self.streams
        self.streams[handle] = stream

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            if arguments and arguments[0] in self.streams and not name.startswith("set_"):
                self._driver.streams.add(self.streams[arguments[0]])
            return ANYTHING

        return call


class IdleCusparse(Idle):
    """In place of ``nvmath.bindings.cusparse``."""

    cuSPARSEError = IdleError  # noqa: N815 - the binding's name

    def sp_mat_get_size(self, matrix: int) -> tuple[int, int, int]:
        return 0, 0, 0


class IdleCurand(Idle):
    """In place of ``nvmath.bindings.curand``."""

    cuRANDError = IdleError  # noqa: N815 - the binding's name
    create_generator = Idle.create


class Attributes:
    """Any member of an enumeration."""

    def __getattr__(self, name: str) -> int:
        return 1


class IdleCusparseLt(Idle):
    """In place of ``nvmath.bindings.cusparseLt``: no handle has a stream, each call is told its own."""

    cuSPARSELtError = IdleError  # noqa: N815 - the binding's name
    MatDescAttribute = MatmulDescAttribute = MatmulAlgAttribute = Attributes()
    get_property = (0, 8).__getitem__
    init = Idle.create

    def sp_mma_compressed_size2(self, handle: int, matrix: int) -> tuple[int, int]:
        return ANYTHING, ANYTHING

    def sp_mma_compress2(self, *arguments: int) -> None:
        self._driver.streams.add(arguments[-1])

    def matmul(self, *arguments: int) -> None:
        *_, streams, count = arguments
        assert count == 1
        self._driver.streams.add(ctypes.c_uint64.from_address(streams).value)
