"""Which of cuSPARSELt's algorithms is the fastest for a product: each is timed with the workspace that it asks for.

cuSPARSELt has a search of its own, which gives all of them the workspace of the first one, and leaves none out.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_float, c_void_p

import numpy as np

from callboard.backends.cuda.sparse_lt.cusparselt import COLUMNS, ROWS, CusparseLt, Descriptors
from callboard.core.dtype import DType
from callboard.core.errors import LibraryError, OutOfMemory, UnsupportedOp

__all__ = ["fastest"]

RUNS = 5
LEGAL = {("f16", COLUMNS, COLUMNS): 36, ("f16", ROWS, COLUMNS): 34}
"""How many algorithms are tried, by the dtype of the factors and the orders of the dense one and the result; of other
products all. With cuSPARSELt 0.8.0 on an H200 the later ones end the context by an illegal instruction, whatever the
extents are and the memory holds."""
FILL = 0x44
"""A byte that makes positive numbers of every dtype, and metadata that is right."""


def fastest(lt: CusparseLt, product: int, dtype: DType, orders: tuple[int, int], sizes: Sequence[int]) -> int:
    """The number of the algorithm with the smallest time of several runs; one that is refused is passed over.

    Waits for the device.

    Args:
        lt: The handle.
        product: Its descriptor.
        dtype: Of its factors.
        orders: Of the dense factor and of the result.
        sizes: Bytes of the structured factor, of the dense one, of the result and of the addend.
    """
    driver, stream, memory = lt.driver, lt.device.stream(), Descriptors(lt)
    numbers, streams = np.ones(2, np.float32), np.array([stream.native], np.uint64)
    alpha, where = numbers.ctypes.data, streams.ctypes.data
    events = []
    try:
        addresses = [memory.memory(size) for size in sizes]
        for address, size in zip(addresses, sizes, strict=True):
            driver.check(driver.memset_8(address, FILL, max(size, 1), stream.native), "cuMemsetD8Async")
        for _ in range(2):
            event = c_void_p()
            driver.event_create(ctypes.byref(event), 0)
            events.append(event.value or 0)
        a, b, d, c = addresses

        def seconds(algorithm: int) -> float:
            made = Descriptors(lt)
            try:
                plan = made.plan(product, made.selection(product, algorithm))
                workspace = made.memory(int(lt.call("matmul_get_workspace", plan)))
                arguments = (plan, alpha, a, b, alpha + numbers.itemsize, c, d, workspace, where, 1)
                lt.call("matmul", *arguments)
                best = float("inf")
                for _ in range(RUNS):
                    driver.check(driver.event_record(events[0], stream.native), "cuEventRecord")
                    lt.call("matmul", *arguments)
                    driver.check(driver.event_record(events[1], stream.native), "cuEventRecord")
                    driver.event_synchronize(events[1])
                    elapsed = c_float()
                    driver.event_elapsed(ctypes.byref(elapsed), *events)
                    best = min(best, elapsed.value)
                return best
            except (LibraryError, OutOfMemory, UnsupportedOp):
                return float("inf")
            finally:
                stream.synchronize()
                made.close()

        known = memory.algorithms(product)
        return min(range(min(known, LEGAL.get((dtype.name, *orders), known))), key=seconds)
    finally:
        stream.synchronize()
        for made_event in events:
            driver.event_destroy(made_event)
        memory.close()
        stream.close()
