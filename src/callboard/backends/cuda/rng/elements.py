"""Integers of a range, numbers by rejection, choices by weight, and orders."""

import struct
from ctypes import addressof, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.launching import THREADS, linear_grid
from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.rng.arguments import FillArgs, FillPlan, launcher
from callboard.backends.cuda.rng.philox import philox
from callboard.kernel.rng import RngFillBeta, RngFillDiscrete, RngFillGamma, RngFillIntegers, RngFillPoisson
from callboard.kernel.rng.fill import Fill as FillOp
from callboard.kernel.rng.streams import words_per_element
from callboard.kernel.rng.weights import bad_sum, bad_weight

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["discrete", "integers", "permutation", "rejected"]

LOCAL = 2048
"""Items that one block sorts by itself."""
SUMMING = 1024
"""Threads of the block that adds up weights."""
OUTCOME = struct.Struct("<Qdd")
ALL_RIGHT = 2**64 - 1


def integers(plan: FillPlan, op: RngFillIntegers) -> None:
    """Set ``plan.fill(stream, out, seed, position, low, high)``."""
    size, step = op.out.size, words_per_element(op.out.dtype)
    if not size:
        return
    args = FillArgs(count=size)
    groups = size * step // 4 + 2
    run = launcher(plan.device, "rng_elements", f"{op.kind}_integers_{4 * step}", groups, args)

    def fill(stream: "CudaStream", out: int, seed: int, position: int, low: int, high: int) -> None:
        args.out, args.seed, args.position = out, seed, position
        args.low = low & ALL_RIGHT
        args.span = high - low & ALL_RIGHT
        run(stream.native)

    plan.fill = fill


def rejected(plan: FillPlan, op: RngFillPoisson | RngFillGamma | RngFillBeta) -> None:
    """Set ``plan.fill(stream, out, seed, position, a, b)``; Poisson numbers have no ``b``."""
    if not op.out.size:
        return
    name = {RngFillPoisson: "poisson", RngFillGamma: "gamma", RngFillBeta: "beta"}[type(op)]
    args = FillArgs(count=op.out.size, dtype=op.out.dtype.code)
    run = launcher(plan.device, "rng_elements", f"{name}_numbers", op.out.size, args)

    def fill(stream: "CudaStream", out: int, seed: int, position: int, a: float, b: float = 0.0) -> None:
        args.out, args.seed, args.position, args.a, args.b = out, seed, position, a, b
        run(stream.native)

    plan.fill = fill


def discrete(plan: FillPlan, op: RngFillDiscrete) -> None:
    """Set ``plan.fill(stream, out, seed, position, weights)``, which returns a status: whether the weights fit."""
    size, driver = op.weights.size, plan.device.driver
    status = plan.allocate(OUTCOME.size + 8 * size)
    sums = status + OUTCOME.size
    add_up = plan.device.kernels.get("rng_elements", f"sums_{op.weights.dtype.name}")
    values = (c_void_p(), c_void_p(sums), c_void_p(status), c_int64(size))
    params = (c_void_p * 4)(*map(addressof, values))
    args = FillArgs(count=op.out.size, table=sums, size=size)
    itemsize = op.out.dtype.itemsize
    run = philox(plan.device, op.kind, "rng_words", f"discrete_{itemsize}", 2, itemsize, args)

    def fill(stream: "CudaStream", out: int, seed: int, position: int, weights: int) -> CudaStatus:
        values[0].value = weights
        code = driver.launch_kernel(add_up, 1, 1, 1, SUMMING, 1, 1, 0, stream.native, params, None)
        driver.check(code, "cuLaunchKernel")
        if op.out.size:
            run(stream, out, seed, position)
        return CudaStatus(status, OUTCOME.size, _check_weights)

    plan.fill = fill


def _check_weights(outcome: bytes) -> None:
    wrong, value, total = OUTCOME.unpack(outcome)
    if wrong != ALL_RIGHT:
        raise bad_weight(wrong, value)
    if error := bad_sum(total):
        raise error


def permutation(plan: FillPlan, op: FillOp) -> None:
    """Set ``plan.fill(stream, out, seed, position)``: random keys, sorted with their places."""
    count, driver, kernels = op.out.size, plan.device.driver, plan.device.kernels
    if not count:
        return
    size = max(LOCAL, 1 << (count - 1).bit_length())
    keys, items = plan.allocate(8 * count), plan.allocate(16 * size)
    draw = philox(plan.device, op.kind, "rng_words", "bits_8", 2, 8, FillArgs(count=count))
    begin, step, local, end = (kernels.get("rng_elements", f"order_{n}") for n in ("begin", "step", "local", "end"))

    def call(function: int, grid: int, stream: "CudaStream", *values: Any) -> None:
        params = (c_void_p * len(values))(*map(addressof, values))
        code = driver.launch_kernel(function, grid, 1, 1, THREADS, 1, 1, 0, stream.native, params, None)
        driver.check(code, "cuLaunchKernel")

    def fill(stream: "CudaStream", out: int, seed: int, position: int) -> None:
        draw(stream, keys, seed, position)
        at = c_void_p(items)
        call(begin, linear_grid(size), stream, c_void_p(keys), at, c_int64(count), c_int64(size))
        call(local, size // LOCAL, stream, at, c_int64(2), c_int64(LOCAL))
        run = 2 * LOCAL
        while run <= size:
            distance = run // 2
            while distance >= LOCAL:
                call(step, linear_grid(size // 2), stream, at, c_int64(size), c_int64(run), c_int64(distance))
                distance //= 2
            call(local, size // LOCAL, stream, at, c_int64(run), c_int64(run))
            run *= 2
        call(end, linear_grid(count), stream, at, c_void_p(out), c_int64(count), c_int(op.out.dtype.itemsize == 8))

    plan.fill = fill
