"""The engine by measurement, over a stand-in for the driver: templates take the times that a test gives them."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from host_backend import HostSession
from test_cutlass_factors import factors, scaled

import callboard as cb
from callboard.backends.cuda.cutlass import CudaCutlass, nvcc
from callboard.backends.cuda.cutlass.choosing import Candidate, fastest
from callboard.backends.cuda.cutlass.grouped_text import GroupedCall
from callboard.backends.cuda.cutlass.products import gemm
from callboard.backends.cuda.cutlass.templates import Call
from callboard.backends.cuda.cutlass.tilings import SHARED, WIDE, tilings_of_groups
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.dtype import DTYPES
from callboard.core.errors import LibraryError, OutOfMemory
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import Explain, Gemm, GroupedGemm

Tree = cb.EpilogueVisitorTree


class Templates:
    """Templates that do nothing and take a time.

    Attributes:
        took: Milliseconds of a launch by the name of a tiling; only these are compiled. A product by cuBLASLt takes 1,
            a launch with splits as much less.
        refusing: Names of those that fail at their launch.
        launched: The names, in order, with the extents.
        compiled: Those that were not there before.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.took: dict[str, float] = {}
        self.refusing: set[str] = set()
        self.launched: list[tuple[str, tuple[int, ...]]] = []
        self.compiled: list[str] = []

    def name_in(self, text: str) -> str:
        (found,) = {
            str(one)
            for one in (*WIDE, SHARED, *tilings_of_groups(1024, 1, 512), *tilings_of_groups(1, 1, 1))
            if _is(one, text)
        }
        return found

    def is_built(self, text: str, architecture: str) -> bool:
        return self.name_in(text) in self.took

    def built(self, text: str, architecture: str) -> bytes:
        name = self.name_in(text)
        if name not in self.took:
            self.compiled.append(name)
        return f"{'groups' if 'GroupedCall* call' in text else 'one'} {name}".encode()

    def library(self, image: bytes) -> Any:
        kind, _, name = image.decode().partition(" ")
        shape: Any = GroupedCall if kind == "groups" else Call

        def callboard_workspace(call: int) -> int:
            return 64

        def callboard_launch(call: int, scratch: int, stream: int) -> int:
            given = shape.from_address(call)
            extents = (given.rows if kind == "groups" else given.m), given.n, given.k
            self.launched.append((name, extents))
            assert self._driver.on_device(scratch, 64)
            assert all(self._driver.on_device(at, 2) for at in (given.a, given.b, given.out))
            self._driver.streams.add(stream)
            self._driver.clock += self.took.get(name, 1.0) / max(getattr(given, "splits", 0), 1)
            return 5 if name in self.refusing else 0

        return type("Loaded", (), {"callboard_workspace": callboard_workspace, "callboard_launch": callboard_launch})


def _is(tiling: Any, text: str) -> bool:
    size = 2  # bytes of a factor
    tile = f"Shape<cute::Int<{tiling.rows}>, cute::Int<{tiling.columns}>, cute::Int<{tiling.depth // size}>>"
    cluster = f"Cluster = cute::Shape<cute::Int<{tiling.cluster[0]}>, cute::Int<{tiling.cluster[1]}>, cute::_1>"
    return (
        tile in text
        and cluster in text
        and f"KernelTmaWarpSpecialized{tiling.schedule}" in text.replace("PtrArray", "")
    )


@pytest.fixture
def templates(session: HostSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Templates:
    made = Templates(session.driver)
    monkeypatch.setattr(nvcc, "is_built", made.is_built)
    monkeypatch.setattr(nvcc, "built", made.built)
    monkeypatch.setattr(nvcc, "library_of", made.library)
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path))
    return made


@pytest.fixture
def library(session: HostSession, templates: Templates) -> Iterator[CudaCutlass]:
    device: Any = session.device
    stream = device.stream()
    made = CudaCutlass(device, stream)
    yield made
    made.close()
    stream.close()


def array(*shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES["bf16"], shape))


def message(m: int = 256, tree: Any = None, inputs: tuple[Placeholder, ...] = (), **settings: Any) -> Gemm:
    return Gemm(a=array(m, 64), b=array(64, 512), epilogue=tree.nodes if tree else (), inputs=inputs, **settings)


def served(library: CudaCutlass, op: Gemm) -> str:
    plan = gemm(library, op)
    plan.close()
    return str(plan.executed_by)


