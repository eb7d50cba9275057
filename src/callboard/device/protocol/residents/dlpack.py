"""DLPack by hand: device memory as a capsule for torch, CuPy and others, and the contents of their capsules.

The structures are those of dlpack.h 0.x ("dltensor" capsules), which every consumer still takes.
"""

import ctypes
from typing import Any, NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout

__all__ = ["CPU", "CUDA", "HOST_LIKE", "UNNAMED", "Exported", "capsule_of", "check_consumer", "described"]

CPU, CUDA = 1, 2
"""Device types."""
HOST_LIKE = (CPU, 3)  # page-locked host memory counts as the CPU's

_KINDS = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}
_CODES = {name: (_KINDS[dtype.kind], 8 * dtype.itemsize) for name, dtype in DTYPES.items()}
_CODES |= {"bf16": (4, 16), "f8_e4m3": (10, 8), "f8_e5m2": (12, 8)}
del _CODES["f4_e2m1"]  # DLPack packs two to a byte
_BY_CODE = {code: DTYPES[name] for name, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
# While a capsule is being destroyed it must be named by its address: a reference would bring it back to life.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_alive: dict[int, tuple[Any, ...]] = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _delete(address: int) -> None:
    _alive.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _destroyed(capsule: int) -> None:
    if _is_valid(capsule, b"dltensor"):  # not consumed
        _alive.pop(_pointer_at(capsule, b"dltensor"), None)


UNNAMED: Any = object()
"""The stream of a consumer that names none."""


def check_consumer(layout: Layout, stream: object, max_version: object, cure: str) -> None:
    """Refuse a consumer that cannot read the memory of a GPU.

    NumPy would find that out when it has the capsule, and lose its error while the capsule is destroyed.

    Args:
        layout: Layout of the array.
        stream: The stream that the consumer passed, or :data:`UNNAMED`.
        max_version: The ``max_version`` that the consumer passed, or None. NumPy passes one since 2.1. Every consumer
            that can read a GPU's memory passes a stream.
        cure: The recommended alternative, for the error.

    Raises:
        BufferError
    """
    if stream is UNNAMED and max_version is not None:
        raise BufferError(f"{layout!r} is on a GPU, where NumPy cannot read it; {cure}")


class Exported(NamedTuple):
    """The contents of a capsule that another package made."""

    address: int
    """Address of element 0."""
    device: tuple[int, int]
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """In elements; None: row-major without gaps."""


def capsule_of(address: int, layout: Layout, device: tuple[int, int], owner: object) -> Any:
    """A capsule of an array in memory that ``owner`` keeps.

    Raises:
        BufferError: A dtype that DLPack has no word for.
    """
    code = _CODES.get(layout.dtype.name)
    if code is None:
        raise BufferError(f"{layout!r}: DLPack has no such dtype; reinterpret it as u8")
    extents = (ctypes.c_int64 * max(layout.ndim, 1))(*layout.shape)
    steps = (ctypes.c_int64 * max(layout.ndim, 1))(*layout.strides)
    tensor = _Tensor(address, *device, layout.ndim, *code, 1, extents, steps, 0)
    managed = _Managed(tensor, None, ctypes.cast(_delete, ctypes.c_void_p))
    at = ctypes.addressof(managed)
    _alive[at] = (managed, extents, steps, owner)
    return _new(at, b"dltensor", ctypes.cast(_destroyed, ctypes.c_void_p))


def described(array: Any, stream: int = -1) -> Exported:
    """Description of an array with ``__dlpack__``; the array stays with its owner.

    Args:
        array: An array of NumPy, torch, CuPy or another package.
        stream: Native stream that its owner shall make wait for it; -1: none, it was made on the current one.

    Raises:
        TypeError: A dtype that no device holds.
    """
    device = array.__dlpack_device__()
    capsule = array.__dlpack__() if int(device[0]) in HOST_LIKE else array.__dlpack__(stream=stream)
    tensor = _Managed.from_address(_pointer(capsule, b"dltensor")).tensor
    dtype = _BY_CODE.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise TypeError(
            f"dtype of {type(array).__qualname__} (DLPack code {tensor.code}, {tensor.bits} bits) is unknown"
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(_signed(s, dtype.itemsize) for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    kind = CPU if int(device[0]) in HOST_LIKE else int(device[0])
    return Exported((tensor.data or 0) + tensor.byte_offset, (kind, int(device[1])), dtype, shape, strides)


def _signed(stride: int, itemsize: int) -> int:
    """A stride in elements. CuPy divides negative ones, in bytes, as unsigned numbers of 64 bits."""
    return stride - 2**64 // itemsize if stride * itemsize >= 2**63 else stride
