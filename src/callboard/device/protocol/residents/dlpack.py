"""DLPack: memory as a capsule for NumPy, torch, CuPy and others, and the contents of their capsules.

A capsule is NumPy's own, of an array of plain numbers over the memory, in which the device and the dtype are then
replaced. Its deleter and its destructor are therefore C code, which runs correctly on any thread and while the
consumer's exception is pending. A callback of ctypes does neither.
"""

import ctypes
from typing import Any, NamedTuple

import numpy as np

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.device.protocol.residents.hostview import held_array

__all__ = ["CPU", "CUDA", "HOST_LIKE", "UNNAMED", "Consumer", "Exported", "capsule_of", "contents_of"]

CPU, CUDA = 1, 2
"""Device types."""
HOST_LIKE = (CPU, 3)  # page-locked host memory counts as the CPU's

_KINDS = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}
_CODES = {name: (_KINDS[dtype.kind], 8 * dtype.itemsize) for name, dtype in DTYPES.items()}
_CODES |= {"bf16": (4, 16), "f8_e4m3": (10, 8), "f8_e5m2": (12, 8)}
del _CODES["f4_e2m1"]  # DLPack packs two to a byte
_BY_CODE = {code: DTYPES[name] for name, code in _CODES.items()}
_PLAIN = {size: np.dtype(code) for size, code in ((1, "u1"), (2, "u2"), (4, "u4"), (8, "u8"), (16, "c16"))}
"""Dtypes that NumPy exports, by itemsize."""
_VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
"""NumPy exports capsules of version 1."""
READ_ONLY = 1
MAX_AXES = 64


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
    """``DLManagedTensor`` of dlpack.h 0.x, in capsules named "dltensor"."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned`` of dlpack.h 1.x, in capsules named "dltensor_versioned"."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_api = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_NAMES: tuple[tuple[bytes, Any], ...] = ((b"dltensor_versioned", _Versioned), (b"dltensor", _Managed))

UNNAMED: Any = object()
"""An argument that a consumer does not pass."""


class Consumer(NamedTuple):
    """The arguments that a consumer passes to ``__dlpack__``, as far as they differ between consumers.

    Attributes:
        stream, dl_device, copy: :data:`UNNAMED` where it passes none.
        max_version: The latest version of DLPack that it reads; None: 0.x.
    """

    stream: Any = UNNAMED
    max_version: tuple[int, int] | None = None
    dl_device: Any = UNNAMED
    copy: Any = UNNAMED

    def check(self, layout: Layout, *, on_host: bool, cure: str) -> None:
        """Refuse an array that the consumer cannot read, before it has a capsule.

        NumPy since 2.1 passes ``max_version``, and None as device unless it was given one; torch and JAX never do.

        Args:
            layout: Layout of the array.
            on_host: It is in host memory. Every consumer that can read a GPU's passes a stream.
            cure: The way out, for the error.

        Raises:
            BufferError
        """
        if _CODES.get(layout.dtype.name) is None:
            raise BufferError(f"{layout!r}: DLPack has no such dtype; reinterpret it as u8")
        if not on_host and self.stream is UNNAMED and self.max_version is not None:
            raise BufferError(f"{layout!r} is on a GPU, where NumPy cannot read it; {cure}")
        if self.dl_device is None:
            if layout.dtype.np.isbuiltin != 1:
                raise BufferError(f"{layout!r}: NumPy takes no {layout.dtype} by DLPack; {cure}")
        elif self.copy is not True and min(_plain(layout).strides, default=0) < 0:
            # torch ends the process at them, and cannot be told from others
            raise BufferError(
                f"{layout!r}: most packages take no negative strides by DLPack; copy it first, dev.copy(ref)"
            )


ANY = Consumer()
"""A consumer that passes nothing."""


class Exported(NamedTuple):
    """The contents of a capsule that another package made."""

    address: int
    """Address of element 0."""
    device: tuple[int, int]
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """In elements; None: row-major without gaps."""
    read_only: bool
    owner: Any
    """Keeps the memory."""


def capsule_of(address: int, layout: Layout, device: tuple[int, int], owner: object, consumer: Consumer = ANY) -> Any:
    """A capsule of an array in memory that ``owner`` keeps, or of a copy in host memory.

    Args:
        address: Address of element 0.
        layout: Layout of the array, of a dtype that DLPack has.
        device: The device that has the memory.
        owner: Lives as long as the capsule and the consumer's array.
        consumer: The capsule is of the latest version that it reads, and of a copy if it asks for one.
    """
    code = _CODES[layout.dtype.name]
    array = held_array(address, _plain(layout), _PLAIN[layout.dtype.itemsize], owner)
    capsule = _exported(array, consumer.max_version, consumer.copy is True)
    tensor = _managed(capsule).tensor
    tensor.code, tensor.bits = code
    tensor.device_type, tensor.device_id = device
    return capsule


def contents_of(capsule: Any, what: str) -> Exported:
    """The contents of a capsule, which stays with its maker; ``what`` names the maker, for errors.

    Raises:
        TypeError: No capsule of DLPack, one that has been used, or contents that no ref can have.
    """
    managed = _managed(capsule)
    if managed is None:
        raise TypeError(f"{what}: its __dlpack__ gave {capsule!r:.80}, which is no unused capsule of DLPack")
    versioned = isinstance(managed, _Versioned)
    if versioned and managed.major != 1:
        raise TypeError(f"{what}: its capsule has version {managed.major}.{managed.minor} of DLPack; 0.x and 1.x exist")
    tensor = managed.tensor
    dtype = _BY_CODE.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise TypeError(
            f"{what}: its dtype (DLPack code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes) is unknown; "
            "convert it first"
        )
    ndim = tensor.ndim
    if not 0 <= ndim <= MAX_AXES or (ndim and not tensor.shape):
        raise TypeError(f"{what}: its capsule has {ndim} axes")
    shape = tuple(tensor.shape[:ndim])
    if any(extent < 0 for extent in shape) or (not tensor.data and 0 not in shape):
        raise TypeError(f"{what}: its capsule has the shape {shape} at address {tensor.data or 0}")
    strides = tuple(_signed(s, dtype.itemsize) for s in tensor.strides[:ndim]) if ndim and tensor.strides else None
    return Exported(
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device_type, tensor.device_id),
        dtype,
        shape,
        strides,
        versioned and bool(managed.flags & READ_ONLY),
        capsule,
    )


def _exported(array: "np.ndarray[Any, Any]", max_version: tuple[int, int] | None, copy: bool) -> Any:
    if not _VERSIONED:
        return (array.copy() if copy else array).__dlpack__()
    return array.__dlpack__(max_version=max_version, copy=copy or None)


def _plain(layout: Layout) -> Layout:
    """The layout with positive steps where no step is made."""
    if not layout.size:
        return layout_of(layout.dtype, layout.shape)
    steps = (step if extent > 1 else abs(step) for step, extent in zip(layout.strides, layout.shape, strict=True))
    return layout_of(layout.dtype, layout.shape, tuple(steps))


def _managed(capsule: Any) -> Any:
    """The structure of an unused capsule, or None."""
    for name, kind in _NAMES:
        if _is_valid(capsule, name):
            return kind.from_address(_pointer(capsule, name))
    return None


def _signed(stride: int, itemsize: int) -> int:
    """A stride in elements. CuPy divides negative ones, in bytes, as unsigned numbers of 64 bits."""
    return stride - 2**64 // itemsize if stride * itemsize >= 2**63 else stride
