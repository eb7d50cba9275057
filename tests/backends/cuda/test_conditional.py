"""Conditional nodes: the order of driver calls, and cleanup after a failure."""

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_longlong, c_uint, c_ulonglong, c_void_p
from typing import Any

import pytest

from callboard.backends.cuda import conditional
from callboard.backends.cuda.conditional import CudaConditionals, NodeParams
from callboard.backends.cuda.driver import Driver
from callboard.backends.cuda.stream import CudaStream
from callboard.core.backend import AccelStream
from callboard.core.errors import DriverError, UnsupportedOp
from callboard.kernel.conditional import Conditional

CONTEXT, HANDLE, GRAPH, NODE = 77, 500, 600, 700
TYPES = c_ulonglong, c_void_p, c_int, c_ulonglong, c_uint, c_void_p, c_longlong, c_int


class Library:
    """A driver that notes its calls."""

    def __init__(self, version: int = 13000, status: int = 1) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.version = version
        self.status = status
        self.bodies = (c_void_p * 3)(901, 902, 903)
        self._functions: dict[str, Any] = {}
        self.handlers: dict[str, Callable[..., tuple[Any, ...]]] = {
            "cuDriverGetVersion": self.version_of,
            "cuStreamGetCaptureInfo_v3": self.captured,
            "cuGraphConditionalHandleCreate": self.handle,
            "cuGraphAddNode_v2": self.node,
            "cuStreamUpdateCaptureDependencies_v2": self.after,
            "cuLaunchKernel": self.launched,
            "cuStreamEndCapture": self.ended,
        }

    def __getattr__(self, name: str) -> Any:
        if name == "cuGetErrorString":
            raise AttributeError(name)
        return self._functions.setdefault(name, self._function(name))

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            handler = self.handlers.get(name)
            noted = handler(*arguments) if handler else arguments
            self.calls.append((name, *noted))
            errcheck: Any = getattr(call, "errcheck", None)
            return int(errcheck(0, call, arguments)) if errcheck else 0

        return call

    def version_of(self, out: Any) -> tuple[Any, ...]:
        out._obj.value = self.version
        return ()

    def captured(self, stream: int, status: Any, *outs: Any) -> tuple[Any, ...]:
        status._obj.value = self.status
        _, graph, nodes, _, count = outs
        graph._obj.value, nodes._obj.value, count._obj.value = GRAPH, 650, 1
        return (stream,)

    def handle(self, out: Any, *rest: Any) -> tuple[Any, ...]:
        out._obj.value = HANDLE
        return rest

    def node(self, out: Any, graph: int, nodes: Any, edges: Any, count: int, params: Any) -> tuple[Any, ...]:
        out._obj.value = NODE
        node = params._obj
        node.bodies = ctypes.cast(self.bodies, ctypes.POINTER(c_void_p))
        return graph, nodes.value, edges.value, count, (node.type, node.handle, node.kind, node.size, node.context)

    def after(self, stream: int, nodes: Any, *rest: Any) -> tuple[Any, ...]:
        return stream, list(nodes), *rest

    def launched(self, function: int, *rest: Any) -> tuple[Any, ...]:
        *sizes, stream, params, _ = rest
        values = [kind.from_address(params[at]).value for at, kind in enumerate(TYPES)]
        return function, sizes, stream, values

    def ended(self, stream: int, out: Any) -> tuple[Any, ...]:
        return (stream,)


class Kernels:
    def get(self, source: str, name: str) -> int:
        assert (source, name) == ("graph", "condition")
        return 321


class Device:
    def __init__(self, library: Library) -> None:
        self.driver = Driver(library)
        self.kernels = Kernels()


def opened(library: Library, *kinds: str) -> tuple[CudaConditionals, CudaStream, CudaStream]:
    device: Any = Device(library)
    made = CudaConditionals(device, CONTEXT)
    made.open(frozenset(kinds))
    library.calls.clear()
    return made, CudaStream(device.driver, 0, 0, native=10), CudaStream(device.driver, 1, 0, native=20)


