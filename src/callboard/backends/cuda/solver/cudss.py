"""cuDSS: factorisations of sparse matrices. The only module that uses ``nvmath.bindings.cudss``.

It is used on the host's helper thread only. Its memory is allocated from the device like callboard's own, so that a
lack of it is reported the same way.
"""

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from callboard.backends.cuda.blas.products import CUDA_TYPE
from callboard.backends.cuda.vendor import Vendor, load_binding, status_of
from callboard.core.dtype import DType
from callboard.core.errors import AccelError
from callboard.kernel.solver.transversal import Array

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = [
    "ANALYSIS",
    "COLUMNS",
    "DIAGONAL",
    "FACTORIZATION",
    "MATCHED",
    "SOLVE",
    "Cudss",
    "Factors",
    "Key",
    "Pivots",
    "load_cudss",
]

INSTALL = 'pip install "callboard[cudss13]" (CUDA 12: cudss12)'
ANALYSIS, FACTORIZATION, SOLVE = 3, 4, 1008
"""``cudssPhase_t``."""
GENERAL, POSITIVE, HERMITIAN_POSITIVE = 0, 3, 4
"""``cudssMatrixType_t``."""
FULL, FROM_0, BY_COLUMNS, I32 = 0, 0, 0, 10
"""``cudssMatrixViewType_t``, ``cudssIndexBase_t``, ``cudssLayout_t``, ``cudssDataType_t``."""
REORDERING_ALG, MATCHING_ALG, PIVOT_EPSILON = 0, 3, 9
"""``cudssConfigParam_t``."""
INFO, NPIVOTS = 0, 2
"""``cudssDataParam_t``."""
ALLOC_FAILED = 2
"""``cudssStatus_t``."""

Key = tuple[DType, bool, int, int]
"""Key of a factorisation: dtype, whether it is a Cholesky factorisation, order, number of elements."""

_Allocate = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_void_p
)
_Free = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class _Handler(ctypes.Structure):
    """``cudssDeviceMemHandler_t``."""

    _fields_ = (("context", ctypes.c_void_p), ("allocate", _Allocate), ("free", _Free), ("name", ctypes.c_char * 64))


def load_cudss() -> tuple[Any, type[Exception]]:
    """NVIDIA's binding of cuDSS, and the exception that it raises.

    Raises:
        BackendUnavailable: It is not installed.
    """
    library = load_binding("cudss", "cuDSS", INSTALL)
    return library, library.cuDSSError


class Pivots(NamedTuple):
    """The source of the pivots of a factorisation.

    Attributes:
        ordering: ``cudssReorderingAlg_t``.
        matching: ``cudssMatchingAlg_t``.
    """

    ordering: int
    matching: int


DIAGONAL = Pivots(0, 0)
"""Blocks of the diagonal, in an order of little fill-in."""
MATCHED = Pivots(0, 5)
"""The same, when rows have been exchanged and scaled so that the product of the diagonal is largest."""
COLUMNS = Pivots(2, 0)
"""Whole columns, ordered by COLAMD: what LAPACK does. Slower by far, with more fill-in."""