@pytest.mark.parametrize(
    "took, says",
    [
        ({}, "cublaslt: one launch"),
        ({WIDE[1]: 0.5, WIDE[0]: 0.9}, f"cutlass: one launch, {WIDE[1]}; measured as the fastest of 3 engines"),
        ({WIDE[0]: 0.99, WIDE[2]: 4.0}, "cublaslt: one launch; measured as the fastest of 3 engines"),
    ],
)
def test_what_is_compiled_competes_with_cublaslt(
    library: CudaCutlass, templates: Templates, took: dict[Any, float], says: str
) -> None:
    templates.took = {str(tiling): time for tiling, time in took.items()}
    assert served(library, message()) == says
    assert templates.compiled == []


def test_a_tree_that_cublaslt_lacks_takes_steps_until_a_template_is_compiled(
    library: CudaCutlass, templates: Templates
) -> None:
    op = message(256, Tree().silu().gate("g", None), (array(256, 512),))
    assert "then 1 launches of a generated epilogue" in served(library, op)
    templates.took = {str(WIDE[2]): 0.25}
    assert served(library, op) == f"cutlass: one launch, {WIDE[2]}; measured as the fastest of 2 engines"
    templates.took = {str(WIDE[2]): 2.5}
    assert served(library, op).startswith(f"cutlass: one launch, {WIDE[2]}")  # as it was measured


def test_a_choice_is_kept_for_a_class_of_extents_until_more_is_compiled(
    library: CudaCutlass, templates: Templates
) -> None:
    templates.took = {str(WIDE[0]): 0.5, str(WIDE[1]): 0.25}
    served(library, message())
    templates.launched.clear()
    assert str(WIDE[1]) in served(library, message())
    assert str(WIDE[1]) in served(library, message(m=255 + 128))  # between the same powers of two
    assert templates.launched == []
    templates.took[str(WIDE[2])] = 0.125
    assert str(WIDE[2]) in served(library, message())
    templates.took = {str(WIDE[0]): 0.125, str(WIDE[1]): 0.25, str(WIDE[2]): 0.5}
    assert str(WIDE[0]) in served(library, message(m=1024))


def test_a_template_that_fails_is_passed_over(library: CudaCutlass, templates: Templates) -> None:
    templates.took = {str(WIDE[0]): 0.125, str(WIDE[1]): 0.5}
    templates.refusing = {str(WIDE[0])}
    assert str(WIDE[1]) in served(library, message())


def test_cutlass_compiles_one_template_and_measures_those_that_are_there(
    library: CudaCutlass, templates: Templates
) -> None:
    assert served(library, message(engine="cutlass")) == f"cutlass: one launch, {WIDE[0]}"
    assert templates.compiled == [str(WIDE[0])]
    assert templates.launched == []
    templates.took = {str(WIDE[1]): 3.0, str(WIDE[2]): 2.0}  # slower than cuBLASLt, which was not asked for
    assert served(library, message(engine="cutlass")).startswith(f"cutlass: one launch, {WIDE[2]}")
    assert "cublaslt" in served(library, message(engine="vendor"))


def test_splits_of_one_binary_are_measured(library: CudaCutlass, templates: Templates) -> None:
    op = Gemm(a=array(64, 4096), b=array(4096, 64), engine="cutlass")
    assert served(library, op).startswith(f"cutlass: one launch, {SHARED._replace(splits=4)}")
    assert templates.compiled == [str(SHARED)]
    templates.took = {str(SHARED): 1.0, str(WIDE[0]): 0.5}
    assert served(library, op) == (
        f"cutlass: one launch, {SHARED._replace(splits=4)}; measured as the fastest of 3 engines"
    )
    templates.took = {str(SHARED): 1.0, str(WIDE[0]): 0.5, str(WIDE[1]): 0.125}
    assert served(library, op).startswith(f"cutlass: one launch, {WIDE[1]};")


def test_explain_names_the_engine(library: CudaCutlass, templates: Templates) -> None:
    templates.took = {str(WIDE[1]): 0.5}
    fields = {name: getattr(message(), name) for name in Gemm.__struct_fields__}
    plan = library.prepare(Explain(**fields))
    assert plan(None).answer() == f"cutlass: one launch, {WIDE[1]}; measured as the fastest of 2 engines"


