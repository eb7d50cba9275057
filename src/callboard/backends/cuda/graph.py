"""Work recorded from a stream as a CUDA graph, and where recording disturbs no other work."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_void_p

from callboard.backends.cuda.driver import STREAM_NON_BLOCKING, Driver
from callboard.core.backend import AccelGraph, AccelStream
from callboard.core.errors import AccelError, UnsupportedOp

__all__ = ["CudaGraph", "GreenContext", "capture"]

ALL_MULTIPROCESSORS = 1
"""``CU_DEV_RESOURCE_TYPE_SM``."""
RESOURCE = 256
"""Bytes; more than a ``CUdevResource`` has."""
GREEN_DEFAULT_STREAM = 1
INVALIDATED = 901
"""``CUDA_ERROR_STREAM_CAPTURE_INVALIDATED``."""
UPDATE_FAILURE = 910
"""``CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE``: the graphs differ in more than a graph can take over."""
NODES = {
    1: "memory copy",
    2: "memory set",
    3: "host function",
    4: "graph",
    5: "empty",
    6: "event wait",
    7: "event",
    13: "conditional",
}
"""``CUgraphNodeType``; 0 is a kernel."""
THREAD_LOCAL = 1
"""``CU_STREAM_CAPTURE_MODE_THREAD_LOCAL``: refuses unsafe calls of this thread only; others may allocate meanwhile."""


class KernelNode(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("params", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


class UpdateResult(ctypes.Structure):
    """``CUgraphExecUpdateResultInfo``."""

    _fields_ = (("result", c_int), ("node", c_void_p), ("from_node", c_void_p))


class CudaGraph(AccelGraph):
    """An instantiated graph.

    Args:
        driver: The CUDA driver API.
        graph: The ``CUgraph``; owned from here on.
        describes: Keep it, for :meth:`describe`.
    """

    def __init__(self, driver: Driver, graph: int, describes: bool = False) -> None:
        self._driver = driver
        self._launch = driver.graph_launch
        self._graph = 0
        created = c_void_p()
        try:
            driver.graph_instantiate(ctypes.byref(created), graph, 0)
        except BaseException:  # of any kind: nothing else gives it back
            driver.graph_destroy(graph)
            raise
        if describes:
            self._graph = graph
        else:
            driver.graph_destroy(graph)
        self._executable: int = created.value or 0

    def launch(self, stream: AccelStream) -> None:
        code = self._launch(self._executable, stream.native)
        if code:
            raise self._driver.error(code, "cuGraphLaunch")

    def upload(self, stream: AccelStream) -> None:
        self._driver.graph_upload(self._executable, stream.native)

    def take(self, graph: int) -> bool:
        """Take over another graph, if it has the same nodes except for addresses and numbers.

        Launches already enqueued are not affected.

        Args:
            graph: A ``CUgraph``; owned from here on, if it was taken.
        """
        if not self._graph:
            return False
        result = UpdateResult()
        code = self._driver.graph_exec_update(self._executable, graph, ctypes.byref(result))
        if code == UPDATE_FAILURE:
            return False
        self._driver.check(code, "cuGraphExecUpdate")
        self._driver.graph_destroy(self._graph)
        self._graph = graph
        return True

    def describe(self) -> list[str]:
        driver, count = self._driver, c_size_t()
        if not self._graph:
            return []
        driver.graph_nodes(self._graph, None, ctypes.byref(count))
        nodes = (c_void_p * count.value)()
        driver.graph_nodes(self._graph, nodes, ctypes.byref(count))
        return [self._described(node) for node in nodes if node]

    def _described(self, node: int) -> str:
        kind = c_int()
        self._driver.graph_node_type(node, ctypes.byref(kind))
        if kind.value:
            return NODES.get(kind.value, f"node of type {kind.value}")
        params, name = KernelNode(), c_char_p()
        with suppress(UnsupportedOp):  # drivers report names from R545 on
            self._driver.graph_kernel_node(node, ctypes.byref(params))
            if params.function:
                self._driver.function_name(ctypes.byref(name), params.function)
            elif params.kernel:
                self._driver.kernel_name(ctypes.byref(name), params.kernel)
        text = (name.value or b"kernel").decode(errors="replace")
        return f"{text} {tuple(params.grid)} x {tuple(params.block)}"

    def close(self) -> None:
        if self._executable:
            self._driver.graph_exec_destroy(self._executable)
            self._executable = 0
        if self._graph:
            self._driver.graph_destroy(self._graph)
            self._graph = 0


class GreenContext:
    """A second, light context of the same memory and kernels, with all multiprocessors, to record in.

    While a stream is captured, CUDA refuses to synchronise the context that it belongs to (900), on any thread, and
    invalidates the capture (901). Streams made here belong to another context than the primary one, so synchronising
    the primary context does not interfere with a capture. Graphs that were captured here may be launched in the primary
    context.

    Args:
        driver: The CUDA driver API.
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
        """Destroy it after its streams have been closed."""
        if self._handle:
            self._driver.green_destroy(self._handle)
            self._handle = 0


def capture(
    driver: Driver, stream: int, enqueue: Callable[[], None], into: AccelGraph | None = None, describes: bool = False
) -> CudaGraph:
    """Record the work ``enqueue`` puts on a stream, without running it.

    Args:
        driver: The CUDA driver API.
        stream: A ``CUstream``.
        enqueue: Enqueues the work.
        into: See :meth:`AccelStream.capture`.
        describes: See :class:`CudaGraph`.

    Raises:
        AccelError: Something in it cannot be recorded (an allocation, a synchronisation, another stream's work).
    """
    driver.stream_begin_capture(stream, THREAD_LOCAL)
    graph = c_void_p()
    try:
        enqueue()
    except BaseException:  # of any kind: a stream that is left recording cannot be used any more
        with suppress(AccelError):  # an invalidated capture ends with an error that is less specific than the first
            driver.stream_end_capture(stream, ctypes.byref(graph))
        if graph.value:
            driver.graph_destroy(graph.value)
        raise
    driver.stream_end_capture(stream, ctypes.byref(graph))
    if not graph.value:  # another thread has synchronised the context meanwhile; to instantiate nothing is a crash
        raise driver.error(INVALIDATED, "cuStreamEndCapture")
    if isinstance(into, CudaGraph):
        try:
            taken = into.take(graph.value)
        except AccelError:
            driver.graph_destroy(graph.value)
            raise
        if taken:
            return into
    return CudaGraph(driver, graph.value, describes)
