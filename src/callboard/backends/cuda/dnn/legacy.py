"""cuDNN's C interface by ``ctypes``: handles, descriptors and the calls that its graph interface does not have.

::

    forward = cudnn.function("cudnnPoolingForward", PTR, PTR, PTR, PTR, PTR, PTR, PTR)  # the types after the handle
    forward(stream, pooling, one, x_descriptor, x, zero, y_descriptor, y)  # enqueues on the stream, raises our errors

A function whose first argument is the library's handle is called with the stream in its place. One that has no handle
(descriptors) is made with ``plain``.
"""

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.vendor import not_loaded
from callboard.core.dtype import DType
from callboard.core.errors import AccelError, BackendUnavailable, LibraryError, OutOfMemory, UnsupportedOp
from callboard.core.layout import Layout

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = [
    "DATA_TYPES",
    "F64",
    "INSTALL",
    "INT",
    "PTR",
    "SIZE",
    "U64",
    "Cudnn",
    "Destroyed",
    "ints",
    "load_cudnn",
    "scaling",
]

INSTALL = 'pip install "callboard[cudnn13]" (its library is the wheel nvidia-cudnn-cu13)'
DATA_TYPES = {
    "f32": 0, "f64": 1, "f16": 2, "i8": 3, "i32": 4, "u8": 6, "bf16": 9, "i64": 10, "bool": 11, "f8_e4m3": 12,
    "f8_e5m2": 13,
}  # fmt: skip
"""``cudnnDataType_t``."""
OLDEST = 90000
NOT_SUPPORTED = range(3000, 4000)
NO_ROOM = (4003, 4004)
"""``cudnnStatus_t``."""

PTR, INT, SIZE, U64, F64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_double
"""Types of arguments: any pointer, an int or an enum, a size, a 64-bit number, a double."""


