"""Vectors: how each op of level 1 is called. Every function makes a ``run(*dynamic)`` for one head."""

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.blas.norms import half_norm
from callboard.backends.cuda.blas.products import CUDA_TYPE, PREFIX, scale_dtype
from callboard.backends.cuda.blas.scalars import factor_of, pointers
from callboard.backends.cuda.copies import copier
from callboard.backends.cuda.plans import nothing
from callboard.core.dtype import DType
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.kernel.blas import Asum, Axpy, Copy, Dot, Dotc, Dotu, Iamax, Iamin, Nrm2, Rot, Scal, Swap
from callboard.kernel.blas.strides import Vector, vector_of

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas, Run

__all__ = ["axpy", "copy", "dot", "index", "norm", "rot", "scal", "swap"]

HALVES = ("f16", "bf16")
F32 = CUDA_TYPE["f32"]
"""Halves are computed in f32."""
_REAL_RESULT = {"s": "s", "d": "d", "c": "sc", "z": "dz"}


class Pair(NamedTuple):
    """Two vectors of one length as BLAS takes them; shifts in bytes from element 0."""

    n: int
    x_inc: int
    x_shift: int
    y_inc: int
    y_shift: int


def vector_at(layout: Layout) -> Vector:
    """The layout as a vector; the message has checked that it is one."""
    found = vector_of(layout)
    assert found is not None
    return found


def pair_of(x: Layout, y: Layout) -> Pair:
    """Return both vectors; if both run backwards, both are reversed. BLAS takes the lowest address in any case."""
    vx, vy = vector_at(x), vector_at(y)
    sign = -1 if vx.inc < 0 and vy.inc < 0 else 1
    item = x.dtype.itemsize
    return Pair(vx.n, sign * vx.inc, vx.first * item, sign * vy.inc, vy.first * item)


def forward(x: Layout) -> tuple[int, int, int]:
    """Length, increment > 0 and shift in bytes of a vector whose order does not matter."""
    v = vector_at(x)
    return v.n, abs(v.inc), v.first * x.dtype.itemsize


@plans(Axpy, inline=True)
def axpy(cublas: "Cublas", op: Axpy) -> "Run":
    """``run(x, y, alpha)``."""
    dtype = op.x.dtype
    n, incx, dx, incy, dy = pair_of(op.x.layout, op.y.layout)
    if n == 0:
        return nothing
    handle = cublas.handle
    hand = pointers(cublas, (factor_of(op.alpha, scale_dtype(dtype)),))
    if dtype.name in HALVES:
        half, ex = CUDA_TYPE[dtype.name], cublas.function("axpy_ex", n, incx, incy)

        def run_half(x: int, y: int, alpha: Any) -> None:
            (p_alpha,) = hand(alpha)
            ex(handle, n, p_alpha, F32, x + dx, half, incx, y + dy, half, incy, F32)

        return run_half
    fn = cublas.function(f"{PREFIX[dtype.name]}axpy", n, incx, incy)

    def run(x: int, y: int, alpha: Any) -> None:
        (p_alpha,) = hand(alpha)
        fn(handle, n, p_alpha, x + dx, incx, y + dy, incy)

    return run


@plans(Scal, inline=True)
def scal(cublas: "Cublas", op: Scal) -> "Run":
    """``run(x, alpha)``."""
    dtype = op.x.dtype
    n, inc, dx = forward(op.x.layout)
    if n == 0:
        return nothing
    handle = cublas.handle
    hand = pointers(cublas, (factor_of(op.alpha, scale_dtype(dtype)),))
    if dtype.name in HALVES:
        half, ex = CUDA_TYPE[dtype.name], cublas.function("scal_ex", n, inc)

        def run_half(x: int, alpha: Any) -> None:
            (p_alpha,) = hand(alpha)
            ex(handle, n, p_alpha, F32, x + dx, half, inc, F32)

        return run_half
    fn = cublas.function(f"{PREFIX[dtype.name]}scal", n, inc)

    def run(x: int, alpha: Any) -> None:
        (p_alpha,) = hand(alpha)
        fn(handle, n, p_alpha, x + dx, inc)

    return run


def vector_copy(cublas: "Cublas", src: Layout, out: Layout) -> "Run":
    """``run(src, out)`` between vectors of any increments."""
    n, incx, dx, incy, dy = pair_of(src, out)
    prefix = PREFIX.get(src.dtype.name)
    if n == 0:
        return nothing
    if prefix is None or incx == incy == 1:
        through = copier(cublas.driver, cublas.device.kernels, src, out)
        return lambda src, out: through(cublas.stream.native, src, out)
    handle, fn = cublas.handle, cublas.function(f"{prefix}copy", n, incx, incy)
    return lambda src, out: fn(handle, n, src + dx, incx, out + dy, incy)


@plans(Copy, inline=True)
def copy(cublas: "Cublas", op: Copy) -> "Run":
    """``run(x, out)``."""
    return vector_copy(cublas, op.x.layout, op.infer()["out"] if op.out is None else op.out.layout)


