"""cuFFT's plans and the memory they share: the only module that uses ``nvmath.bindings.cufft``."""

import ctypes
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.fft.advanced import Advanced
from callboard.backends.cuda.vendor import Vendor, load_binding, not_loaded
from callboard.kernel.fft.transform import Side, Transform

if TYPE_CHECKING:
    pass

__all__ = ["Cufft", "LinkedFunction", "load_cufft"]

FORWARD, INVERSE = -1, 1
ALLOC_FAILED = 2
ALIGNMENT = 256
DATA_TYPES = {
    ("f16", False): 2,
    ("f32", False): 0,
    ("f64", False): 1,
    ("f16", True): 6,
    ("f32", True): 4,
    ("f64", True): 5,
}
"""``cudaDataType`` by the type of a part, real or complex."""


def load_cufft() -> Any:
    """NVIDIA's binding of cuFFT.

    Raises:
        BackendUnavailable: It is not installed.
    """
    return load_binding("cufft", "cuFFT")


class LinkedFunction:
    """A function for cuFFT's kernels to call. cuFFT keeps pointers into it for as long as the plan lives.

    Args:
        name: C++ name of the function in the code.
        code: LTO-IR.
        kind: ``cufftXtCallbackType``.
        data: Address on the device that the function is given.
    """

    def __init__(self, name: str, code: bytes, kind: int, data: int) -> None:
        self.name = ctypes.create_string_buffer(name.encode())
        self.code = code
        self.kind = kind
        self.data = (ctypes.c_void_p * 1)(data)


class Cufft(Vendor):
    """Makes cuFFT's plans, and translates its errors.

    Args:
        library: Stands in for NVIDIA's binding.

    Attributes:
        library: The binding.
        failure: Exception class of the binding.

    Raises:
        BackendUnavailable: The package or libcufft is missing.
    """

    name = "cufft"
    no_room = (ALLOC_FAILED,)

    def __init__(self, library: Any = None) -> None:
        if library is None:
            library = load_cufft()
        super().__init__(library, library.cuFFTError)
        try:
            self.version = int(self.library.get_version())
        except Exception as e:  # pathfinder's and nvmath's own, when libcufft or a symbol is missing
            raise not_loaded(self.name, e) from e

    def create(self) -> int:
        """An empty plan that allocates nothing on the device."""
        plan = int(self.checked("cufftCreate", self.library.create))
        self.checked("cufftSetAutoAllocation", self.library.set_auto_allocation, plan, 0)
        return plan

    def link(self, plan: int, function: LinkedFunction) -> None:
        """Register a callback of a plan, before the plan is made."""
        name, data = ctypes.addressof(function.name), ctypes.addressof(function.data)
        what = name, function.code, len(function.code), function.kind, data
        self.checked("cufftXtSetJITCallback", self.library.xt_set_jit_callback, plan, *what)

    def make(self, plan: int, transform: Transform, where: Advanced) -> int:
        """Fill a plan and return the bytes of its work area."""
        src, out = transform.src, transform.out
        nbytes = self.checked(
            f"cufftXtMakePlanMany ({where.n}, batch {where.batch})",
            self.library.xt_make_plan_many,
            plan,
            len(where.n),
            where.n,
            where.src.embed,
            where.src.stride,
            where.src.dist,
            _data_type(src),
            where.out.embed,
            where.out.stride,
            where.out.dist,
            _data_type(out),
            where.batch,
            DATA_TYPES[src.real.name, True],
        )
        return int(nbytes)

    def destroy(self, plan: int) -> None:
        self.checked("cufftDestroy", self.library.destroy, plan)


def _data_type(side: Side) -> int:
    return DATA_TYPES[side.real.name, side.is_complex]
