"""Selection of the fastest algorithm by timing on a separate stream, on temporary operands."""

import ctypes
from collections.abc import Sequence
from ctypes import c_float, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.scalars import host_cell
from callboard.backends.cuda.blas_lt.cublaslt import Candidate, CublasLt
from callboard.backends.cuda.blas_lt.mapping import (
    CUDA_TYPE,
    POINTERS,
    Mapping,
    addend_type,
    layout_of_field,
    pointer_mode,
)
from callboard.backends.cuda.blas_lt.operation import Operation
from callboard.core.op import Outputs, info_of
from callboard.core.operand import Operand
from callboard.kernel.blas_lt.product import Product

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["fastest"]

RUNS = 5
FILL = 0x3A
"""A byte that makes small positive numbers of every floating type: operands of zeros would draw less power."""


def fastest(
    lt: CublasLt,
    stream: "CudaStream",
    op: Product[Any],
    mapping: Mapping,
    made: Outputs,
    operation: Operation,
    candidates: Sequence[Candidate],
) -> Candidate:
    """The candidate with the smallest time of several runs; one that fails is passed over.

    Args:
        lt: The handle.
        stream: The stream for timing; nothing else is enqueued there.
        op: The message, with placeholders.
        mapping: Mapping of the product.
        made: Layouts of the outputs that it makes.
        operation: The product's descriptor; addresses are set in it.
        candidates: More than one.
    """
    device, driver = lt.device, lt.driver
    memories: list[Memory] = []
    events = []
    try:
        workspace = _filled(lt, memories, stream.native, max(c.workspace for c in candidates))
        addresses = {}
        for field in info_of(type(op)).dynamic:
            layout = layout_of_field(op, made, field.name) if _has_layout(op, made, field.name) else None
            if layout is not None:
                low, high = layout.span
                addresses[field.name] = _filled(lt, memories, stream.native, high - low) - low
        for name in POINTERS.keys() & addresses.keys():
            operation.set(POINTERS[name], addresses[name])
        one, zero = host_cell(mapping.scale), host_cell(mapping.scale)
        one[1](1.0)
        operation.set("POINTER_MODE", 0)
        for _ in range(2):
            event = c_void_p()
            driver.event_create(ctypes.byref(event), 0)
            events.append(event.value or 0)
        out = addresses["out"]
        same_type = addend_type(op, mapping.out.dtype) == CUDA_TYPE[mapping.out.dtype.name]
        c = addresses.get("c", out if same_type else lt.slots)
        layout_b, layout_a, layout_c, layout_out = operation.layouts

        def run(candidate: Candidate) -> None:
            lt.library.matmul(
                *(lt.handle, operation.desc, one[0], addresses["b"], layout_b, addresses["a"], layout_a, zero[0]),
                *(c, layout_c, out, layout_out, candidate.address, workspace, candidate.workspace, stream.native),
            )

        def seconds(candidate: Candidate) -> float:
            try:
                run(candidate)
                best = float("inf")
                for _ in range(RUNS):
                    driver.check(driver.event_record(events[0], stream.native), "cuEventRecord")
                    run(candidate)
                    driver.check(driver.event_record(events[1], stream.native), "cuEventRecord")
                    driver.event_synchronize(events[1])
                    elapsed = c_float()
                    driver.event_elapsed(ctypes.byref(elapsed), *events)
                    best = min(best, elapsed.value)
                return best
            except lt.failure:
                return float("inf")

        return min(candidates, key=seconds)
    finally:
        stream.synchronize()
        operation.set("POINTER_MODE", pointer_mode(op))
        for made_event in events:
            driver.event_destroy(made_event)
        for memory in memories:
            device.release(memory)


def _has_layout(op: Product[Any], made: Outputs, name: str) -> bool:
    return name in made or isinstance(getattr(op, name), Operand)


def _filled(lt: CublasLt, memories: "list[Memory]", stream: int, nbytes: int) -> int:
    memory = lt.device.allocate(nbytes)
    memories.append(memory)
    lt.driver.check(lt.driver.memset_8(memory.address, FILL, max(nbytes, 1), stream), "cuMemsetD8Async")
    return memory.address
