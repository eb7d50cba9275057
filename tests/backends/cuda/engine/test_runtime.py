"""ONNX Runtime on CUDA over stand-ins for it and for the driver: streams, addresses, sessions, errors, the choice."""

import gc
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_backend import HostCudaBackend, HostSession
from host_driver import HostDriver
from host_onnxruntime import HostOnnxRuntime
from tests.kernel.engine.models import B, W, linear, linear_of, model, node

import callboard as cb
from callboard.backends.cuda.engine import sessions
from callboard.backends.cuda.engine.failing import execution_error
from callboard.backends.cuda.engine.sessions import Sessions
from callboard.core import registry
from callboard.kernel.engine import Build, EngineSpec, Execute, Release
from callboard.kernel.engine.plan import EngineRefused
from callboard.serve.bundled.onnx import RunOptions, opened

X = np.random.default_rng(7).standard_normal((5, 4)).astype("f4")
SPEC = EngineSpec("net", "digest", 0, ("x",), ("y",), (("f32", (5, 3)),))
SAMPLED = model(
    [node("GridSample", ["x", "g"], ["y"])],
    {"x": ("f32", [1, 1, 4, 4]), "g": ("f32", [1, 2, 3, 2])},
    {"y": ("f32", [1, 1, 2, 3])},
)


