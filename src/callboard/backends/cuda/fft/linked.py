"""Functions of the user's linked into cuFFT's own kernels: they cost no pass over memory, but the kernels cost more.

cuFFT declares the callback function itself, in C++: the linked function must have C++ linkage, not C linkage, and the
parameters of ``cufftJITCallbackLoadC`` and its like; otherwise planning only returns ``CUFFT_INTERNAL_ERROR``.
"""

import ctypes
from typing import TYPE_CHECKING

from callboard.backends.cuda.fft.advanced import advanced
from callboard.backends.cuda.fft.cufft import Cufft, LinkedFunction
from callboard.backends.cuda.fft.plans import FftPlan
from callboard.backends.cuda.launching import kernel_launcher
from callboard.backends.cuda.workspace import Workspace
from callboard.kernel.fft import FftWithCallback
from callboard.kernel.fft.transform import Side

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["LinkedPlan", "PointArgs", "worth_linking"]

SOURCE = """\
typedef {real} real;
struct __attribute__((aligned(2 * sizeof(real)))) cplx {{ real x, y; }};
namespace {{
#line 1
{body}
}}
{entry}
"""
LOAD = """\
__device__ {theirs} callboard_load(void *x, unsigned long long i, void *data, void *) {{
    const {value} found = load((const {value} *)x, i, {data});
    return *(const {theirs} *)&found;
}}"""
STORE = """\
__device__ void callboard_store(void *out, unsigned long long i, {theirs} found, void *data, void *) {{
    {value} value = *(const {value} *)&found;
    {scaled};
    store(({value} *)out, i, value, {data});
}}"""
PLAIN_STORE = (
    "__device__ void store({value} *out, unsigned long long i, {value} value, const void *) {{ out[i] = value; }}"
)
TYPES = {("f32", True): 0, ("f64", True): 1, ("f32", False): 2, ("f64", False): 3}
"""``cufftXtCallbackType`` of a load; of a store, 4 more."""
MOST_POINTS = 1024
"""Along an axis; beyond that cuFFT's kernels with functions take up to twice the time of those without."""
CELL = 8
"""Bytes of an address."""


class PointArgs(ctypes.Structure):
    """``PointArgs`` of ``data/fft.cu``."""

    _fields_ = (("cell", ctypes.c_void_p), ("load", ctypes.c_void_p), ("store", ctypes.c_void_p))


def worth_linking(op: FftWithCallback) -> bool:
    """True if linking is expected to be faster than passes over memory before and after the transform.

    According to the measurements in ``docs/decisions/0017-linked-fft-callbacks.md`` this holds if it saves two such
    passes and no axis is long. Linking is possible if cuFFT reads and writes the operands themselves: cuFFT then counts
    elements as the message does.
    """
    transform = op.transform()
    if op.load is None or (op.store is None and transform.scale == 1.0) or max(transform.lengths) > MOST_POINTS:
        return False
    where = advanced(transform, False)
    return where.src_copy is None and where.out_copy is None


class LinkedPlan:
    """A plan that calls the functions of a message; enqueues only.

    cuFFT takes the address of their data when the plan is made. It is therefore given two cells on the device, to which
    each launch writes the addresses of its operands.

    Args:
        device: The device; its context is current.
        stream: The stream it usually enqueues on.
        cufft: Makes the plan.
        workspace: Shared by the plans of a library.
        op: The message, with placeholders, accepted by :func:`worth_linking`.

    Raises:
        OutOfMemory: No room for plan or work area.
        LibraryError: The compiler refuses, or cuFFT does, as where nvJitLink is missing or older than NVRTC.
    """

    def __init__(
        self, device: "CudaDevice", stream: "CudaStream", cufft: Cufft, workspace: Workspace, op: FftWithCallback
    ) -> None:
        transform = op.transform()
        unscaled = transform._replace(norm="backward" if transform.direction == "forward" else "forward")
        load = None if op.load is None else _linkable(device, transform.src, op.load, LOAD, op.load_data is not None)
        body = op.store
        if body is None and transform.scale != 1.0:
            body = PLAIN_STORE.format(value=_value(transform.out))
        store = None
        if body is not None:
            store = _linkable(device, transform.out, body, STORE, op.store_data is not None, transform.scale)
        self._device = device
        self._cells = self._point = None
        has_data = op.load_data is not None or op.store_data is not None
        if has_data:
            point = device.kernels.get("fft", "point")
            self._cells = device.allocate(2 * CELL)
            self._args = PointArgs(cell=self._cells.address)
            self._point = kernel_launcher(device.driver, point, 1, (1, 1), self._args)
        at = self._cells.address if self._cells is not None else 0
        functions = []
        if load is not None:
            functions.append(LinkedFunction("callboard_load", load, TYPES[_kind(transform.src)], at))
        if store is not None:
            functions.append(
                LinkedFunction("callboard_store", store, TYPES[_kind(transform.out)] + 4, at and at + CELL)
            )
        try:
            self._plan = FftPlan(device, stream, cufft, workspace, unscaled, functions=functions)
        except BaseException:  # Ctrl-C, too: nothing else returns the cells
            self._release()
            raise

    def __call__(self, stream: "CudaStream", x: int, out: int, load_data: int | None, store_data: int | None) -> None:
        if self._point is not None:
            self._args.load, self._args.store = load_data, store_data
            self._point(stream.native)
        self._plan(stream, x, out)

    def close(self) -> None:
        """Destroy it; the stream has passed its last user."""
        try:
            self._plan.close()
        finally:
            self._release()

    def _release(self) -> None:
        if self._cells is not None:
            cells, self._cells = self._cells, None
            self._device.release(cells)


def _kind(side: Side) -> tuple[str, bool]:
    return side.real.name, side.is_complex


def _value(side: Side) -> str:
    return "cplx" if side.is_complex else "real"


def _linkable(device: "CudaDevice", side: Side, body: str, entry: str, has_data: bool, scale: float = 1.0) -> bytes:
    """Return the linkable code: the user's functions, hidden from cuFFT and each other, and the one cuFFT calls."""
    real = "double" if side.real.name == "f64" else "float"
    parts = ("value.x", "value.y") if side.is_complex else ("value",)
    text = SOURCE.format(
        real=real,
        body=body,
        entry=entry.format(
            theirs=f"{real}2" if side.is_complex else real,
            value=_value(side),
            data="*(const void **)data" if has_data else "nullptr",
            scaled=", ".join(f"{part} *= (real){scale!r}" for part in parts),
        ),
    )
    return device.kernels.linkable("load" if entry is LOAD else "store", text.encode())
