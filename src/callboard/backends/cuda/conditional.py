"""Conditional nodes of CUDA graphs: bodies that run depending on a value in device memory.

A custom kernel (``data/graph.cu``) reads the value and sets the node's condition: once in front of the node, and for a
loop again at the end of its body. The bodies are graphs of the node, captured from a stream of their own while the
outer capture continues.
"""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import addressof, c_int, c_longlong, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import TYPE_CHECKING

from callboard.backends.cuda.graph import THREAD_LOCAL
from callboard.backends.cuda.stream import CudaStream
from callboard.core.backend import AccelStream
from callboard.core.dtype import as_dtype
from callboard.core.errors import AccelError, DriverError, UnsupportedOp
from callboard.kernel.conditional import Conditional, Conditionals

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaConditionals", "NodeParams"]

NEEDED = {"if": 12040, "while": 12040, "else": 12080, "switch": 12080}
"""The driver's version (``cuDriverGetVersion``) from which on there are such nodes."""
KINDS = {"if": 0, "while": 1, "switch": 2}
"""``CUgraphConditionalNodeType``."""
CONDITIONAL = 13
"""``CU_GRAPH_NODE_TYPE_CONDITIONAL``."""
SET_DEPENDENCIES = 1
"""``CU_STREAM_SET_CAPTURE_DEPENDENCIES``: instead of those that there are."""
CAPTURING = 1
"""``CU_STREAM_CAPTURE_STATUS_ACTIVE``."""


class NodeParams(ctypes.Structure):
    """``CUgraphNodeParams``, with ``CUDA_CONDITIONAL_NODE_PARAMS`` of its union."""

    _fields_ = (
        ("type", c_int),
        ("reserved0", c_int * 3),
        ("handle", c_ulonglong),
        ("kind", c_int),
        ("size", c_uint),
        ("bodies", ctypes.POINTER(c_void_p)),
        ("context", c_void_p),
        ("rest", c_longlong * 25),  # the union has 29 numbers of 64 bits
        ("reserved2", c_longlong),
    )


class CudaConditionals(Conditionals):
    """Records the conditional nodes of a device.

    Args:
        device: The device.
        context: Primary context of the device, which recording streams belong to.
    """

    def __init__(self, device: "CudaDevice", context: int) -> None:
        self._device = device
        self._driver = device.driver
        self._context = context
        self._function = 0

    def open(self, kinds: frozenset[str]) -> None:
        """Ask the driver, and load the kernel; see :meth:`Conditionals.open`."""
        version = c_int()
        self._driver.driver_version(ctypes.byref(version))
        lacking = sorted(kind for kind in kinds if version.value < NEEDED[kind])
        if lacking:
            raise UnsupportedOp(
                f"{lacking[0]} in a recording: this driver (CUDA {version.value // 1000}.{version.value % 1000 // 10}) "
                "has no such node; if and while need R550, else and switch R570"
            )
        if not self._function:
            self._function = self._device.kernels.get("graph", "condition")

    def record(
        self,
        stream: AccelStream,
        inner: AccelStream,
        what: Conditional,
        bodies: Sequence[Callable[[AccelStream], None]],
    ) -> None:
        """See :meth:`Conditionals.record`."""
        assert isinstance(stream, CudaStream)
        assert isinstance(inner, CudaStream)
        driver = self._driver
        graph, _, _, _ = self._captured(stream)
        handle = c_ulonglong()
        driver.conditional_handle(ctypes.byref(handle), graph, self._context, 0, 0)
        size = len(bodies) if what.kind == "switch" else 0
        self._set(stream, handle.value, what, size, again=False)
        node, params = c_void_p(), NodeParams()
        params.type, params.handle, params.kind = CONDITIONAL, handle.value, KINDS[what.kind]
        params.size, params.context = len(bodies), self._context
        graph, before, edges, count = self._captured(stream)
        driver.graph_add_node(ctypes.byref(node), graph, before, edges, count, ctypes.byref(params))
        after = (c_void_p * 1)(node.value)
        driver.capture_after(stream.native, after, None, 1, SET_DEPENDENCIES)
        if not params.bodies:
            raise DriverError("cuGraphAddNode: the driver returned no bodies for a conditional node")
        for at, enqueue in enumerate(bodies):
            graph = params.bodies[at] or 0
            if what.kind == "switch":  # a number without a case has a body without work
                driver.graph_add_empty(ctypes.byref(c_void_p()), graph, None, 0)
            with _Body(inner, graph):
                enqueue(inner)
                if what.kind == "while":
                    self._set(inner, handle.value, what, size, again=True)

    def _captured(self, stream: CudaStream) -> tuple[int, c_void_p, c_void_p, int]:
        """The graph that a stream's work goes into, and the dependencies of its next node."""
        status, number, graph = c_int(), c_ulonglong(), c_void_p()
        nodes, edges, count = c_void_p(), c_void_p(), c_size_t()
        arguments = [ctypes.byref(one) for one in (status, number, graph, nodes, edges, count)]
        self._driver.capture_info(stream.native, *arguments)
        if status.value != CAPTURING:
            raise DriverError("the capture was broken off: another thread has synchronised the context")
        return graph.value or 0, nodes, edges, count.value

    def _set(self, stream: CudaStream, handle: int, what: Conditional, bodies: int, *, again: bool) -> None:
        dtype = as_dtype(what.dtype)
        bits = 8 * dtype.itemsize
        mask = (1 << (bits - 1 if dtype.is_float else bits)) - 1  # -0.0 is 0
        arguments = (
            c_ulonglong(handle),
            c_void_p(what.address),
            c_int(dtype.itemsize),
            c_ulonglong(mask),
            c_uint(bodies),
            c_void_p(what.turns),
            c_longlong(what.most),
            c_int(again),
        )
        params = (c_void_p * len(arguments))(*map(addressof, arguments))
        code = self._driver.launch_kernel(self._function, 1, 1, 1, 1, 1, 1, 0, stream.native, params, None)
        self._driver.check(code, "cuLaunchKernel")


class _Body:
    """Captures work enqueued on a stream into a graph that belongs to a node."""

    def __init__(self, stream: CudaStream, graph: int) -> None:
        self._stream = stream
        self._graph = graph

    def __enter__(self) -> None:
        self._stream.driver.capture_into(self._stream.native, self._graph, None, None, 0, THREAD_LOCAL)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        driver, graph = self._stream.driver, c_void_p()
        if kind is None:
            driver.stream_end_capture(self._stream.native, ctypes.byref(graph))
            return
        with suppress(AccelError):  # an aborted capture ends with an error that is less specific than the first
            driver.stream_end_capture(self._stream.native, ctypes.byref(graph))