def test_a_loop_sets_its_condition_before_and_after_each_turn() -> None:
    library = Library()
    nodes, stream, inner = opened(library, "while")

    def body(on: AccelStream) -> None:
        assert on is inner
        library.calls.append(("body",))

    nodes.record(stream, inner, Conditional("while", 4096, "f32", turns=8192, most=9), [body])
    info = ("cuStreamGetCaptureInfo_v3", 10)
    value = [HANDLE, 4096, 4, 0x7FFF_FFFF, 0, 8192, 9]
    assert library.calls == [
        info,
        ("cuGraphConditionalHandleCreate", GRAPH, CONTEXT, 0, 0),
        ("cuLaunchKernel", 321, [1, 1, 1, 1, 1, 1, 0], 10, [*value, 0]),
        info,
        ("cuGraphAddNode_v2", GRAPH, 650, None, 1, (13, HANDLE, 1, 1, CONTEXT)),
        ("cuStreamUpdateCaptureDependencies_v2", 10, [NODE], None, 1, 1),
        ("cuStreamBeginCaptureToGraph", 20, 901, None, None, 0, 1),
        ("body",),
        ("cuLaunchKernel", 321, [1, 1, 1, 1, 1, 1, 0], 20, [*value, 1]),
        ("cuStreamEndCapture", 20),
    ]


@pytest.mark.parametrize("kind, bodies, dtype, mask, count", [
    ("if", 1, "bool", 0xFF, 0),
    ("if", 2, "f64", (1 << 63) - 1, 0),
    ("switch", 3, "i64", (1 << 64) - 1, 3),
    ("switch", 2, "i8", 0xFF, 2),
])  # fmt: skip
def test_each_body_goes_into_its_graph(kind: str, bodies: int, dtype: str, mask: int, count: int) -> None:
    library = Library()
    nodes, stream, inner = opened(library, kind)
    nodes.record(stream, inner, Conditional(kind, 64, dtype), [lambda _: None] * bodies)
    began = [call[2] for call in library.calls if call[0] == "cuStreamBeginCaptureToGraph"]
    assert began == [901, 902, 903][:bodies]
    empty = [call[2] for call in library.calls if call[0] == "cuGraphAddEmptyNode"]
    assert empty == (began if kind == "switch" else []), "a case may be without work"
    (launch,) = (call for call in library.calls if call[0] == "cuLaunchKernel")
    assert launch[-1][3:5] == [mask, count]
    (added,) = (call for call in library.calls if call[0] == "cuGraphAddNode_v2")
    assert added[-1][2:4] == (conditional.KINDS[kind], bodies)


def test_a_failure_in_a_body_ends_its_capture() -> None:
    library = Library()
    nodes, stream, inner = opened(library, "if")

    def refused(_: AccelStream) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        nodes.record(stream, inner, Conditional("if", 64, "u8"), [refused])
    assert library.calls[-1] == ("cuStreamEndCapture", 20)


def test_a_capture_that_was_broken_off_is_tried_again() -> None:
    """As an error of the driver: the one that a capture is repeated for."""
    library = Library(status=2)
    nodes, stream, inner = opened(library, "if")
    with pytest.raises(DriverError, match="another thread"):
        nodes.record(stream, inner, Conditional("if", 64, "u8"), [lambda _: None])


def test_older_drivers_have_no_such_nodes() -> None:
    with pytest.raises(UnsupportedOp, match=r"while in a recording: this driver \(CUDA 12.2\)"):
        opened(Library(version=12020), "while")
    opened(Library(version=12040), "while", "if")
    with pytest.raises(UnsupportedOp, match=r"else in a recording: this driver \(CUDA 12.6\)"):
        opened(Library(version=12060), "else", "if")
    opened(Library(version=12080), "else", "switch")


def test_the_structure_is_as_large_as_the_drivers() -> None:
    assert ctypes.sizeof(NodeParams) == 256
    assert (NodeParams.handle.offset, NodeParams.bodies.offset, NodeParams.context.offset) == (16, 32, 40)
