"""A cuSOLVER handle: the only module that uses ``nvmath.bindings.cusolverDn``.

The parts of cuBLAS that the solver needs (triangular solves, batches) use a cuBLAS handle of its own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.cublas import Cublas
from callboard.backends.cuda.solver.cudss import Cudss
from callboard.backends.cuda.vendor import Vendor, load_binding
from callboard.backends.cuda.workspace import Workspace
from callboard.core.dtype import DType
from callboard.core.errors import AccelError

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["TYPES", "Cusolver", "load_cusolver", "load_sparse", "name_of"]

TYPES = {"f32": 0, "f64": 1, "c64": 4, "c128": 5}
"""``cudaDataType`` of our dtypes."""
ALLOC_FAILED = 2
"""``cusolverStatus_t``."""


def load_cusolver() -> tuple[Any, type[Exception]]:
    """NVIDIA's binding of cuSOLVER, and the exception that it raises.

    Raises:
        BackendUnavailable: It is not installed.
    """
    library = load_binding("cusolverDn", "cuSOLVER")
    return library, load_binding("cusolver", "cuSOLVER").cuSOLVERError


def load_sparse() -> tuple[Any, Any]:
    """The bindings of cuSOLVER's sparse part, and of cuSPARSE, whose descriptions of matrices it takes.

    Raises:
        BackendUnavailable: They are not installed.
    """
    return load_binding("cusolverSp", "cuSOLVER"), load_binding("cusparse", "cuSPARSE")


def name_of(dtype: DType, real: str, complex_: str | None = None) -> str:
    """The routine for a dtype: ``name_of(f32, "orgqr", "ungqr")`` is ``"sorgqr"``."""
    letter = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}[dtype.name]
    return letter + (complex_ if complex_ is not None and dtype.is_complex else real)


class Cusolver(Vendor):
    """Handles, parameters and the workspace.

    Args:
        device: The device; its context is current.
        stream: The stream it enqueues on.

    Attributes:
        library: The binding.
        handle, params: Handle and parameters for launches.
        sizing, sizing_params: Handle and parameters for plans, which are made on another thread.
        gesvdj, syevj: Settings of the Jacobi methods: the library's defaults.
        cublas: Handle for calls of cuBLAS.
        workspace: Workspace of all plans.
        anchor: Some address on the device, for calls that take one and do not use it.

    Raises:
        BackendUnavailable: The package or libcusolver is missing.
        OutOfMemory: No room for the handle.
        LibraryError: cuSOLVER refuses.
    """

    name = "cusolver"
    no_room = (ALLOC_FAILED,)

    def __init__(self, device: "CudaDevice", stream: "CudaStream") -> None:
        super().__init__(*load_cusolver())
        self.device = device
        self.driver = device.driver
        self.stream = stream
        self._handles: list[tuple[str, int]] = []
        self._anchor: Memory | None = None
        self._sparse: tuple[Any, int, int, Any] | None = None
        self._cudss: Cudss | None = None
        self.workspace = Workspace(device)
        self.cublas = Cublas(device, stream)
        try:
            self.handle = self._create("create", "destroy")
            self.params = self._create("create_params", "destroy_params")
            self.sizing = self._create("create", "destroy")
            self.sizing_params = self._create("create_params", "destroy_params")
            self.gesvdj = self._create("create_gesvdj_info", "destroy_gesvdj_info")
            self.syevj = self._create("create_syevj_info", "destroy_syevj_info")
            self._anchor = device.allocate(256)
            self.anchor = self._anchor.address
            self.bind(stream)
        except AccelError:
            self.close()
            raise

    def _create(self, create: str, destroy: str) -> int:
        made = self.make_handle(f"cusolverDn: {create}", getattr(self.library, create))
        self._handles.append((destroy, made))
        return made

    def sparse(self) -> tuple[Any, int, int]:
        """The binding of cuSOLVER's sparse part, a handle of it and a description of a CSR matrix; not in a launch."""
        if self._sparse is None:
            library, matrices = load_sparse()
            made = int(self.guarded("cusolverSpCreate", library.create)())
            self.guarded("cusolverSpSetStream", library.set_stream)(made, self.stream.native)
            self._sparse = library, made, int(matrices.create_mat_descr()), matrices
        library, handle, description, _ = self._sparse
        return library, handle, description

    def cudss(self) -> Cudss:
        """cuDSS, made on first use; not in a launch.

        Raises:
            BackendUnavailable: It is not installed.
        """
        if self._cudss is None:
            self._cudss = Cudss(self.device, self.stream)
        return self._cudss

    def bind(self, stream: "CudaStream") -> None:
        """Enqueue on this stream from now on."""
        self.checked("cusolverDnSetStream", self.library.set_stream, self.handle, stream.native)
        if stream is not self.cublas.stream:
            self.cublas.bind(stream)
        if self._sparse is not None:
            self._sparse[0].set_stream(self._sparse[1], stream.native)
        if self._cudss is not None:
            self._cudss.bind(stream)
        self.stream = stream

    def guarded(self, call: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run`` with callboard's errors."""
        ours, theirs = self.failure, self.cublas.failure

        def guarded(*arguments: Any) -> Any:
            try:
                return run(*arguments)
            except ours as e:
                raise self.error(e, call) from None
            except theirs as e:
                raise self.cublas.error(e, call) from None

        return guarded

    def close(self) -> None:
        """Destroy the handles; all their work is done."""
        self.workspace.close()
        if self._anchor is not None:
            self.device.release(self._anchor)
            self._anchor = None
        try:
            if self._cudss is not None:
                cudss, self._cudss = self._cudss, None
                cudss.close()
            if self._sparse is not None:
                (library, handle, description, matrices), self._sparse = self._sparse, None
                library.destroy(handle)
                matrices.destroy_mat_descr(description)
            while self._handles:
                destroy, made = self._handles.pop()
                getattr(self.library, destroy)(made)
        except self.failure as e:
            raise self.error(e, "cusolverDn: destroy") from None
        finally:
            self.cublas.close()
