"""Selection of the fastest cuSPARSELt algorithm for a product: each is timed with the workspace that it requires.

cuSPARSELt has a search of its own, which gives all of them the workspace of the first one, and leaves none out.
"""

import ctypes
import statistics
from collections.abc import Callable, Sequence
from ctypes import c_float, c_void_p
from typing import TYPE_CHECKING

import numpy as np

from callboard.backends.cuda.sparse_lt.cusparselt import COLUMNS, ROWS, CusparseLt, Descriptors
from callboard.core.dtype import DType
from callboard.core.errors import LibraryError, OutOfMemory, UnsupportedOp

if TYPE_CHECKING:
    from callboard.backends.cuda.driver import Driver

__all__ = ["choose", "fastest", "numbers_of", "repeat"]

LEGAL = {("f16", COLUMNS, COLUMNS): 36, ("f16", ROWS, COLUMNS): 34}
"""The number of algorithms tried, by the dtype of the factors and the orders of the dense one and the result; of other
products all. With cuSPARSELt 0.8.0 on an H200 the later ones end the context by an illegal instruction, whatever the
extents are and the memory holds."""
LOOK = 3
"""Products of a first look."""
NEAR = 1.3
"""Ratio to the fastest time in the first round above which algorithms are not timed again."""
FINALISTS = 6
ROUNDS = 7
"""In which the finalists are timed in turn."""
ROUND = 1.0
"""Milliseconds that a finalist has in a round, at least for one product."""
MARGIN = 1.02
"""cuSPARSELt's own choice is kept if its time is at most this multiple of the fastest."""
METADATA = 0x44
"""A byte of metadata that is right for every dtype."""
NUMBERS = 1 << 16
"""Normally distributed numbers, repeated: with equal numbers some algorithms rank differently."""


def choose(numbers: Sequence[int], measure: Callable[[int, int], float]) -> int:
    """The fastest of several algorithms; the default, 0, if none is faster by a margin.

    Args:
        numbers: Numbers of the algorithms, in any order.
        measure: Returns the milliseconds of a product by an algorithm, averaged over a number of products.
    """
    looks = {number: measure(number, LOOK) for number in numbers}
    if not looks:
        return 0
    best = min(looks.values())
    near = sorted((number for number in looks if looks[number] <= NEAR * best), key=looks.__getitem__)
    finalists = dict.fromkeys([*near[:FINALISTS], *(number for number in looks if number == 0)])
    runs = max(1, int(ROUND / best))
    rounds = [[measure(number, runs) for number in finalists] for _ in range(ROUNDS)]
    typical = dict(zip(finalists, map(statistics.median, zip(*rounds, strict=True)), strict=True))
    first = min(typical, key=typical.__getitem__)
    return 0 if typical.get(0, float("inf")) <= MARGIN * typical[first] else first


def fastest(
    lt: CusparseLt, product: int, dtype: DType, orders: tuple[int, int], sizes: Sequence[int], stored: int
) -> int:
    """The number of the algorithm to take (:func:`choose`); one that is refused is passed over.

    Waits for the device.

    Args:
        lt: The handle.
        product: Descriptor of the product.
        dtype: The dtype of its factors.
        orders: Storage orders of the dense factor and of the result.
        sizes: Bytes of the structured factor, of the dense one, of the result and of the addend.
        stored: Bytes of the structured factor that are numbers, before its metadata.
    """
    driver, stream, made, room = lt.driver, lt.device.stream(), Descriptors(lt), Workspace(lt)
    factors, streams = np.array([1, 0], np.float32), np.array([stream.native], np.uint64)
    alpha, where = factors.ctypes.data, streams.ctypes.data
    events = []
    try:
        a, b, d, c = (made.memory(size) for size in sizes)
        driver.check(driver.memset_8(a, METADATA, sizes[0], stream.native), "cuMemsetD8Async")
        numbers = numbers_of(dtype)
        for address, size in ((a, stored), (b, sizes[1])):
            repeat(driver, stream.native, address, size, numbers)
        for _ in range(2):
            event = c_void_p()
            driver.event_create(ctypes.byref(event), 0)
            events.append(event.value or 0)

        def measure(number: int, runs: int) -> float:
            plan, nbytes = plans[number]
            workspace = room.of(nbytes)
            driver.check(driver.event_record(events[0], stream.native), "cuEventRecord")
            for _ in range(runs):
                lt.call("matmul", plan, alpha, a, b, alpha + factors.itemsize, c, d, workspace, where, 1)
            driver.check(driver.event_record(events[1], stream.native), "cuEventRecord")
            driver.event_synchronize(events[1])
            elapsed = c_float()
            driver.event_elapsed(ctypes.byref(elapsed), *events)
            return elapsed.value / runs

        selection = made.selection(product)  # one for all plans: making it may take long
        known = made.algorithms(selection)
        plans: dict[int, tuple[int, int]] = {}
        for number in range(min(known, LEGAL.get((dtype.name, *orders), known))):
            try:
                made.take(selection, number)
                plan = made.plan(product, selection)
                plans[number] = plan, int(lt.call("matmul_get_workspace", plan))
                measure(number, 1)  # its kernel is loaded
            except (LibraryError, OutOfMemory, UnsupportedOp):
                plans.pop(number, None)
                selection = made.selection(product)  # the plan that was refused has been destroyed
        return choose(list(plans), measure)
    finally:
        stream.synchronize()
        for made_event in events:
            driver.event_destroy(made_event)
        room.close()
        made.close()
        stream.close()


class Workspace:
    """Memory for one algorithm after the other.

    Args:
        lt: The handle.
    """

    def __init__(self, lt: CusparseLt) -> None:
        self._lt, self._memory, self._nbytes, self._address = lt, Descriptors(lt), 0, 0

    def of(self, nbytes: int) -> int:
        """The address of a number of bytes; unused by running work."""
        if self._address == 0 or self._nbytes < nbytes:
            self.close()
            self._address = self._memory.memory(nbytes)
            self._nbytes = nbytes
        return self._address

    def close(self) -> None:
        """Release it."""
        self._address = 0
        self._memory.close()


def numbers_of(dtype: DType) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """The bytes of normal numbers, of integers with a deviation of 32."""
    drawn = np.random.default_rng(0).standard_normal(NUMBERS)
    if dtype.is_integer:
        drawn = np.clip(32 * drawn, -127, 127)
    return drawn.astype(np.float32).astype(dtype.np).view(np.uint8)


def repeat(
    driver: "Driver", stream: int, address: int, size: int, pattern: "np.ndarray[tuple[int], np.dtype[np.uint8]]"
) -> None:
    """Repeat a pattern over memory by doubling."""
    filled = min(size, pattern.nbytes)
    driver.check(driver.memcpy_htod(address, pattern.ctypes.data, filled, stream), "cuMemcpyHtoDAsync")
    while filled < size:
        more = min(filled, size - filled)
        driver.check(driver.memcpy_dtod(address + filled, address, more, stream), "cuMemcpyDtoDAsync")
        filled += more
