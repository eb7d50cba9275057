"""Engine choice for a graph, and the cache over restarts, on a stand-in for the frontend with a few engines."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from host_driver import HostDriver

from callboard.backends.cuda.device import CudaDevice
from callboard.backends.cuda.dnn import timing
from callboard.backends.cuda.dnn.frontend import Frontend, GraphBuilder
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.backends.cuda.workspace import Workspace
from callboard.core.dtype import DTYPES
from callboard.core.errors import OutOfMemory, UnsupportedOp
from callboard.core.layout import layout_of

LAYOUT = layout_of(DTYPES["f16"], (4, 8))
FIRST, ROUNDS, UNORDERED, FAST, BROKEN, LARGE, FAILING, ONLY_HERE = range(8)


class Engine(NamedTuple):
    """What cuDNN has for every graph here: its notes, milliseconds that it takes, and bytes that it works in."""

    notes: tuple[str, ...]
    time: float = 3.0
    workspace: int = 0


ENGINES = (
    Engine(("TENSOR_CORE",)),
    Engine(("FFT",), 0.1),
    Engine(("NONDETERMINISTIC", "TENSOR_CORE"), 2.0),
    Engine((), 1.0),
    Engine(("TENSOR_CORE",), 0.2),  # it cannot be made after all
    Engine((), 0.1, 3 << 30),
    Engine(()),  # it fails whenever it is executed
    Engine((), 0.5, 8 << 20),
)


class Named:
    def __getattr__(self, name: str) -> str:
        return name


class Module:
    """In place of the package.

    Attributes:
        executed: Engines, in the order of executions.
        described: Graphs whose engines were asked for.
    """

    __version__ = "1.32.0"
    data_type = numerical_note = heur_mode = build_plan_policy = Named()

    def __init__(self, driver: HostDriver, order: tuple[int, ...] = (FIRST, ROUNDS, UNORDERED, FAST, LARGE)) -> None:
        self.driver, self.order = driver, order
        self.executed: list[int] = []
        self.described = 0
        self._pybind_module = SimpleNamespace(backend_graph=lambda **told: Graph(self))


class Tensor:
    def __getattr__(self, name: str) -> Any:
        return lambda value: self


class Graph:
    """A graph of the frontend."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._engines: list[int] = []
        self._chosen = -1

    def _make_tensor(self, **told: Any) -> Tensor:
        return Tensor()

    def relu(self, x: Tensor) -> Tensor:
        return Tensor()

    def validate(self) -> None: ...

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: Any) -> None:
        self._module.described += 1
        self._engines = list(self._module.order)

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        self._engines = [i for i in self._engines if not set(ENGINES[i].notes) & set(notes)]

    def deselect_workspace_greater_than(self, most: int) -> None:
        self._engines = [i for i in self._engines if ENGINES[i].workspace <= most]

    def check_support(self) -> None:
        if not self._engines:
            raise RuntimeError("NOT_SUPPORTED: Deselecting execution plan")

    def build_plans(self, policy: Any) -> None:
        self._chosen = self._engines[0]

    def get_execution_plan_count(self) -> int:
        return len(self._engines)

    def build_plan_at_index(self, index: int) -> None:
        if self._engines[index] == BROKEN:
            raise RuntimeError("NOT_SUPPORTED: not here")
        self._chosen = self._engines[index]

    def get_plan_name_at_index(self, index: int) -> str:
        return f"engine {self._engines[index]}"

    def serialize(self, as_bytes: bool) -> bytes:
        if self._chosen == ONLY_HERE:
            raise RuntimeError("NOT_SUPPORTED: it has no form for the disk")
        return str(self._chosen).encode()

    def deserialize(self, handle: int, content: bytes) -> None:
        self._chosen = int(content)  # ValueError where another version has written it

    def _prepare_variant_pack_template(self) -> None: ...

    def _get_variant_pack_uids_sorted(self) -> list[int]:
        return [1, 2]

    def get_workspace_size(self) -> int:
        return ENGINES[self._chosen].workspace

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return ENGINES[self._engines[index]].workspace

    def _execute_with_raw_ptrs(self, at: int, count: int, workspace: int, handle: int, index: int) -> None:
        engine = self._chosen if index < 0 else self._engines[index]
        if engine == FAILING:
            raise RuntimeError("EXECUTION_FAILED: not now")
        self._module.executed.append(engine)
        self._module.driver.clock += ENGINES[engine].time


@pytest.fixture
def frontend(driver: HostDriver, device: CudaDevice, tmp_path: Path) -> Callable[[Module], Frontend]:
    """A frontend as a process has it that was just started; all share a folder."""
    cudnn: Any = SimpleNamespace(preparing=1, version=91900, on=lambda stream: 2, preparing_on=lambda stream: 3)
    return lambda module: Frontend(device, cudnn, Workspace(device), module, KernelCache(tmp_path))


def describe(g: GraphBuilder) -> None:
    g.output(g.raw.relu(g.input(LAYOUT)), LAYOUT)


def executed(frontend: Frontend, device: CudaDevice, key: bytes = b"a graph", **policy: Any) -> int:
    """The engine that executes a graph."""
    plan = frontend.plan(describe, key, "dnn.fused", **policy)
    plan(device.stream(), 16, 32)
    plan.close()
    found: int = frontend.module.executed[-1]
    return found


