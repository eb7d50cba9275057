"""Arrays of other packages, as memory: their methods are called here, and what those raise is the caller's error."""

import sys
from typing import Any, NamedTuple

import numpy as np

from callboard.core.dtype import DType, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.ref.hostarrays import host_array, refuse_masked, told
from callboard.device.protocol.residents import dlpack
from callboard.device.protocol.residents.dlpack import Exported, contents_of
from callboard.device.protocol.residents.hostview import host_view

__all__ = ["Found", "device_memory", "dlpack_device", "exported", "host_memory", "host_values"]

LEGACY_STREAM = 1
"""CUDA's name for its default stream, which waits for every blocking stream."""


class Found(NamedTuple):
    """An array of another package.

    Attributes:
        address: Address of element 0.
        layout: Layout of the array.
        owner: Keeps the memory.
        shared: False if the array is immutable (JAX), so that a ref must be of a copy; one in host memory is one.
        ordinal: Of its CUDA device; None if it does not say.
        follow: Native stream that must be waited for, because the owner's work is on it or before it; None: there is
            no such work.
    """

    address: int
    layout: Layout
    owner: Any
    shared: bool = True
    ordinal: int | None = None
    follow: int | None = None


def dlpack_device(what: str, array: Any) -> tuple[int, int] | None:
    """The device that an array says it is on; None if it does not speak DLPack.

    Raises:
        TypeError: It gives no device.
    """

    def ask() -> tuple[int, int] | None:
        method = getattr(array, "__dlpack_device__", None)
        if method is None or not hasattr(array, "__dlpack__"):
            return None
        kind, number = method()
        return int(kind), int(number)

    return told(what, array, "__dlpack_device__", ask)


def exported(what: str, array: Any, stream: int | None = None) -> Exported:
    """The contents of the capsule that an array exports.

    Args:
        what: The function that asks, for errors.
        array: An array with ``__dlpack__``.
        stream: Native stream that its owner shall make wait for it; -1: none, it was made on the current one. None
            for an array in host memory.

    Raises:
        TypeError: It exports none that a ref can be made of.
    """
    named = {} if stream is None else {"stream": stream}

    def ask() -> Any:
        try:
            return array.__dlpack__(max_version=(1, 0), **named)
        except TypeError:  # a package of before 2024
            return array.__dlpack__(**named)

    return contents_of(told(what, array, "__dlpack__", ask), f"{what}: {type(array).__qualname__}")


def host_memory(what: str, array: Any) -> Found:
    """An array in host memory.

    Raises:
        TypeError: It is none, or one that no ref can represent; names the reason.
    """
    if isinstance(array, np.ndarray):
        return _numpy_memory(what, array)
    device = dlpack_device(what, array)
    if device is None:
        raise TypeError(f"{what}: {type(array).__qualname__} is not an array; pass a NumPy array or a CPU tensor")
    if device[0] not in dlpack.HOST_LIKE:
        raise TypeError(f"{what}: {type(array).__qualname__} is on DLPack device {device}, and not in host memory")
    said = exported(what, array)
    if said.device[0] not in dlpack.HOST_LIKE:
        raise TypeError(f"{what}: {type(array).__qualname__} has exported memory of DLPack device {said.device}")
    layout = _layout(what, said.dtype, said.shape, said.strides)
    if _is_immutable(array):
        copy = host_view(said.address, layout, writable=False).copy("C")
        return Found(copy.ctypes.data, layout_of(layout.dtype, layout.shape), copy, shared=False)
    if said.read_only:
        raise TypeError(f"{what}: the array is read-only, and ops may write to a ref; use dev.put, which copies it")
    if said.address % min(layout.dtype.itemsize, 8) and layout.size:
        raise TypeError(f"{what}: the array is not aligned; use dev.put, which copies it")
    return Found(said.address, layout, (array, said.owner))


def host_values(what: str, value: Any, dtype: DType | None) -> "np.ndarray[Any, Any]":
    """:func:`host_array`, which here reads objects that only DLPack describes, too."""
    if type(value) is not np.ndarray and not hasattr(type(value), "__array__") and hasattr(type(value), "__dlpack__"):
        said = exported(what, value)
        if said.device[0] not in dlpack.HOST_LIKE:
            raise TypeError(f"{what}: {type(value).__qualname__} has exported memory of DLPack device {said.device}")
        view = host_view(said.address, _layout(what, said.dtype, said.shape, said.strides), writable=False)
        return host_array(view.copy(), dtype, what)
    return host_array(value, dtype, what)


