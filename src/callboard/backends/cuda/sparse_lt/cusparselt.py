"""A cuSPARSELt handle: the only module that uses ``nvmath.bindings.cusparseLt``.

Found by asking cuSPARSELt 0.8.0 on an H200, where its documentation is silent: an address that is not a multiple of 16
bytes may poison the context, and an extent of 0 is reported on stderr. Neither is ever passed on to it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.blas_lt.scratch import Scratch
from callboard.backends.cuda.vendor import Vendor, load_binding, not_loaded, status_of
from callboard.core.dtype import DType
from callboard.core.errors import AccelError, BackendUnavailable, UnsupportedOp

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.core.backend import Memory

__all__ = ["ALIGNMENT", "CODES", "COLUMNS", "ROWS", "CusparseLt", "Descriptors", "check_address", "load_cusparselt"]

CODES = {"f32": 0, "f16": 2, "i8": 3, "i32": 10, "bf16": 14, "f8_e4m3": 28, "f8_e5m2": 29}
"""``cudaDataType``."""
COLUMNS, ROWS = 1, 2
"""``cusparseOrder_t``."""
ALIGNMENT = 16
"""Bytes: of every address and of every step from row to row."""
NEEDED = (0, 8)
"""The bindings reserve memory for the opaque structures of this version; older ones have larger structures."""
KNOWN = (0, 8), (9, 0)
"""Version and compute capability that have been looked into where the documentation is silent."""
ALLOC_FAILED, NOT_SUPPORTED, INSUFFICIENT_RESOURCES = 2, 10, 11
"""``cusparseStatus_t``."""
INSTALL = 'pip install "callboard[cusparselt13]" (its library is the wheel nvidia-cusparselt-cu13)'


def load_cusparselt() -> Any:
    """NVIDIA's binding of cuSPARSELt.

    Raises:
        BackendUnavailable: It, or the library itself, is not installed, or too old.
    """
    library = load_binding("cusparseLt", "cuSPARSELt", INSTALL)
    try:
        version = version_of(library)
    except Exception as e:  # pathfinder's and nvmath's own, when libcusparseLt or a symbol is missing
        raise not_loaded("cusparseLt", e, INSTALL) from e
    if version < NEEDED:
        found = ".".join(map(str, version))
        raise BackendUnavailable(f"libcusparseLt is {found}, {'.'.join(map(str, NEEDED))} is needed; {INSTALL}")
    return library


def version_of(library: Any) -> tuple[int, int]:
    """Major and minor version."""
    return int(library.get_property(0)), int(library.get_property(1))


class CusparseLt(Vendor):
    """A handle. Every call reads it only, so plans may be made on another thread than the one that launches.

    Args:
        device: The device; its context is current.
        library: Stands in for NVIDIA's binding.

    Attributes:
        library: The binding.
        version: Major and minor version of the library.
        handle: Address of the ``cusparseLtHandle_t``.
        scratch: Workspaces of all plans.
        products: Memory for products that a custom kernel finishes.

    Raises:
        BackendUnavailable: The package or libcusparseLt is missing, or the GPU has no sparse tensor cores.
        OutOfMemory, LibraryError
    """

    name = "cusparseLt"
    no_room = (ALLOC_FAILED, INSUFFICIENT_RESOURCES)

    def __init__(self, device: "CudaDevice", library: Any = None) -> None:
        if library is None:
            library = load_cusparselt()
        super().__init__(library, library.cuSPARSELtError)
        self.version = version_of(library)
        self.device = device
        self.driver = device.driver
        self.scratch, self.products = Scratch(device), Scratch(device)
        self.handle = 0
        try:
            self.handle = int(library.init())
        except self.failure as e:
            if status_of(e) == NOT_SUPPORTED:
                raise BackendUnavailable(f"cuSPARSELt does not support this GPU: {e}") from None
            raise self.error(e, "cusparseLtInit") from None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the handle, with callboard's errors."""
        return self.checked(name, getattr(self.library, name), self.handle, *arguments)

    def error(self, error: Exception, call: str) -> AccelError:
        """Translate an exception of the binding."""
        if status_of(error) == NOT_SUPPORTED:
            return UnsupportedOp(f"{call}: {error}: cuSPARSELt has no kernel for it")
        return super().error(error, call)

    def check_known(self, tag: str, what: str, cure: str) -> None:
        """Reject versions other than those in which undocumented behaviour was verified."""
        found = self.version, self.device.info.compute_capability
        if found != KNOWN:
            raise UnsupportedOp(
                f"cuda, {tag}: {what} is not known of cuSPARSELt {found[0]} on compute capability {found[1]}, only of "
                f"{KNOWN[0]} on {KNOWN[1]}; {cure}"
            )

    def close(self) -> None:
        """Destroy the handle; all its work is done."""
        if self.handle:
            handle, self.handle = self.handle, 0
            try:
                self.checked("cusparseLtDestroy", self.library.destroy, handle)
            finally:
                self.scratch.close()
                self.products.close()