def test_heuristics_choose_among_the_engines_that_are_allowed(frontend: Any, driver: HostDriver, device: Any) -> None:
    there = frontend(Module(driver, (ROUNDS, LARGE, UNORDERED, FIRST, FAST)))
    assert executed(there, device) == UNORDERED  # those before it round, or work in too much memory
    assert executed(there, device, deterministic=True) == FIRST
    assert executed(there, device, tensor_cores=False) == FAST
    with pytest.raises(UnsupportedOp, match=r"dnn\.fused: the engines that it has round factors or sums"):
        frontend(Module(driver, (ROUNDS, LARGE))).plan(describe, b"another", "dnn.fused")


def test_the_fastest_of_those_that_work_is_taken_where_they_are_timed(
    frontend: Any, driver: HostDriver, device: Any
) -> None:
    module = Module(driver, (FIRST, ROUNDS, BROKEN, UNORDERED, FAST))
    assert executed(frontend(module), device, autotune=True) == FAST
    assert set(module.executed) == {FIRST, UNORDERED, FAST}
    assert executed(frontend(Module(driver, (FIRST,))), device, b"one", autotune=True) == FIRST
    with pytest.raises(UnsupportedOp, match=r"has no engine for it: NOT_SUPPORTED: not here"):
        frontend(Module(driver, (BROKEN,))).plan(describe, b"none", "dnn.fused", autotune=True)


def test_an_engine_that_cannot_be_made_or_does_not_run_is_passed_over(
    frontend: Any, driver: HostDriver, device: Any
) -> None:
    there = frontend(Module(driver, (BROKEN, FAILING, UNORDERED, FIRST)))
    assert executed(there, device, autotune=True) == UNORDERED
    with pytest.raises(UnsupportedOp, match=r"dnn\.fused: cuDNN has no engine that runs: dnn\.fused: EXECUTION_FAILED"):
        frontend(Module(driver, (FAILING, BROKEN, FAILING))).plan(describe, b"fails", "dnn.fused", autotune=True)


def test_a_timed_engine_is_alone_in_its_plan_where_it_has_a_form_for_the_disk(
    frontend: Any, driver: HostDriver, device: Any, tmp_path: Path
) -> None:
    """The graph of all engines, whose code stays loaded with it, goes; what the others worked in, too."""
    plan = frontend(Module(driver, (FIRST, FAST))).plan(describe, b"a graph", "dnn.fused", autotune=True)
    assert not plan.raw._engines
    there = frontend(Module(driver, (FIRST, ONLY_HERE)))
    plan = there.plan(describe, b"b graph", "dnn.fused", autotune=True)
    assert len(plan.raw._engines) == 2
    assert plan.workspace == 8 << 20
    plan(device.stream(), 16, 32)
    assert there.module.executed[-1] == ONLY_HERE


def test_the_first_is_taken_where_there_is_no_room_to_time_them(
    frontend: Any, driver: HostDriver, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = frontend(Module(driver, (BROKEN, UNORDERED, FAST)))

    def no_room(nbytes: int) -> Any:
        raise OutOfMemory("no room")

    with monkeypatch.context() as patch:
        patch.setattr(device, "allocate", no_room)
        index = timing.fastest(there, described(there), "dnn.fused", 10)
    assert index == 1
    assert not there.module.executed


def described(frontend: Frontend) -> GraphBuilder:
    g = GraphBuilder(frontend.module, Graph(frontend.module))
    describe(g)
    g.raw.create_execution_plans([])
    return g


def test_a_plan_is_kept_over_restarts_under_all_that_it_depends_on(
    frontend: Any, driver: HostDriver, device: Any
) -> None:
    assert executed(frontend(Module(driver, (FIRST, FAST))), device, autotune=True) == FAST
    later = Module(driver, (FIRST,))
    assert executed(frontend(later), device, autotune=True) == FAST
    assert later.described == 0
    for count, (key, policy) in enumerate([(b"a graph", {}), (b"b graph", {"autotune": True})], 1):
        assert executed(frontend(later), device, key, **policy) == FIRST
        assert later.described == count
    newer = Module(driver, (FIRST,))
    newer.__version__ = "1.33.0"
    assert executed(frontend(newer), device, autotune=True) == FIRST


def test_a_plan_that_cannot_be_read_is_made_again(
    frontend: Any, driver: HostDriver, device: Any, tmp_path: Path
) -> None:
    assert executed(frontend(Module(driver)), device) == FIRST
    (kept,) = tmp_path.iterdir()
    KernelCache(tmp_path).keep(kept.name, b"what another driver wrote")
    later = Module(driver, (UNORDERED,))
    assert executed(frontend(later), device) == UNORDERED
    assert later.described == 1


def test_operands_that_engines_cannot_load_are_refused(frontend: Any, driver: HostDriver, device: Any) -> None:
    plan = frontend(Module(driver)).plan(describe, b"a graph", "dnn.fused")
    with pytest.raises(UnsupportedOp, match="an operand does not start at a multiple of 16 bytes"):
        plan(device.stream(), 16, 40)
