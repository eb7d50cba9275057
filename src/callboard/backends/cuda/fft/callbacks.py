"""Functions of the user's in cuFFT's kernels: source to LTO-IR by NVRTC, linked by cuFFT when it makes the plan."""

import ctypes
from typing import TYPE_CHECKING

from callboard.backends.cuda.fft.cufft import Cufft
from callboard.backends.cuda.kernels import link_code
from callboard.core.errors import BackendUnavailable
from callboard.kernel.fft import FftWithCallback
from callboard.kernel.fft.transform import Transform

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Callbacks", "load_linker"]

POINTER = 8
LOAD, STORE = 0, 4
"""``cufftXtCallbackType``: of single precision and complex; then double, then real, then real and double."""

SOURCE = """\
typedef {real} real;
struct __attribute__((aligned(2 * sizeof(real)))) cplx {{ real x, y; }};
namespace {{  // load and store are linked together, and may define the same names
#line 1
{body}
}}
"""
LOADER = """\
extern "C" __device__ {value} callboard_load(void *x, unsigned long long i, void *data, void *) {{
    return load((const {value} *)x, i, *(const void **)data);
}}
"""
STORER = """\
extern "C" __device__ void callboard_store(void *out, unsigned long long i, {value} value, void *data, void *) {{
    {scale}
    store(({value} *)out, i, value, *(const void **)data);
}}
"""
PLAIN_STORE = (
    "__device__ void store({value} *out, unsigned long long i, {value} value, const void *) {{ out[i] = value; }}"
)


def load_linker() -> None:
    """Load nvJitLink, which cuFFT looks for among the libraries that are there.

    Raises:
        BackendUnavailable: It is not installed.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        load_nvidia_dynamic_lib("nvJitLink")
    except Exception as e:  # the import's, and pathfinder's own
        raise BackendUnavailable(f'nvJitLink cannot be loaded: {e}; pip install "callboard[cuda13]"') from e


class Callbacks:
    """The functions of one message.

    cuFFT takes the address of a function's data when the plan is made, and arrays come with each call: the functions
    get the address of a cell on the device, into which each call writes the array's address, in stream order.

    Args:
        device: Whose context is current.
        op: With placeholders.
        transform: Of ``op``.
    """

    def __init__(self, device: "CudaDevice", op: FftWithCallback, transform: Transform) -> None:
        load_linker()
        self._device = device
        self._driver = device.driver
        capability = device.info.compute_capability
        double = transform.src.real.name == "f64"
        real = "double" if double else "float"
        self._parts: list[tuple[int, bytes, bytes]] = []
        if op.load is not None:
            source = SOURCE.format(real=real, body=op.load) + LOADER.format(value=_type(transform.src.is_complex))
            kind = LOAD + double + 2 * (not transform.src.is_complex)
            self._parts.append((kind, b"callboard_load", link_code("load", source.encode(), capability)))
        if op.store is not None or transform.scale != 1.0:
            value = _type(transform.out.is_complex)
            body = PLAIN_STORE.format(value=value) if op.store is None else op.store
            source = SOURCE.format(real=real, body=body) + STORER.format(value=value, scale=_scaling(transform))
            kind = STORE + double + 2 * (not transform.out.is_complex)
            self._parts.append((kind, b"callboard_store", link_code("store", source.encode(), capability)))
        self._cells = device.allocate(2 * POINTER)
        self._kept: list[object] = []

    def attach(self, cufft: Cufft, plan: int) -> None:
        """Give them to an empty plan."""
        for kind, name, code in self._parts:
            symbol = ctypes.create_string_buffer(name)
            cell = (ctypes.c_void_p * 1)(self._cells.address + (POINTER if kind >= STORE else 0))
            self._kept += [symbol, cell, code]  # the plan may read them until it is filled
            try:
                cufft.library.xt_set_jit_callback(
                    plan, ctypes.addressof(symbol), code, len(code), kind, ctypes.addressof(cell)
                )
            except cufft.failure as e:
                raise cufft.error(e, "cufftXtSetJITCallback") from None

    def write(self, stream: "CudaStream", load_data: int | None, store_data: int | None) -> None:
        """Enqueue the addresses of this call's arrays; they travel in the commands themselves."""
        memset, native = self._driver.memset_32, stream.native
        for at, address in enumerate((load_data, store_data)):
            if address is not None:
                cell = self._cells.address + POINTER * at
                for word in range(2):
                    code = memset(cell + 4 * word, address >> 32 * word & 0xFFFFFFFF, 1, native)
                    self._driver.check(code, "cuMemsetD32Async")

    def close(self) -> None:
        """Give the cells back."""
        self._device.release(self._cells)


def _type(is_complex: bool) -> str:
    return "cplx" if is_complex else "real"


def _scaling(transform: Transform) -> str:
    if transform.scale == 1.0:
        return ""
    factor = f"(real){transform.scale!r}"
    return f"value.x *= {factor}, value.y *= {factor};" if transform.out.is_complex else f"value *= {factor};"
