"""Functions of the user's as kernels before and after a transform, each a pass over memory.

For all that is not linked into cuFFT's own kernels, or cannot be.
"""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.fft.cufft import Cufft
from callboard.backends.cuda.fft.plans import FftPlan, aligned
from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.backends.cuda.workspace import Workspace
from callboard.kernel.fft import FftWithCallback
from callboard.kernel.fft.transform import Side

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CallbackPlan", "PassArgs"]

SOURCE = """\
typedef {real} real;
struct __attribute__((aligned(2 * sizeof(real)))) cplx {{ real x, y; }};
struct PassArgs {{
    const void *x;
    void *out;
    const void *data;
    unsigned long long count;
}};
#line 1
{body}
extern "C" __global__ void run(const __grid_constant__ PassArgs a) {{
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    const {value} *x = (const {value} *)a.x;
    {value} *out = ({value} *)a.out;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {{
        {step}
    }}
}}
"""
LOAD = "out[i] = load(x, i, a.data);"
STORE = "store(out, i, x[i], a.data);"

Pass = Callable[[int, int, int, int], None]
"""``run(stream, x, out, data)``"""


class PassArgs(ctypes.Structure):
    """``PassArgs`` of the source."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
    )


class CallbackPlan:
    """A plan with the functions of a message around it; enqueues only.

    While the op runs, the loaded elements and the elements to store are at the start of the plan's workspace.

    Args:
        device: The device; its context is current.
        stream: The stream it usually enqueues on.
        cufft: Makes the plan.
        workspace: Shared by the plans of a library.
        op: The message, with placeholders.

    Raises:
        OutOfMemory: No room for plan, work area or copies.
        LibraryError: cuFFT refuses, or the compiler does, with its log.
    """

    def __init__(
        self, device: "CudaDevice", stream: "CudaStream", cufft: Cufft, workspace: Workspace, op: FftWithCallback
    ) -> None:
        transform = op.transform()
        src, out = transform.src, transform.out
        self._load = None if op.load is None else _pass(device, src, "load", op.load, LOAD)
        self._store = None if op.store is None else _pass(device, out, "store", op.store, STORE)
        self._out_at = aligned(src.size * src.itemsize) if self._load else 0
        beside = self._out_at + (aligned(out.size * out.itemsize) if self._store else 0)
        self._plan = FftPlan(
            device, stream, cufft, workspace, transform, overwrite=self._load is not None, beside=beside
        )

    def __call__(self, stream: "CudaStream", x: int, out: int, load_data: int | None, store_data: int | None) -> None:
        src, target = x, out
        if self._load is not None:
            src = self._plan.base
            self._load(stream.native, x, src, load_data or 0)
        if self._store is not None:
            target = self._plan.base + self._out_at
        self._plan(stream, src, target)
        if self._store is not None:
            self._store(stream.native, target, out, store_data or 0)

    def close(self) -> None:
        """Destroy it; the stream has passed its last user."""
        self._plan.close()


def _pass(device: "CudaDevice", side: Side, name: str, body: str, step: str) -> Pass:
    real = "double" if side.real.name == "f64" else "float"
    text = SOURCE.format(real=real, value="cplx" if side.is_complex else "real", body=body, step=step)
    args = PassArgs(count=side.size)
    function = device.kernels.compile(name, text.encode(), "run")
    launch = kernel_launcher(device.driver, function, linear_grid(side.size), (THREADS, 1), args)

    def run(stream: int, x: int, out: int, data: int) -> None:
        args.x, args.out, args.data = x, out, data
        launch(stream)

    return run