def check_address(tag: str, **addresses: int) -> None:
    """Tensor cores load 16 bytes at once; another address would poison the context."""
    for name, address in addresses.items():
        if address % ALIGNMENT:
            raise UnsupportedOp(
                f"cuda, {tag}: {name} starts {address % ALIGNMENT} bytes after a multiple of {ALIGNMENT}; "
                f"pass dev.copy({name})"
            )


class Descriptors:
    """Opaque structures and device memory of one plan, released together.

    Args:
        lt: The handle.
    """

    def __init__(self, lt: CusparseLt) -> None:
        self.lt = lt
        self._closers: list[Callable[[], None]] = []

    def structured(self, dtype: DType, outer: int, k: int, step: int) -> int:
        """A row-major structured matrix."""
        made: int = self.lt.call("structured_descriptor_init", outer, k, step, ALIGNMENT, CODES[dtype.name], ROWS, 0)
        return self._keep("mat_descriptor_destroy", made)

    def dense(self, dtype: DType, rows: int, cols: int, step: int, order: int, batch: int, apart: int) -> int:
        """A dense matrix, or several at a distance."""
        made: int = self.lt.call("dense_descriptor_init", rows, cols, step, ALIGNMENT, CODES[dtype.name], order)
        self._keep("mat_descriptor_destroy", made)
        if batch > 1:
            self.batched(made, batch, apart)
        return made

    def batched(self, matrix: int, batch: int, apart: int) -> None:
        """Let a matrix stand for several at a distance; 0: the same one."""
        kinds = self.lt.library.MatDescAttribute
        for kind, value in ((kinds.NUM_BATCHES, np.array([batch], np.int32)), (kinds.BATCH_STRIDE, np.array([apart]))):
            self.lt.call("mat_desc_set_attribute", matrix, int(kind), value.ctypes.data, value.nbytes)

    def product(self, trans_b: int, a: int, b: int, c: int, d: int, compute: int) -> int:
        """Return the descriptor of a product."""
        made: int = self.lt.call("matmul_descriptor_init", 0, trans_b, a, b, c, d, compute)
        return self._keep("matmul_descriptor_destroy", made)

    def set(self, product: int, attribute: str, value: "np.ndarray[Any, Any]") -> None:
        """An attribute of the product, by its name in ``cusparseLtMatmulDescAttribute_t``."""
        kind = int(getattr(self.lt.library.MatmulDescAttribute, attribute))
        self.lt.call("matmul_desc_set_attribute", product, kind, value.ctypes.data, value.nbytes)

    def selection(self, product: int) -> int:
        """The choice of an algorithm, cuSPARSELt's own at first; making it takes 0.2 s for some products of f16.

        It outlives the plans that are made from it, and none is made from it after one of them was destroyed: that
        would end the process.
        """
        made: int = self.lt.call("matmul_alg_selection_init", product, 0)
        return self._keep("matmul_alg_selection_destroy", made)

    def algorithms(self, selection: int) -> int:
        """Return the number of algorithms."""
        return self._algorithm("matmul_alg_get_attribute", selection, "CONFIG_MAX_ID", 0)

    def take(self, selection: int, algorithm: int) -> None:
        """Choose one of them, for the plans that are made afterwards."""
        self._algorithm("matmul_alg_set_attribute", selection, "CONFIG_ID", algorithm)

    def plan(self, product: int, selection: int) -> int:
        """Return the plan that executes a product."""
        made: int = self.lt.call("matmul_plan_init", product, selection)
        return self._keep("matmul_plan_destroy", made)

    def workspace(self, plan: int) -> int:
        """The address of a plan's workspace, which is shared: work of one stream runs in order."""
        shared = self.lt.scratch.share(max(int(self.lt.call("matmul_get_workspace", plan)), 1))
        self._closers.append(lambda: self.lt.scratch.give_back(shared))
        return shared.address

    def memory(self, nbytes: int) -> int:
        """Device memory."""
        memory: Memory = self.lt.device.allocate(max(nbytes, 1))
        self._closers.append(lambda: self.lt.device.release(memory))
        return memory.address

    def close(self) -> None:
        """Release everything, the last first; no launch uses it any more."""
        while self._closers:
            self._closers.pop()()

    def _algorithm(self, function: str, selection: int, attribute: str, value: int) -> int:
        cell = np.array([value], np.int32)
        kind = int(getattr(self.lt.library.MatmulAlgAttribute, attribute))
        self.lt.call(function, selection, kind, cell.ctypes.data, cell.nbytes)
        return int(cell[0])

    def _keep(self, destroy: str, made: int) -> int:
        self._closers.append(lambda: getattr(self.lt.library, destroy)(made))
        return made