@pytest.fixture
def runtime(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> HostOnnxRuntime:
    stand_in = HostOnnxRuntime(driver)
    monkeypatch.setitem(sys.modules, "onnxruntime", stand_in)
    return stand_in


@pytest.fixture
async def dev(driver: HostDriver, binding: Any, runtime: HostOnnxRuntime) -> AsyncIterator[Any]:
    undo = registry.register("cuda", HostCudaBackend(driver))
    try:
        async with cb.device("cuda", isolation="thread", standby=None) as device:
            yield device
    finally:
        undo()


def executed(session: HostSession, spec: EngineSpec = SPEC, data: bytes = linear(), **arrays: Any) -> Any:
    found = [session.put(array) for array in (arrays or {"x": X}).values()]
    return Execute(model=session.put(np.frombuffer(data, np.uint8)), spec=spec, ins=tuple(found))


# -- single messages ---------------------------------------------------------------------------------------------------


def test_it_enqueues_on_the_stream_that_it_is_given_and_reads_and_writes_refs(
    session: HostSession, runtime: HostOnnxRuntime
) -> None:
    op = executed(session)
    (y,) = session.submit(op)  # on another stream than its library's, which fails where anything else is used
    np.testing.assert_allclose(session.get(y), linear_of(X), rtol=1e-5)
    assert runtime.bound == [("x", op.ins[0].address), ("y", y.address)]
    (options,) = runtime.opened
    assert options["user_compute_stream"] in {str(stream.native) for stream in session.streams}
    assert options["device_id"] == "0"
    assert options["gpu_mem_limit"] == str((1 << 34) // 2)
    assert options["arena_extend_strategy"] == "kSameAsRequested"
    assert options["use_tf32"] == "0"
    assert runtime.ran[0]["disable_synchronize_execution_providers"] == "1"


def test_the_host_waits_for_nothing(session: HostSession, runtime: HostOnnxRuntime, driver: HostDriver) -> None:
    op = executed(session)
    op = Execute(model=op.model, spec=SPEC, ins=op.ins, outs=(session.empty((5, 3)),))
    session.launch_only(op)  # opens a session for each stream, and reads the model for it
    before = driver.waits
    session.launch_only(op)
    assert driver.waits == before + 2  # the test's own, for two launches
    assert len(runtime.opened) == 2


def test_what_has_not_moved_is_not_bound_again(session: HostSession, runtime: HostOnnxRuntime) -> None:
    op = executed(session)
    out = (session.empty((5, 3)),)
    for _ in range(4):
        session.submit(Execute(model=op.model, spec=SPEC, ins=op.ins, outs=out))
    assert len(runtime.bound) == 4  # x and y, in the session of each stream
    other = session.put(2 * X)
    for _ in range(2):
        session.submit(Execute(model=op.model, spec=SPEC, ins=(other,), outs=out))
    assert runtime.bound[4:] == [("x", other.address)] * 2
    np.testing.assert_allclose(session.get(out[0]), linear_of(2 * X), rtol=1e-5)


def test_outputs_that_only_it_knows_are_copied(session: HostSession, runtime: HostOnnxRuntime) -> None:
    data = model([node("NonZero", ["x"], ["y"])], {"x": ("f32", [4])}, {"y": ("i64", [1, "found"])})
    spec = EngineSpec("net", "nonzero", 0, ("x",), ("y",), (("i64", (1, -1)),))
    for array, want in (([0, 3, 0, 4], [[1, 3]]), ([0, 0, 0, 0], [[]])):
        (y,) = session.submit(executed(session, spec, data, x=np.array(array, "f4")))
        assert session.get(y).tolist() == want


def test_a_session_is_closed_by_its_name_alone(
    session: HostSession, runtime: HostOnnxRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at, spec in enumerate((SPEC, EngineSpec("net", "other", 0, *list(_rest(SPEC))))):
        session.submit(executed(session, spec))
        assert len(runtime.opened) == at + 1
    session.submit(Release(spec=SPEC))
    assert runtime.ended == 1
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 1)
    session.submit(executed(session, EngineSpec("net", "third", 0, *list(_rest(SPEC)))))
    assert runtime.ended == 2


def _rest(spec: EngineSpec) -> Iterator[Any]:
    yield from (spec.inputs, spec.outputs, spec.layouts)


def test_sessions_of_a_dead_context_are_left_alone(driver: HostDriver, runtime: HostOnnxRuntime) -> None:
    """ONNX Runtime would call the driver while it destroys them."""
    with HostSession(driver) as session:
        session.submit(executed(session))
        driver.statuses["ctx_synchronize"] = 700
        library = session._libraries.pop("engine")
        library.close()
        driver.statuses.clear()
    del session, library
    gc.collect()
    assert runtime.ended == 0


def test_a_session_that_gives_way_in_a_dead_context_is_left_alone(
    runtime: HostOnnxRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 1)
    for alive in (False, True):
        runtime.ended = 0
        kept = Sessions(runtime, 0, 1 << 20, lambda alive=alive: alive)
        for digest in "ab":
            kept.of(EngineSpec("net", digest), 1, linear)
        assert runtime.ended == int(alive)


def test_a_living_context_closes_them(driver: HostDriver, runtime: HostOnnxRuntime) -> None:
    with HostSession(driver) as session:
        session.submit(executed(session))
    assert runtime.ended == 1


def test_builds_without_cuda_are_refused_with_the_cure(session: HostSession, runtime: HostOnnxRuntime) -> None:
    runtime.built_for_cuda = False
    with pytest.raises(cb.BackendUnavailable, match=r"1\.31\.1 is a build without CUDA; .*callboard\[onnx-cuda13\]"):
        session.submit(executed(session))
    runtime.built_for_cuda, runtime.loads = True, False
    with pytest.raises(cb.BackendUnavailable, match=r"CUDA provider .* cannot be loaded: /nowhere.*cuDNN 9: pip"):
        session.submit(executed(session))


def test_it_is_missing(session: HostSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(cb.BackendUnavailable, match=r"not installed; install its CUDA build: .*onnx-cuda13"):
        session.submit(Build(model=session.put(np.frombuffer(linear(), np.uint8)), spec=SPEC))


@pytest.mark.parametrize(
    "said, kind, words",
    [
        ("CUDA failure 700: an illegal memory access was encountered ; GPU=0", cb.ContextPoisoned, "ILLEGAL_ADDRESS"),
        ("CUDA failure 2: out of memory ; GPU=0", cb.OutOfMemory, "at most 1,000 bytes"),
        ("Failed to allocate memory for requested buffer of size 9", cb.OutOfMemory, "at most 1,000 bytes"),
        ("CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED", cb.LibraryError, "EXECUTION_FAILED"),
        (
            "Non-zero status code returned while running Reshape node. Name:'r' Status Message: no such shape",
            cb.ShapeError,
            r"node Reshape \(r\): no such shape; pass other values or another shape of the input 'x'",
        ),
    ],
)
def test_what_it_says_of_failures(said: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        raise execution_error(RuntimeError(said), "net", ["x"], 1000)


def test_a_session_without_memory(runtime: HostOnnxRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("CUDA failure 2: out of memory ; GPU=0")

    monkeypatch.setattr(runtime, "InferenceSession", full)
    with pytest.raises(cb.OutOfMemory, match=r"engine\.build\(net\): ONNX Runtime finds no memory"):
        Sessions(runtime, 0, 1 << 20, lambda: True).of(SPEC, 1, linear)


def test_a_failed_execution_binds_anew(session: HostSession, runtime: HostOnnxRuntime) -> None:
    op = executed(session)
    runtime.raises = RuntimeError("CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED")
    with pytest.raises(cb.LibraryError):
        session.submit(op)
    runtime.raises = None
    np.testing.assert_allclose(session.get(session.submit(op)[0]), linear_of(X), rtol=1e-5)


def test_other_precisions_have_other_sessions(runtime: HostOnnxRuntime) -> None:
    kept = Sessions(runtime, 0, 1 << 20, lambda: True)
    for tf32 in (False, True, False):
        kept.of(EngineSpec("net", "digest", tf32=tf32), 1, linear)
    assert [options["use_tf32"] for options in runtime.opened] == ["0", "1"]
    kept.close()
    assert runtime.ended == 2


# -- a device ----------------------------------------------------------------------------------------------------------


async def test_a_model_by_name(dev: Any, runtime: HostOnnxRuntime, driver: HostDriver) -> None:
    plan = await dev.engine.build(linear(), engine="onnxruntime", refit=True)
    assert (plan.engine, plan.version, plan.device) == ("onnxruntime", "1.31.1", "cuda 9.0")
    context = dev.engine.context(plan)
    for factor in (1, 2, 3):
        np.testing.assert_allclose(await context(x=factor * X).get(), linear_of(factor * X), rtol=1e-5)
    plan.refit({"w": 2 * W, "b": B + 1})
    np.testing.assert_allclose(await context(x=X).get(), linear_of(X, 2 * W, B + 1), rtol=1e-5)
    assert len(runtime.opened) == 1
    loaded = await dev.engine.load(plan.serialize())
    np.testing.assert_allclose(await dev.engine.context(loaded)(x=X).get(), linear_of(X, 2 * W, B + 1), rtol=1e-5)
    plan.device = "cuda 8.0"
    with pytest.raises(EngineRefused, match=r"for device 'cuda 8\.0'"):
        await dev.engine.load(plan.serialize())
    await dev.engine.release(plan)
    assert runtime.ended == 1
    np.testing.assert_allclose(await context(x=X).get(), linear_of(X, 2 * W, B + 1), rtol=1e-5)


@pytest.mark.parametrize("recovers", [False, True])
async def test_a_session_is_not_destroyed_after_a_failure_until_it_has_succeeded(
    dev: Any, runtime: HostOnnxRuntime, recovers: bool
) -> None:
    """A function that ONNX Runtime enqueues meanwhile would free page-locked memory, and end the process."""
    plan = await dev.engine.build(linear(), engine="onnxruntime")
    context = dev.engine.context(plan)
    await context(x=X).get()
    runtime.raises = RuntimeError("Non-zero status code returned while running Det node. Name:'' Status Message: no")
    with pytest.raises(cb.ShapeError, match="node Det: no; pass other values"):
        await context(x=X)
    runtime.raises = None
    if recovers:
        await context(x=X).get()
    await dev.engine.release(plan)
    gc.collect()  # of the error's frames
    assert runtime.ended == int(recovers)
    await context(x=X).get()
    assert len(runtime.opened) == 2


async def test_the_first_execution_of_each_shape_is_made_off_the_admitting_thread(
    dev: Any, runtime: HostOnnxRuntime
) -> None:
    plan = await dev.engine.build(linear(), engine="onnxruntime")
    assert plan.waits is False
    context = dev.engine.context(plan)
    for rows, written in ((5, False), (5, True), (3, False), (3, True), (5, True)):
        runtime.bound.clear()
        assert (await context(x=X[:rows]).get()).shape == (rows, 3)
        assert ("y" in dict(runtime.bound)) is written  # else it is copied there
    again = plan.resident.again()  # as after a loss: another host has no session
    plan.resident = again
    runtime.bound.clear()
    await context(x=X).get()
    assert "y" not in dict(runtime.bound)


async def test_extents_that_are_not_declared_are_asked_for_once(dev: Any, runtime: HostOnnxRuntime) -> None:
    data = model([node("Relu", ["x"], ["y"])], {"x": ("f32", ["n", 4])}, {"y": ("f32", ["m", 4])})
    context = dev.engine.context(await dev.engine.build(data, engine="onnxruntime"))
    for rows, written in ((5, False), (5, True), (3, False), (5, True), (3, True)):
        runtime.bound.clear()
        y = context(x=X[:rows])
        await y
        np.testing.assert_array_equal(await y.get(), np.maximum(X[:rows], 0))
        assert ("y" in dict(runtime.bound)) is written


async def test_what_takes_inputs_on_the_host_reads_them_when_they_are_there(dev: Any, runtime: HostOnnxRuntime) -> None:
    runtime.on_host, runtime.for_the_cpu = {"x"}, {"NonMaxSuppression", "Add"}
    data = model([node("NonMaxSuppression", ["x"], ["y"])], {"x": ("f32", [4])}, {"y": ("f32", [4])})
    plan = await dev.engine.build(data, engine="onnxruntime")
    assert plan.waits is True
    assert "1 nodes are executed on the host: NonMaxSuppression y" in plan.explain()
    assert "wait on the host" in plan.explain()
    context, x = dev.engine.context(plan), dev.zeros(4)
    for value in (1.0, 2.0, 3.0):
        dev.fill(x, value)
        assert (await context(x=x).get()).tolist() == [value + 1] * 4


async def test_the_arithmetic_of_shapes_on_the_host_makes_nothing_wait(dev: Any, runtime: HostOnnxRuntime) -> None:
    runtime.for_the_cpu = {"Add"}
    plan = await dev.engine.build(linear(), engine="onnxruntime")
    assert plan.waits is False
    assert plan.on_host == ("Add a",)


async def test_it_takes_what_the_own_engine_refuses_and_says_so(dev: Any, runtime: HostOnnxRuntime) -> None:
    x, g = np.arange(16, dtype="f4").reshape(1, 1, 4, 4), np.zeros((1, 2, 3, 2), "f4")
    plan = await dev.engine.build(SAMPLED)
    assert plan.engine == "onnxruntime"
    assert "callboard's own engine refuses the model" in plan.reason
    assert "GridSample" in plan.reason
    np.testing.assert_array_equal(await dev.engine.context(plan)(x=x, g=g).get(), x[..., :2, :3])
    with pytest.raises(cb.UnsupportedOp, match="GridSample"):
        await dev.engine.build(SAMPLED, engine="callboard")


async def test_served_files_are_plans_of_it(dev: Any, runtime: HostOnnxRuntime, tmp_path: Path) -> None:
    path = tmp_path / "linear.onnx"
    path.write_bytes(linear())
    served = await opened(dev, path, RunOptions(engine="onnxruntime"))
    assert served.file.provider == "onnxruntime"
    np.testing.assert_allclose((await served.run([X]))[0], linear_of(X), rtol=1e-5)
    await served.end()
    assert runtime.ended == 1


async def test_without_it_the_refusal_names_both(dev: Any, runtime: HostOnnxRuntime) -> None:
    runtime.built_for_cuda = False
    with pytest.raises(cb.UnsupportedOp, match=r"GridSample.*; nor does ONNX Runtime execute it here: .*without CUDA"):
        await dev.engine.build(SAMPLED)


async def test_it_is_not_asked_where_the_own_engine_can(dev: Any, runtime: HostOnnxRuntime) -> None:
    runtime.built_for_cuda = False
    data = model([node("Identity", ["x"], ["y"])], {"x": ("f32", [4])}, {"y": ("f32", [4])})
    assert (await dev.engine.build(data)).engine == "callboard"
    assert not runtime.opened
