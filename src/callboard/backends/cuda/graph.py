"""Work recorded from a stream as a CUDA graph."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_void_p

from callboard.backends.cuda.driver import Driver
from callboard.core.backend import AccelGraph, AccelStream
from callboard.core.errors import AccelError

__all__ = ["CudaGraph", "capture"]

THREAD_LOCAL = 1
"""``CU_STREAM_CAPTURE_MODE_THREAD_LOCAL``: refuses unsafe calls of this thread only; others may allocate meanwhile."""


class CudaGraph(AccelGraph):
    """An instantiated graph.

    Args:
        driver: What it calls.
        graph: The ``CUgraph``; owned from here on.
    """

    def __init__(self, driver: Driver, graph: int) -> None:
        self._driver = driver
        created = c_void_p()
        try:
            driver.graph_instantiate(ctypes.byref(created), graph, 0)
        finally:
            driver.graph_destroy(graph)
        self._executable: int = created.value or 0

    def launch(self, stream: AccelStream) -> None:
        self._driver.graph_launch(self._executable, stream.native)

    def close(self) -> None:
        if self._executable:
            self._driver.graph_exec_destroy(self._executable)
            self._executable = 0


def capture(driver: Driver, stream: int, enqueue: Callable[[], None]) -> CudaGraph:
    """Record what ``enqueue`` puts on a stream; nothing of it runs.

    Raises:
        AccelError: Something in it cannot be recorded (an allocation, a synchronisation, another stream's work).
    """
    driver.stream_begin_capture(stream, THREAD_LOCAL)
    graph = c_void_p()
    try:
        enqueue()
    except BaseException:
        with suppress(AccelError):  # an invalidated capture ends with an error that says less than the first
            driver.stream_end_capture(stream, ctypes.byref(graph))
        if graph.value:
            driver.graph_destroy(graph.value)
        raise
    driver.stream_end_capture(stream, ctypes.byref(graph))
    return CudaGraph(driver, graph.value or 0)
