"""Work recorded from a stream as a CUDA graph."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_void_p

from callboard.backends.cuda.driver import Driver
from callboard.core.backend import AccelGraph, AccelStream
from callboard.core.errors import AccelError

__all__ = ["CudaGraph", "capture"]

INVALIDATED = 901
"""``CUDA_ERROR_STREAM_CAPTURE_INVALIDATED``."""
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
        self._launch = driver.graph_launch
        created = c_void_p()
        try:
            driver.graph_instantiate(ctypes.byref(created), graph, 0)
        finally:
            driver.graph_destroy(graph)
        self._executable: int = created.value or 0

    def launch(self, stream: AccelStream) -> None:
        code = self._launch(self._executable, stream.native)
        if code:
            raise self._driver.error(code, "cuGraphLaunch")

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
    except BaseException:  # whatever ends it: a stream that goes on recording is of no use to anybody
        with suppress(AccelError):  # an invalidated capture ends with an error that says less than the first
            driver.stream_end_capture(stream, ctypes.byref(graph))
        if graph.value:
            driver.graph_destroy(graph.value)
        raise
    driver.stream_end_capture(stream, ctypes.byref(graph))
    if not graph.value:  # another thread has synchronised the context meanwhile; to instantiate nothing is a crash
        raise driver.error(INVALIDATED, "cuStreamEndCapture")
    return CudaGraph(driver, graph.value)
