"""Which engine serves a product, by measurement: each runs on operands of its own, and the fastest is kept on disk."""

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from ctypes import c_float, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from callboard.backends.cuda.kernelcache import KernelCache
from callboard.backends.cuda.sparse_lt.tuning import choose, numbers_of, repeat
from callboard.core.errors import LibraryError, OutOfMemory, UnsupportedOp
from callboard.core.layout import Layout
from callboard.core.op import info_of
from callboard.kernel.cutlass.fused import Fused, Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.cutlass.library import CudaCutlass
    from callboard.core.backend import Memory

__all__ = ["Candidate", "fastest"]


class Candidate(NamedTuple):
    """An engine that can serve a product.

    Attributes:
        key: What it is, with all that its speed depends on beside the device and the extents.
        make: Makes its plan in a library.
    """

    key: str
    make: "Callable[[CudaCutlass], Any]"


def fastest(
    library: "CudaCutlass",
    op: Fused[Any],
    problem: Problem,
    candidates: Sequence[Candidate],
    cache: KernelCache | None = None,
) -> tuple[int, str]:
    """The position of the candidate to take, as it was measured before, or is measured now; and words about that.

    The first is kept unless another one is faster by a margin. Extents between the same powers of two are of one class:
    they are measured once, for all processes of the user. While there is no memory for the operands, the first serves,
    and nothing is kept.

    Args:
        library: The library.
        op: The message, with placeholders.
        problem: Its shapes.
        candidates: At least one.
        cache: Where choices are kept; the user's when None.
    """
    if len(candidates) == 1:
        return 0, ""
    cache = KernelCache() if cache is None else cache
    name = _name(library, op, problem, candidates)
    kept = (cache.get(name) or b"").decode(errors="replace")
    found = next((at for at, one in enumerate(candidates) if one.key == kept), None)
    if found is None:
        try:
            found = _measured(library, op, problem, candidates)
        except OutOfMemory:
            return 0, "; not measured for lack of memory"
        cache.keep(name, candidates[found].key.encode())
    return found, f"; measured as the fastest of {len(candidates)} engines"


def _name(library: "CudaCutlass", op: Fused[Any], problem: Problem, candidates: Sequence[Candidate]) -> str:
    extents = [*problem.result.shape, op.a.shape[-1], problem.stacks]
    parts = [library.device.info.name, *(str(extent.bit_length()) for extent in extents)]
    text = "\0".join([type(op).__name__, *parts, *(one.key for one in candidates)])
    return f"cutlass-choice-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def _measured(library: "CudaCutlass", op: Fused[Any], problem: Problem, candidates: Sequence[Candidate]) -> int:
    """Waits for the device. The plans are of a library of their own, whose scratch no other work uses."""
    device, driver = library.device, library.device.driver
    stream = device.stream()
    own = type(library)(device, stream)
    memories: list[Memory] = []
    plans: dict[int, Any] = {}
    events: list[int] = []
    try:
        for _ in range(2):
            event = c_void_p()
            driver.event_create(ctypes.byref(event), 0)
            events.append(event.value or 0)
        operands = _operands(own, op, problem, memories)

        def measure(number: int, runs: int) -> float:
            plan = plans[number]
            driver.check(driver.event_record(events[0], stream.native), "cuEventRecord")
            for _ in range(runs):
                plan(stream, *operands)
            driver.check(driver.event_record(events[1], stream.native), "cuEventRecord")
            driver.event_synchronize(events[1])
            elapsed = c_float()
            driver.event_elapsed(ctypes.byref(elapsed), *events)
            return elapsed.value / runs

        for number, one in enumerate(candidates):
            try:
                plans[number] = one.make(own)
                measure(number, 1)  # its kernels are loaded
            except (LibraryError, UnsupportedOp):
                _closed(plans.pop(number, None))
        return choose(list(plans), measure)
    finally:
        stream.synchronize()
        for plan in plans.values():
            _closed(plan)
        for event_made in events:
            driver.event_destroy(event_made)
        for memory in memories:
            device.release(memory)
        own.close()
        stream.close()


def _closed(plan: Any) -> None:
    if plan is not None:
        plan.close()


def _operands(library: "CudaCutlass", op: Fused[Any], problem: Problem, memories: "list[Memory]") -> list[Any]:
    """The arguments of a launch: normal numbers in every array; groups of different sizes."""
    driver, stream = library.device.driver, library.stream

    def array(layout: Layout) -> int:
        low, high = layout.span
        memory = library.device.allocate(max(high - low, 1))
        memories.append(memory)
        repeat(driver, stream.native, memory.address, high - low, numbers_of(layout.dtype))
        return memory.address - low

    def offsets(layout: Layout) -> int:
        groups = layout.shape[0] - 1
        sizes = np.random.default_rng(0).multinomial(
            problem.result.shape[0], np.random.default_rng(1).dirichlet([2.0] * groups)
        )
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        memory = library.device.allocate(starts.nbytes)
        memories.append(memory)
        driver.check(
            driver.memcpy_htod(memory.address, starts.ctypes.data, starts.nbytes, stream.native), "cuMemcpyHtoD"
        )
        stream.synchronize()  # its source is read
        return memory.address

    given: list[Any] = []
    for field in info_of(type(op)).dynamic:
        value = getattr(op, field.name)
        if field.name == "out":
            given.append(array(problem.result if value is None else value.layout))
        elif field.name == "offsets":
            given.append(offsets(value.layout))
        elif field.name in ("alpha", "beta"):
            given.append(1.0 if field.name == "alpha" or op.c is not None else 0.0)
        elif isinstance(value, tuple):
            given.append([array(one.layout) for one in value] or None)
        else:
            given.append(None if value is None else array(value.layout))
    return given