class Cudss(Vendor):
    """A handle for each dtype, and the last factorisation.

    Args:
        device: The device; its context is current.
        stream: The stream it enqueues on.

    Raises:
        BackendUnavailable: The package or libcudss is missing.
    """

    name = "cudss"
    no_room = (ALLOC_FAILED,)
    install = INSTALL

    def __init__(self, device: "CudaDevice", stream: "CudaStream") -> None:
        super().__init__(*load_cudss())
        self.device = device
        self._stream = stream
        self._handles: dict[str, int] = {}
        self._blocks: dict[int, Memory] = {}
        self._refused: AccelError | None = None
        self._handler = _Handler(None, _Allocate(self._allocate), _Free(self._free), b"callboard")
        self._kept: Factors | None = None
        self.handle("f64")

    def handle(self, dtype: str) -> int:
        """The handle for a dtype: one for all was known to give wrong results in cuDSS 0.7."""
        if dtype not in self._handles:
            self._handles[dtype] = self.make_handle("cudssCreate", self.library.create)
            self.call("set_device_mem_handler", self._handles[dtype], ctypes.addressof(self._handler))
            self.call("set_stream", self._handles[dtype], self._stream.native)
        return self._handles[dtype]

    def bind(self, stream: "CudaStream") -> None:
        """Enqueue on this stream from now on."""
        for handle in self._handles.values():
            self.call("set_stream", handle, stream.native)
        self._stream = stream

    def call(self, name: str, *arguments: Any) -> Any:
        """A function of the binding, with callboard's errors."""
        self._refused = None
        return self.checked(f"cudss: {name}", getattr(self.library, name), *arguments)

    def error(self, error: Exception, call: str) -> AccelError:
        """Translate an exception of the binding."""
        if self._refused is not None and status_of(error) == ALLOC_FAILED:
            return self._refused
        return super().error(error, call)

    # -- the last factorisation ----------------------------------------------------------------------------------------

    def kept(self, key: Key) -> "Factors | None":
        """The last factorisation, if it may be one of this matrix."""
        return self._kept if self._kept is not None and self._kept.key == key else None

    def factors(self, key: Key, pivots: Pivots) -> "Factors":
        """Room for a new one, in place of the last one; the stream is idle.

        Raises:
            OutOfMemory
        """
        self.forget()
        self._kept = Factors(self, key, pivots)
        return self._kept

    def forget(self) -> None:
        """Give up the last factorisation; the stream has passed its work."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            kept.close()

    # -- its memory ----------------------------------------------------------------------------------------------------

    def _allocate(self, context: int, out: Any, nbytes: int, stream: int) -> int:
        if not nbytes:  # it asks for nothing, too, and takes any address but 0 for something
            out[0] = None
            return 0
        driver = self.device.driver
        try:
            memory = self.device.allocate(nbytes)
            self._blocks[memory.address] = memory
            # Ordered by columns, it leaves pivots that it finds nothing for as they are: 0 it counts.
            driver.check(driver.memset_8(memory.address, 0, nbytes, self._stream.native), "cuMemsetD8Async")
            self._stream.synchronize()
        except AccelError as e:
            self._refused = e
            return 1
        out[0] = memory.address
        return 0

    def _free(self, context: int, address: int, nbytes: int, stream: int) -> int:
        memory = self._blocks.pop(address, None)
        if memory is not None:
            self.device.release(memory)
        return 0

    def close(self) -> None:
        """Destroy the handles; all their work is done."""
        self.forget()
        while self._handles:
            self.call("destroy", self._handles.popitem()[1])
        while self._blocks:
            self.device.release(self._blocks.popitem()[1])


class Factors:
    """A factorisation with its matrix.

    cuDSS replaces pivots that are too small and continues. The bound is set to the smallest normal number, so that
    hardly anything but a zero is replaced, and :meth:`outcome` counts these.

    Args:
        cudss: The handles.
        key: Key of the factorisation.
        pivots: Source of the pivots.

    Attributes:
        key: Key that other matrices must have to be factored with this one's analysis.
        pivots: Source of the pivots.
        structure: Address of offsets and indices, i32, to be filled before the analysis.
        values: Address of the elements, to be filled before the factorisation.
        transversal: Elements of it in different rows and columns, by their columns; None: the diagonal.

    Raises:
        OutOfMemory
    """

    def __init__(self, cudss: Cudss, key: Key, pivots: Pivots) -> None:
        dtype, definite, n, count = self.key = key
        self.pivots = pivots
        self._cudss = cudss
        self._handle = cudss.handle(dtype.name)
        self._kind = CUDA_TYPE[dtype.name]
        self._memory: list[Memory] = []
        self._made: list[tuple[str, tuple[int, ...]]] = []
        self._sides: dict[int, tuple[int, int]] = {}
        self.transversal: Array | None = None
        positive = HERMITIAN_POSITIVE if dtype.is_complex else POSITIVE
        try:
            self.structure = self._allocate(4 * (n + 1 + count))
            self.values = self._allocate(dtype.itemsize * count)
            lists = (self.structure, 0, self.structure + 4 * (n + 1), self.values, I32, I32)
            kinds = (self._kind, positive if definite else GENERAL, FULL, FROM_0)
            self._matrix = self._make("matrix_create_csr", n, n, count, *lists, *kinds)
            self._config = self._make("config_create")
            self._set(REORDERING_ALG, np.int32(pivots.ordering))
            self._set(MATCHING_ALG, np.int32(pivots.matching))
            self._set(PIVOT_EPSILON, np.float64(np.finfo(dtype.real.np).tiny))
            self._data = self._make("data_create", self._handle)
        except BaseException:  # any exception: nothing else holds these objects
            self.close()
            raise

    def _allocate(self, nbytes: int) -> int:
        self._memory.append(self._cudss.device.allocate(nbytes))
        return self._memory[-1].address

    def _make(self, create: str, *arguments: int) -> int:
        made = int(self._cudss.call(create, *arguments))
        what = create.partition("_")[0]
        self._made.append((f"{what}_destroy", (self._handle, made) if what == "data" else (made,)))
        return made

    def _described(self, columns: int, b: int, x: int) -> tuple[int, int]:
        """The descriptors of solutions and right-hand sides, set to these addresses."""
        if columns not in self._sides:
            form = self.key[2], columns, self.key[2], x, self._kind, BY_COLUMNS
            self._sides[columns] = self._make("matrix_create_dn", *form), self._make("matrix_create_dn", *form)
        sides = self._sides[columns]
        for side, address in zip(sides, (x, b), strict=True):
            self._cudss.call("matrix_set_values", side, address)
        return sides

    def _set(self, parameter: int, value: np.generic) -> None:
        held = np.array([value])
        self._cudss.call("config_set", self._config, parameter, held.ctypes.data, held.nbytes)

    def execute(self, phases: Sequence[int], columns: int, b: int, x: int) -> None:
        """Enqueue these phases, with ``columns`` right-hand sides and solutions at these addresses, by columns."""
        operands = self._matrix, *self._described(columns, b, x)
        for phase in phases:
            self._cudss.call("execute", self._handle, phase, self._config, self._data, *operands)

    def outcome(self) -> tuple[int, int]:
        """Return ``info`` and the number of replaced pivots, once the stream has passed the factorisation."""
        return self._get(INFO), self._get(NPIVOTS)

    def _get(self, parameter: int) -> int:
        value, written = np.zeros(1, np.int32), np.zeros(1, np.uint64)
        where = value.ctypes.data, value.nbytes, written.ctypes.data
        self._cudss.call("data_get", self._handle, self._data, parameter, *where)
        return int(value[0])

    def close(self) -> None:
        """Release everything; the stream has passed its work."""
        while self._made:
            destroy, arguments = self._made.pop()
            self._cudss.call(destroy, *arguments)
        while self._memory:
            self._cudss.device.release(self._memory.pop())
