"""Recording: cleanup after any failure. The suites on a GPU show that recordings run."""

from typing import Any

import pytest

from callboard.backends.cuda.driver import Driver
from callboard.backends.cuda.graph import CudaGraph, GreenContext, capture
from callboard.core.errors import DriverError

GIVES = (
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuDevResourceGenerateDesc",
    "cuGreenCtxCreate",
    "cuGreenCtxStreamCreate",
)
NODES, KERNEL = "cuGraphGetNodes", "cuGraphKernelNodeGetParams_v2"


class Library:
    """A driver that notes its calls; ``answers`` are statuses by symbol."""

    def __init__(self, handle: int = 7, **answers: int) -> None:
        self.handle = handle
        self.calls: list[str] = []
        self._answers = answers
        self._functions: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "cuGetErrorString":
            raise AttributeError(name)
        return self._functions.setdefault(name, self._function(name))

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            status = self._answers.get(name, 0)
            if name in GIVES and not status:
                arguments[name == "cuStreamEndCapture"]._obj.value = self.handle
            elif name == NODES:  # a kernel and a memory set
                arguments[2]._obj.value = 2
                if arguments[1] is not None:
                    arguments[1][:] = [1, 2]
            elif name == "cuGraphNodeGetType":
                arguments[1]._obj.value = 0 if arguments[0] == 1 else 2
            elif name == KERNEL:
                params = arguments[1]._obj
                params.kernel, params.grid, params.block = 9, (4, 2, 1), (128, 1, 1)
            elif name == "cuKernelGetName":
                arguments[0]._obj.value = b"gemm_256"
            errcheck: Any = getattr(call, "errcheck", None)
            return int(errcheck(status, call, arguments)) if errcheck else status

        return call


def test_a_recording_is_instantiated_and_its_source_given_back() -> None:
    library = Library()
    graph = capture(Driver(library), 1, lambda: library.calls.append("enqueued"))
    assert library.calls == [
        "cuStreamBeginCapture_v2",
        "enqueued",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphDestroy",
    ]
    graph.close()
    graph.close()
    assert library.calls[5:] == ["cuGraphExecDestroy"]


def test_a_failure_inside_ends_the_recording() -> None:
    """The stream must not stay in capture, and the first error is the one that is told."""

    def refused() -> None:
        raise ValueError("no")

    for ends in (0, 901):  # with a graph, or invalidated
        library = Library(cuStreamEndCapture=ends)
        with pytest.raises(ValueError, match="no"):
            capture(Driver(library), 1, refused)
        ended = ["cuStreamBeginCapture_v2", "cuStreamEndCapture"]
        assert library.calls == (ended if ends else [*ended, "cuGraphDestroy"])


def test_what_cannot_be_recorded_is_an_error() -> None:
    library = Library(cuStreamEndCapture=901)
    with pytest.raises(DriverError, match="901"):
        capture(Driver(library), 1, lambda: None)
    library = Library(handle=0)
    with pytest.raises(DriverError, match="901"):
        capture(Driver(library), 1, lambda: None)
    assert library.calls[-1] == "cuStreamEndCapture"
    library = Library(cuGraphInstantiateWithFlags=1)
    with pytest.raises(DriverError):
        capture(Driver(library), 1, lambda: None)
    assert library.calls[-1] == "cuGraphDestroy"


def kept(library: Library) -> tuple[CudaGraph, Driver]:
    driver = Driver(library)
    graph = capture(driver, 1, lambda: None, describes=True)
    library.calls.clear()
    return graph, driver


def test_a_graph_takes_another_recording() -> None:
    """What it was made of is given back, and what it is made of now stays."""
    library = Library()
    graph, driver = kept(library)
    library.handle = 8
    assert capture(driver, 1, lambda: None, into=graph, describes=True) is graph
    ended = ["cuStreamBeginCapture_v2", "cuStreamEndCapture"]
    assert library.calls == [*ended, "cuGraphExecUpdate_v2", "cuGraphDestroy"]
    graph.close()
    assert library.calls[4:] == ["cuGraphExecDestroy", "cuGraphDestroy"]


def test_a_graph_of_other_nodes_is_made_anew() -> None:
    library = Library(cuGraphExecUpdate_v2=910)
    graph, driver = kept(library)
    other = capture(driver, 1, lambda: None, into=graph, describes=True)
    assert other is not graph
    assert library.calls[2:] == ["cuGraphExecUpdate_v2", "cuGraphInstantiateWithFlags"]
    library = Library(cuGraphExecUpdate_v2=1)
    graph, driver = kept(library)
    with pytest.raises(DriverError, match="cuGraphExecUpdate"):
        capture(driver, 1, lambda: None, into=graph)
    assert library.calls[-1] == "cuGraphDestroy", "the recording that was not taken"


def test_a_graph_tells_its_nodes() -> None:
    graph, _ = kept(Library())
    assert graph.describe() == ["gemm_256 (4, 2, 1) x (128, 1, 1)", "memory set"]
    graph.close()
    assert graph.describe() == []
    plain = capture(Driver(Library()), 1, lambda: None)
    assert plain.describe() == []


def test_a_context_to_record_in_is_made_of_all_of_the_device() -> None:
    library = Library()
    green = GreenContext(Driver(library), 0)
    assert green.stream() == 7
    green.close()
    green.close()
    assert library.calls == [
        "cuDeviceGetDevResource",
        "cuDevResourceGenerateDesc",
        "cuGreenCtxCreate",
        "cuGreenCtxStreamCreate",
        "cuGreenCtxDestroy",
    ]


def test_a_device_that_cannot_be_recorded_on_says_so() -> None:
    with pytest.raises(DriverError):
        GreenContext(Driver(Library(cuGreenCtxCreate=801)), 0)