def _numpy_memory(what: str, array: "np.ndarray[Any, Any]") -> Found:
    refuse_masked(array, what)
    dtype = as_dtype(array.dtype, f"{what}: the array's dtype")
    flags = array.flags
    if not (flags.writeable and flags.aligned and array.dtype.isnative) or any(
        s % dtype.itemsize for s in array.strides
    ):
        raise TypeError(
            f"{what}: the array is read-only, byte-swapped, not aligned or oddly strided; use dev.put, which copies it"
        )
    strides = tuple(s // dtype.itemsize for s in array.strides)
    return Found(array.ctypes.data, _layout(what, dtype, array.shape, strides if array.size else None), array)


def device_memory(what: str, array: Any, stream: int = LEGACY_STREAM) -> Found:
    """An array on a CUDA device.

    Args:
        what: The function that asks, for errors.
        array: An array of torch, CuPy, Numba or another package.
        stream: See :func:`exported`.

    Raises:
        TypeError: It is none, or one that no ref can represent; names the reason.
    """
    device = dlpack_device(what, array)
    if device is not None:
        if device[0] != dlpack.CUDA:
            raise TypeError(
                f"{what}: {type(array).__qualname__} is on DLPack device {device}, and not on a GPU; move it there, or "
                "use a NumPy array"
            )
        said = exported(what, array, stream)
        if said.device != device:
            raise TypeError(f"{what}: {type(array).__qualname__} has exported memory of DLPack device {said.device}")
        layout = _layout(what, said.dtype, said.shape, said.strides if said.address else None)
        immutable = _is_immutable(array)
        if said.read_only and not immutable:
            raise TypeError(f"{what}: the array is read-only, and ops may write to a ref; copy it first")
        found = Found(said.address, layout, (array, said.owner), not immutable, device[1], stream)
    else:
        interface = told(
            what, array, "__cuda_array_interface__", lambda: getattr(array, "__cuda_array_interface__", None)
        )
        if interface is None:
            raise TypeError(
                f"{what}: {type(array).__qualname__} is not a device array; pass one of torch, CuPy, Warp or Numba"
            )
        found = told(what, array, "__cuda_array_interface__", lambda: _interface_memory(what, array, interface))
    if found.address % found.layout.dtype.itemsize and found.layout.size:
        raise TypeError(f"{what}: the array is not aligned to its elements; copy it first")
    return found


def _interface_memory(what: str, array: Any, interface: dict[str, Any]) -> Found:
    """An array by its ``__cuda_array_interface__``, version 3, which names no device: the caller must check that."""
    given = np.dtype(interface["typestr"])
    dtype, shape = as_dtype(given), tuple(map(int, interface["shape"]))
    address, read_only = interface["data"]
    strides = interface.get("strides")
    if (
        read_only
        or interface.get("mask") is not None
        or not given.isnative
        or any(s % dtype.itemsize for s in strides or ())
    ):
        raise TypeError("the array is read-only, masked, byte-swapped or oddly strided; copy it first")
    layout = _layout(what, dtype, shape, None if strides is None else tuple(s // dtype.itemsize for s in strides))
    if any(extent < 0 for extent in shape) or (layout.size and not address):
        raise TypeError(f"shape {shape} at address {address}")
    follow = interface.get("stream", LEGACY_STREAM)  # None: its owner's work is done
    if follow is not None and (type(follow) is not int or follow == 0):
        raise TypeError(f"stream is {follow!r}; it must be 1 (legacy default), 2 (per-thread default) or a handle")
    return Found(address or 0, layout, array, follow=follow)


def _layout(what: str, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Layout:
    if strides is not None and len(strides) != len(shape):
        raise TypeError(f"{what}: the array has {len(shape)} axes and {len(strides)} strides")
    try:
        return layout_of(dtype, shape, strides)
    except ShapeError as e:
        raise TypeError(f"{what}: {e}") from None


def _is_immutable(array: Any) -> bool:
    jax: Any = sys.modules.get("jax")
    kind = getattr(jax, "Array", None)
    return kind is not None and isinstance(array, kind)