@pytest.mark.parametrize("kind, steps", [("128x128 of b", (132, 4)), ("128x128 of a", (4, 144)), ("one", (0, 0))])
def test_scales_reach_the_template(
    session: HostSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, kind: str, steps: tuple[int, int]
) -> None:
    launched: list[tuple[Any, ...]] = []

    def callboard_launch(call: int, scratch: int, stream: int) -> int:
        given = Call.from_address(call)
        launched.append((given.scale_a, given.scale_b, given.scale_a_step, given.scale_b_step))
        session.driver.streams.add(stream)
        session.driver.clock += 1
        return 0

    loaded = type("Loaded", (), {"callboard_workspace": lambda call: 64, "callboard_launch": callboard_launch})
    for name, stand_in in (("is_built", lambda *_: True), ("built", lambda *_: b""), ("library_of", lambda _: loaded)):
        monkeypatch.setattr(nvcc, name, stand_in)
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path))
    _, _, fields = factors(session, 132, 144, 272)
    _, _, scales = scaled(session, kind, 132, 144, 272)
    session.submit(Gemm(**fields, **scales, engine="cutlass"))
    *addresses, a_step, b_step = launched[-1]
    assert (a_step, b_step) == steps
    assert [bool(at) for at in addresses] == [True, kind != "one"]
    assert all(at is None or session.driver.on_device(at) for at in addresses)


def test_groups_are_measured_with_groups_of_different_sizes(library: CudaCutlass, templates: Templates) -> None:
    many = tilings_of_groups(1024, 2, 512)
    templates.took = {str(many[0]): 2.0, str(many[1]): 1.0}
    op = GroupedGemm(a=array(1024, 64), b=array(2, 64, 512), offsets=Placeholder(layout_of(DTYPES["i32"], (3,))))
    plan = library.prepare(op)
    assert plan.executed_by.endswith(f"{many[1]}; measured as the fastest of 2 engines")
    assert {extents for _, extents in templates.launched} == {(1024, 512, 64)}
    plan.close()


def test_groups_with_arrays_are_measured_in_one_launch_and_in_steps(library: CudaCutlass, templates: Templates) -> None:
    """The plain kernel is no candidate: it would take seconds where a template takes a millisecond."""
    many = tilings_of_groups(1024, 2, 512)
    factors = {"a": array(1024, 64), "b": array(2, 64, 512), "offsets": Placeholder(layout_of(DTYPES["i32"], (3,)))}
    op = GroupedGemm(**factors, epilogue=Tree().bias().nodes, inputs=(array(2, 512),))
    assert served_groups(library, op).startswith("custom kernel: the grouped product, then 1 launches")
    templates.took = {str(many[0]): 2.0, str(many[1]): 1.0}
    says = f"cutlass: the grouped product and its epilogue, {many[1]}; measured as the fastest of 4 engines"
    assert served_groups(library, op) == says
    assert "custom kernel" in served_groups(library, msgspec.structs.replace(op, engine="vendor"))
    gaps = Placeholder(layout_of(DTYPES["bf16"], (2, 512), (1024, 2)))
    told = served_groups(library, msgspec.structs.replace(op, inputs=(gaps,)))
    assert told.startswith(f"cutlass: the grouped product, {many[1]}, then 1 launches of a generated epilogue")
    assert told.endswith("measured as the fastest of 2 engines")


def served_groups(library: CudaCutlass, op: GroupedGemm) -> str:
    plan = library.prepare(op)
    plan.close()
    return str(plan.executed_by)


def test_without_memory_for_operands_the_first_serves_and_nothing_is_kept(
    session: HostSession, library: CudaCutlass, templates: Templates, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates.took = {str(WIDE[1]): 0.5}
    with monkeypatch.context() as patch:

        def full(nbytes: int) -> Any:
            raise OutOfMemory(f"{nbytes} bytes")

        patch.setattr(session.device, "allocate", full)
        op = message()
        candidates = [Candidate("first", lambda own: None), Candidate("second", lambda own: None)]
        found = fastest(library, op, op.problem(), candidates)
        assert found == (0, "; not measured for lack of memory")
    assert str(WIDE[1]) in served(library, message())


def test_a_measurement_leaves_nothing_behind(session: HostSession, library: CudaCutlass, tmp_path: Any) -> None:
    class Refused:
        closed = 0

        def __call__(self, stream: Any, *operands: Any) -> None:
            raise LibraryError("no", "cutlass", 1)

        def close(self) -> None:
            Refused.closed += 1

    op, cache = message(), KernelCache(tmp_path / "choices")
    served(library, op)  # cuBLASLt's handle and workspace are there
    used = set(session.driver.blocks)
    candidates = [Candidate(key, lambda own: Refused()) for key in "ab"]
    assert fastest(library, op, op.problem(), candidates, cache)[0] == 0
    assert Refused.closed == 2
    assert set(session.driver.blocks) == used