def load_cudnn() -> Any:
    """libcudnn, found through ``cuda.pathfinder``.

    Raises:
        BackendUnavailable: It is not installed, or older than 9.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        library = ctypes.CDLL(load_nvidia_dynamic_lib("cudnn").abs_path)
        library.cudnnGetVersion.restype = ctypes.c_size_t
        version = int(library.cudnnGetVersion())
    except Exception as e:  # ImportError, pathfinder's own, OSError and AttributeError of ctypes
        raise not_loaded("cudnn", e, INSTALL) from e
    if version < OLDEST:
        raise BackendUnavailable(f"cuDNN has version {version}, needed is {OLDEST} or later; {INSTALL}")
    return library


class Destroyed:
    """Descriptors of one plan, destroyed with it."""

    def __init__(self) -> None:
        self._closers: list[Callable[[], Any]] = []

    def keep(self, close: Callable[[], Any]) -> None:
        """Have it called by :meth:`close`."""
        self._closers.append(close)

    def close(self) -> None:
        """Destroy them, the last first; no launch uses them any more."""
        while self._closers:
            self._closers.pop()()


class Cudnn:
    """libcudnn with a handle for launches and one for preparing, each used on one thread at a time.

    Args:
        library: Substitute for libcudnn, for tests; None loads libcudnn.

    Attributes:
        version: 91900 is 9.19.0.

    Raises:
        BackendUnavailable: libcudnn is missing.
        OutOfMemory, LibraryError: It makes no handle.
    """

    def __init__(self, library: Any = None) -> None:
        self.library = load_cudnn() if library is None else library
        self.version = int(self.library.cudnnGetVersion())
        self._lock = threading.Lock()
        self._tensors: dict[tuple[Any, ...], int] = {}
        self._destroy_tensor = self.plain("cudnnDestroyTensorDescriptor", PTR)
        self._create_tensor = self.plain("cudnnCreateTensorDescriptor", PTR)
        self._set_tensor = self.plain("cudnnSetTensorNdDescriptor", PTR, INT, INT, PTR, PTR)
        self._set_stream = self.plain("cudnnSetStream", PTR, PTR)
        self._stream = 0
        self._preparing = 0
        self._create_handle = self.plain("cudnnCreate", PTR)
        self.handle = self.create(self._create_handle)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def plain(self, name: str, *types: Any) -> Callable[..., None]:
        """A function of cuDNN that takes no handle, with callboard's errors.

        Args:
            name: Name of the function in cuDNN.
            types: ctypes types of all its arguments.
        """
        try:
            function = getattr(self.library, name)
        except AttributeError as e:
            raise not_loaded("cudnn", e, INSTALL) from e
        function.argtypes, function.restype = types, ctypes.c_int

        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status:
                raise self.error(status, name)

        return call

    def function(self, name: str, *types: Any) -> "Callable[..., None]":
        """A function of cuDNN whose first argument is the handle; it is called with a stream in its place.

        Args:
            name: Name of the function in cuDNN.
            types: ctypes types of its arguments after the handle.
        """
        call, on = self.plain(name, PTR, *types), self.on

        def enqueue(stream: "CudaStream", *arguments: Any) -> None:
            call(on(stream), *arguments)

        return enqueue

    def on(self, stream: "CudaStream") -> int:
        """The handle for launches, which now enqueues on this stream."""
        native = stream.native
        if native != self._stream:
            self._set_stream(self.handle, native)
            self._stream = native
        return self.handle

    @property
    def preparing(self) -> int:
        """The handle of the thread that prepares: for sizes and queries, which enqueue nothing."""
        with self._lock:
            if not self._preparing:
                self._preparing = self.create(self._create_handle)
            return self._preparing

    def preparing_on(self, native: int) -> int:
        """The same handle, which enqueues on this stream."""
        handle = self.preparing
        self._set_stream(handle, native)
        return handle

    def create(self, function: Callable[..., None]) -> int:
        """Return the descriptor created by a ``cudnnCreate…``."""
        cell = PTR()
        function(ctypes.byref(cell))
        return cell.value or 0

    def error(self, status: int, call: str) -> AccelError:
        """Translate a status, with cuDNN's name for it and its message about the last error."""
        text = f"{call}: {self._name(status)} ({status})"
        said = self._last_error()
        text += f": {said}" if said else ""
        if status in NO_ROOM:
            return OutOfMemory(text)
        if status in NOT_SUPPORTED:
            return UnsupportedOp(text)
        return LibraryError(text, "cudnn", status)

    def _name(self, status: int) -> str:
        function = self.library.cudnnGetErrorString
        function.argtypes, function.restype = (ctypes.c_int,), ctypes.c_char_p
        return (function(status) or b"").decode()

    def _last_error(self) -> str:
        function = self.library.cudnnGetLastErrorString
        function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_size_t), None
        text = ctypes.create_string_buffer(512)
        function(text, len(text))
        return text.value.decode("utf-8", "replace").strip()

    # -- descriptors ---------------------------------------------------------------------------------------------------

    def tensor(self, dtype: DType, shape: Sequence[int], strides: Sequence[int]) -> int:
        """The descriptor of a tensor, shared by all plans and kept as long as the handle; any thread.

        Args:
            dtype: The dtype of its elements.
            shape: 3 to 8 extents, none 0; cuDNN's calls need at least 4 for images: batch, channels, spatial.
            strides: Strides in elements.
        """
        key = (dtype.code, tuple(shape), tuple(strides))
        with self._lock:
            found = self._tensors.get(key)
            if found is None:
                found = self.create(self._create_tensor)
                try:
                    self._set_tensor(found, DATA_TYPES[dtype.name], len(shape), ints(shape), ints(strides))
                except AccelError:
                    self._destroy_tensor(found)
                    raise
                self._tensors[key] = found
            return found

    def packed(self, layout: Layout) -> int:
        """Return the descriptor of an array in its layout, with trailing axes of extent 1 up to four."""
        more = max(0, 4 - layout.ndim)
        return self.tensor(layout.dtype, (*layout.shape, *[1] * more), (*layout.strides, *[1] * more))

    def descriptor(self, kind: str, keep: Destroyed) -> int:
        """Return a new descriptor (for example ``"Pooling"``), destroyed with its plan; the caller sets it."""
        made = self.create(self.plain(f"cudnnCreate{kind}Descriptor", PTR))
        destroy = self.plain(f"cudnnDestroy{kind}Descriptor", PTR)
        keep.keep(lambda: destroy(made))
        return made

    def close(self) -> None:
        """Destroy descriptors and handles; all work is done."""
        while self._tensors:
            self._destroy_tensor(self._tensors.popitem()[1])
        destroy = self.plain("cudnnDestroy", PTR)
        handles, self.handle, self._preparing = (self.handle, self._preparing), 0, 0
        for handle in filter(None, handles):
            destroy(handle)


def ints(values: Sequence[int]) -> Any:
    """Return an ``int[]``, the type that most descriptors take."""
    return (ctypes.c_int * len(values))(*values)


_CELLS = {name: ctypes.create_string_buffer(struct.pack(code, a, b)) for name, code, a, b in (
    ("f32", "ff", 1.0, 0.0), ("f64", "dd", 1.0, 0.0),
)}  # fmt: skip


def scaling(dtype: DType) -> tuple[int, int]:
    """Addresses of a 1 and of a 0 on the host, as cuDNN's ``alpha`` and ``beta``: f64 for f64, else f32."""
    name = "f64" if dtype.name == "f64" else "f32"
    one = ctypes.addressof(_CELLS[name])
    return one, one + (8 if name == "f64" else 4)
