"""Host arrays that travel in an arena next to the message, as views in the context host."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.device.protocol.residents.hostview import host_array

__all__ = ["HostMemory", "StagedCall"]

Array = np.ndarray[Any, Any]


class HostMemory:
    """A slot of an arena, given by its address; arrays in it are views that keep ``owner`` alive."""

    __slots__ = ("_address", "_copies", "_owner", "nbytes")

    def __init__(self, address: int, nbytes: int, owner: "_Lease | None" = None, copies: bool = False) -> None:
        self._address = address
        self._owner = owner
        self._copies = copies
        self.nbytes = nbytes

    def array(self, dtype: "np.dtype[Any]", shape: tuple[int, ...], offset: int) -> Array:
        """A row-major array at an offset: a view, or a copy if a view could outlive the memory."""
        size = math.prod(shape) * dtype.itemsize
        if offset < 0 or offset + size > self.nbytes:
            raise ValueError(f"an array reaches bytes {offset}..{offset + size} of a slot of {self.nbytes}")
        if self._owner is None:
            return host_array(self._address + offset, dtype, shape)
        if self._copies:
            return host_array(self._address + offset, dtype, shape).copy()
        array: Array = np.asarray(self._owner)[offset : offset + size].view(dtype).reshape(shape)
        return array


class _Lease:
    """Owner of the views of a call's arrays; each view keeps it alive.

    NumPy collapses a chain of ``base`` arrays to the last array, but keeps an owner of another type.
    """

    __slots__ = ("__array_interface__", "_call", "_returned")

    def __init__(self, address: int, nbytes: int, call: int, returned: Callable[[int], None]) -> None:
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, False)}
        self._call = call
        self._returned = returned

    def __del__(self) -> None:
        self._returned(self._call)


class StagedCall:
    """The host arrays of a call. The actor may keep them longer than the call.

    Args:
        call: Id of the call.
        address, nbytes: Address and size of the arrays.
        shared: The memory is the application's own and may be freed before the views: arrays are copied instead.
        returned: Called once with the call's id when the last view was dropped; on any thread, also inside a garbage
            collection.
    """

    __slots__ = ("_address", "_call", "_nbytes", "_opened", "_returned", "_shared")

    def __init__(self, call: int, address: int, nbytes: int, shared: bool, returned: Callable[[int], None]) -> None:
        self._call = call
        self._address = address
        self._nbytes = nbytes
        self._shared = shared
        self._returned = returned
        self._opened = False

    def open(self) -> HostMemory:
        """The memory of the arrays; called once, when the call runs."""
        self._opened = True
        lease = _Lease(self._address, self._nbytes, self._call, self._returned)
        return HostMemory(self._address, self._nbytes, lease, copies=self._shared)

    def drop(self) -> None:
        """The call will not run."""
        if not self._opened:
            self._opened = True
            self._returned(self._call)