@plans(Swap, inline=True)
def swap(cublas: "Cublas", op: Swap) -> "Run":
    """``run(x, y)``."""
    dtype = op.x.dtype
    n, incx, dx, incy, dy = pair_of(op.x.layout, op.y.layout)
    if n == 0:
        return nothing
    handle = cublas.handle
    if dtype.name in HALVES:
        half, ex = CUDA_TYPE[dtype.name], cublas.function("swap_ex", n, incx, incy)
        return lambda x, y: ex(handle, n, x + dx, half, incx, y + dy, half, incy)
    fn = cublas.function(f"{PREFIX[dtype.name]}swap", n, incx, incy)
    return lambda x, y: fn(handle, n, x + dx, incx, y + dy, incy)


@plans(Rot, inline=True)
def rot(cublas: "Cublas", op: Rot) -> "Run":
    """``run(x, y, c, s)``."""
    dtype = op.x.dtype
    n, incx, dx, incy, dy = pair_of(op.x.layout, op.y.layout)
    if n == 0:
        return nothing
    handle, fn = cublas.handle, cublas.function(f"{PREFIX[dtype.name]}rot", n, incx, incy)
    hand = pointers(cublas, (factor_of(op.c, dtype.real), factor_of(op.s, dtype)))

    def run(x: int, y: int, c: Any, s: Any) -> None:
        p_c, p_s = hand(c, s)
        fn(handle, n, x + dx, incx, y + dy, incy, p_c, p_s)

    return run


# -- reductions: in device pointer mode, straight into the result; nothing waits for them ------------------------------


def zeroed(cublas: "Cublas", dtype: DType) -> "Run":
    """``run(out)``: a 0-d zero."""
    memset, check, nbytes = cublas.driver.memset_8, cublas.driver.check, dtype.itemsize
    return lambda out: check(memset(out, 0, nbytes, cublas.stream.native), "cuMemsetD8Async")


def to_device(cublas: "Cublas") -> None:
    """Enter device pointer mode."""
    if cublas.mode != 1:
        cublas.point(1)


@plans(Dot, Dotc, Dotu, inline=True)
def dot(cublas: "Cublas", op: Dot | Dotu | Dotc) -> "Run":
    """``run(x, y, out)``."""
    dtype = op.x.dtype
    n, incx, dx, incy, dy = pair_of(op.x.layout, op.y.layout)
    if n == 0:
        zero = zeroed(cublas, dtype)
        return lambda x, y, out: zero(out)
    handle = cublas.handle
    if dtype.name in HALVES:
        half, ex = CUDA_TYPE[dtype.name], cublas.function("dot_ex", n, incx, incy)

        def run_half(x: int, y: int, out: int) -> None:
            to_device(cublas)
            ex(handle, n, x + dx, half, incx, y + dy, half, incy, out, half, F32)

        return run_half
    name = {Dot: "dot", Dotu: "dotu", Dotc: "dotc"}[type(op)]
    fn = cublas.function(PREFIX[dtype.name] + name, n, incx, incy)

    def run(x: int, y: int, out: int) -> None:
        to_device(cublas)
        fn(handle, n, x + dx, incx, y + dy, incy, out)

    return run


@plans(Asum, Nrm2)
def norm(cublas: "Cublas", op: Nrm2 | Asum) -> "Run":
    """``run(x, out)``."""
    name, x = "nrm2" if isinstance(op, Nrm2) else "asum", op.x.layout
    dtype = x.dtype
    n, inc, dx = forward(x)
    if n == 0:
        zero = zeroed(cublas, dtype.real)
        return lambda x, out: zero(out)
    if dtype.name in HALVES:
        of_halves = half_norm(cublas, name, dtype.name, n, inc)
        return lambda x, out: of_halves(x + dx, out)
    handle = cublas.handle
    fn = cublas.function(_REAL_RESULT[PREFIX[dtype.name]] + name, n, inc)

    def run(x: int, out: int) -> None:
        to_device(cublas)
        fn(handle, n, x + dx, inc, out)

    return run


@plans(Iamax, Iamin)
def index(cublas: "Cublas", op: Iamax | Iamin) -> "Run":
    """The 64-bit form, whose result is the i64 that is wanted; a kernel takes away the 1 that it counts from."""
    dtype = op.x.dtype
    n, inc, dx = forward(op.x.layout)
    handle, name = cublas.handle, "amax" if isinstance(op, Iamax) else "amin"
    half = CUDA_TYPE[dtype.name] if dtype.name in HALVES else None
    symbol = f"i{name}_ex_64" if half is not None else f"i{PREFIX[dtype.name]}{name}_64"
    fn = cublas.function(symbol)
    decrement = one_argument_kernel(cublas, "decrement")

    def run(x: int, out: int) -> None:
        to_device(cublas)
        if half is None:
            fn(handle, n, x + dx, inc, out)
        else:
            fn(handle, n, x + dx, half, inc, out)
        decrement(out)

    return run


def one_argument_kernel(cublas: "Cublas", name: str) -> "Run":
    """``run(address)``: one thread of a kernel of ``data/blas.cu``."""
    function = cublas.device.kernels.get("blas", name)
    driver = cublas.driver
    argument = ctypes.c_void_p()
    params = (ctypes.c_void_p * 1)(ctypes.addressof(argument))

    def run(address: int) -> None:
        argument.value = address
        code = driver.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, cublas.stream.native, params, None)
        driver.check(code, "cuLaunchKernel")

    return run
