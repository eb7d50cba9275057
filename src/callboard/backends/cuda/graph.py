"""Work recorded from a stream as a CUDA graph, and where recording disturbs no other work."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_void_p

from callboard.backends.cuda.driver import STREAM_NON_BLOCKING, Driver
from callboard.core.backend import AccelGraph, AccelStream
from callboard.core.errors import AccelError

__all__ = ["CudaGraph", "GreenContext", "capture"]

ALL_MULTIPROCESSORS = 1
"""``CU_DEV_RESOURCE_TYPE_SM``."""
RESOURCE = 256
"""Bytes; more than a ``CUdevResource`` has."""
GREEN_DEFAULT_STREAM = 1
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


class GreenContext:
    """A second, light context of the same memory and kernels, with all multiprocessors, to record in.

    While a stream is captured, CUDA refuses to synchronise the context that it belongs to (900), on any thread, and
    gives the recording up (901). The primary context is not that of a stream made here, so what
    synchronises it does not meet a recording. What was recorded here may be launched there.

    Args:
        driver: What it calls.
        device: The ordinal; its primary context is active.

    Raises:
        UnsupportedOp: The driver is older than R555.
        AccelError: It cannot be made.
    """

    def __init__(self, driver: Driver, device: int) -> None:
        self._driver = driver
        resource = ctypes.create_string_buffer(RESOURCE)
        driver.device_resource(device, resource, ALL_MULTIPROCESSORS)
        description, created = c_void_p(), c_void_p()
        driver.resource_desc(ctypes.byref(description), resource, 1)
        driver.green_create(ctypes.byref(created), description, device, GREEN_DEFAULT_STREAM)
        self._handle: int = created.value or 0

    def stream(self) -> int:
        """A new ``CUstream`` of it; its taker destroys it."""
        created = c_void_p()
        self._driver.green_stream_create(ctypes.byref(created), self._handle, STREAM_NON_BLOCKING, 0)
        return created.value or 0

    def close(self) -> None:
        """Destroy it; its streams are gone."""
        if self._handle:
            self._driver.green_destroy(self._handle)
            self._handle = 0


def capture(driver: Driver, stream: int, enqueue: Callable[[], None]) -> CudaGraph:
    """Record what ``enqueue`` puts on a stream; nothing of it runs.

    Raises:
        AccelError: Something in it cannot be recorded (an allocation, a synchronisation, another stream's work).
    """
    driver.stream_begin_capture(stream, THREAD_LOCAL)
    graph = c_void_p()
    try:
        enqueue()
    except BaseException:  # of any kind: a stream that is left recording cannot be used any more
        with suppress(AccelError):  # an invalidated capture ends with an error that says less than the first
            driver.stream_end_capture(stream, ctypes.byref(graph))
        if graph.value:
            driver.graph_destroy(graph.value)
        raise
    driver.stream_end_capture(stream, ctypes.byref(graph))
    if not graph.value:  # another thread has synchronised the context meanwhile; to instantiate nothing is a crash
        raise driver.error(INVALIDATED, "cuStreamEndCapture")
    return CudaGraph(driver, graph.value)
