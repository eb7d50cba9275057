"""Executions on the calling thread, of arrays on the host: the same results, errors and order as those of ops."""

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import B, W, graph, linear, linear_of, model, node

import callboard as cb
from callboard.backends.cpu.engine import CpuEngine
from callboard.core.ref import held_array
from callboard.device.client import holding
from callboard.kernel.blas import Gemm
from callboard.kernel.engine.inputs import opened
from callboard.testing.faults import open_faulty

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
X = np.random.default_rng(9).standard_normal((5, 4)).astype("f4")
TABLE = np.arange(12, dtype="f4").reshape(4, 3)
CLOSE: Any = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(autouse=True)
def any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long an execution takes does not matter, but where a test says so."""
    for name in ("SHORT", "LONG", "TURN"):
        monkeypatch.setattr(holding, name, 1e9)


@pytest.fixture
async def dev() -> AsyncIterator[Any]:
    async with cb.device("cpu") as device:
        yield device


async def context_of(dev: Any, data: bytes, **options: Any) -> Any:
    """A context of ONNX Runtime."""
    return dev.engine.context(await dev.engine.build(data, engine="onnxruntime", **options))


async def test_the_second_call_with_a_set_of_shapes_needs_no_op(dev: Any) -> None:
    context = await context_of(dev, linear())
    for rows in (5, 2, 5):
        first = context(x=X[:rows])
        np.testing.assert_allclose(await first.get(), linear_of(X[:rows]), **CLOSE)
    for rows in (5, 2):
        y = context(x=X[:rows])
        assert held_array(y) is not None
        assert (await y) is y
        assert y.shape == (rows, 3)
        np.testing.assert_allclose(await y.get(), linear_of(X[:rows]), **CLOSE)
    y = await context.run({"x": X})
    assert held_array(y) is not None


async def direct(dev: Any, data: bytes | None = None, **options: Any) -> Any:
    """A context whose executions with ``X`` are direct."""
    context = await context_of(dev, linear() if data is None else data, **options)
    await context(x=X)
    assert held_array(context(x=X)) is not None
    return context


async def test_a_result_is_an_array_of_the_device_as_any_other(dev: Any) -> None:
    context = await direct(dev)
    want = linear_of(X)
    y = context(x=X)
    own = await y.get()
    own[...] = 7  # the caller's
    out = np.zeros((5, 3), "f4")
    assert await y.get(out=out) is out
    np.testing.assert_allclose(out, want, **CLOSE)
    with pytest.raises(cb.ShapeError, match="get: out is"):
        y.get(out=np.zeros(3, "f4"))
    np.testing.assert_allclose(await y[1:3].get(), want[1:3], **CLOSE)
    assert held_array(y) is None  # a view is of the device's memory
    np.testing.assert_allclose(await y.get(), want, **CLOSE)
    z = dev.elementwise.map("2.0 * y", y=context(x=X))
    np.testing.assert_allclose(await z.get(), 2 * want, **CLOSE)
    again = context(x=X)
    assert await dev.blas.gemm(again, dev.put(np.eye(3, dtype="f4"))) is not None
    np.testing.assert_allclose(await (again + 1.0).get(), want + 1, **CLOSE)
    dev.blas.scal(again, alpha=2.0)  # writes it
    np.testing.assert_allclose(await again.get(), 2 * want, **CLOSE)


async def test_an_input_may_be_changed_after_the_call(dev: Any) -> None:
    context = await direct(dev)
    x = X.copy()
    y = context(x=x)
    x[...] = 0
    np.testing.assert_allclose(await y.get(), linear_of(X), **CLOSE)


async def test_results_are_inputs_of_other_models_and_recordings(dev: Any) -> None:
    context = await direct(dev)
    nodes = [node("Neg", ["x"], ["y"])]
    negative = await context_of(dev, model(nodes, {"x": ("f32", ["n", 3])}, {"y": ("f32", ["n", 3])}))
    for _ in range(3):
        z = negative(x=context(x=X))
        np.testing.assert_allclose(await z.get(), -linear_of(X), **CLOSE)
    y = context(x=X)
    with dev.record() as recording:
        recording.returns(y + 1.0)
    np.testing.assert_allclose(await recording.replay().get(), linear_of(X) + 1, **CLOSE)


async def test_weights_are_replaced_whole_while_threads_call(dev: Any) -> None:
    context = await direct(dev, refit=True)
    plan = context.plan
    sets = [(W * (k + 1), B + k) for k in range(4)]  # the first are the plan's own
    wanted = [linear_of(X, *each) for each in sets]
    begun, end = threading.Barrier(4), threading.Event()
    wrong: list[Any] = []
    held = []

    def calls() -> None:
        begun.wait(30)
        while not end.is_set():
            y = context(x=X)
            values = held_array(y)
            if values is None:
                values = y.get().result(30)
            else:
                held.append(1)
            if not any(np.allclose(values, want, **CLOSE) for want in wanted):
                wrong.append(values)

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(begun.wait, 30)
    for turn in range(40):
        w, b = sets[turn % 4]
        plan.refit({"w": w, "b": b})
        await context(x=X)
        np.testing.assert_allclose(await context(x=X).get(), wanted[turn % 4], **CLOSE)
    end.set()
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()
    assert not wrong
    assert held


async def test_errors_are_those_of_the_op(dev: Any) -> None:
    lookup = [node("Gather", ["t", "x"], ["y"])]
    tables = await context_of(dev, model(lookup, {"x": ("i64", ["n"])}, {"y": ("f32", ["n", 3])}, {"t": TABLE}))
    for _ in range(2):
        np.testing.assert_array_equal(await tables(x=np.array([1, 3])).get(), TABLE[[1, 3]])
    with pytest.raises(cb.ShapeError, match="input 'x' holds 9 at"):
        tables(x=np.array([1, 9]))
    context = await direct(dev)
    with pytest.raises(cb.ShapeError, match="there is no input 'z'"):
        context(z=X)
    with pytest.raises(cb.ShapeError, match="input 'x' is missing"):
        context()
    with pytest.raises(cb.ShapeError, match="input 'x' is f64"):
        context(x=X.astype("f8"))
    shaped = [node("Reshape", ["x", "s"], ["y"])]
    reshape = await context_of(
        dev, model(shaped, {"x": ("f32", ["n", 4]), "s": ("i64", [2])}, {"y": ("f32", ["n", "m"])})
    )
    await reshape({"x": X, "s": np.array([5, 4])})
    for _ in range(2):
        with pytest.raises(cb.ShapeError, match=r"cannot be reshaped|Reshape"):
            await reshape({"x": X, "s": np.array([3, 7])})


async def test_numbers_and_arrays_with_gaps(dev: Any) -> None:
    nodes = [node("Mul", ["x", "f"], ["y"])]
    ports: Any = {"x": ("f32", ["n", 4]), "f": ("f32", [])}
    context = await context_of(dev, model(nodes, ports, {"y": ("f32", ["n", 4])}))
    for turn in range(3):
        y = context(x=X, f=2.0)
        assert (held_array(y) is not None) is (turn > 0)
        np.testing.assert_allclose(await y.get(), 2 * X, **CLOSE)
    wide = np.repeat(X, 2, axis=1)
    y = context(x=wide[:, ::2], f=2)
    assert held_array(y) is None
    np.testing.assert_allclose(await y.get(), 2 * X, **CLOSE)


async def test_what_is_no_direct_execution(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models with loops, open extents and small budgets; long ones; while the device is traced or records."""
    body = graph(
        [node("Add", ["v", "o"], ["w"]), node("Identity", ["c"], ["d"])],
        {"i": ("i64", []), "c": ("bool", []), "v": ("f32", None)},
        {"d": ("bool", []), "w": ("f32", None)},
        {"o": np.float32(1)},
    )
    loop = [node("Loop", ["k", "", "x"], ["y"], body=body)]
    turns = await context_of(dev, model(loop, {"x": ("f32", ["n", 4])}, {"y": ("f32", ["n", 4])}, {"k": np.array(3)}))
    chosen = [node("NonZero", ["x"], ["y"])]
    extents = await context_of(dev, model(chosen, {"x": ("f32", ["n", 4])}, {"y": ("i64", [2, "m"])}))
    context = await direct(dev)
    hasty = dev.engine.context(context.plan, budget=0.5)
    for _ in range(3):
        for each in (turns, extents, hasty):
            y = each(x=X)
            assert held_array(y) is None
            await y
    np.testing.assert_allclose(await turns(x=X).get(), X + 3, **CLOSE)
    records: list[Any] = []
    remove = await dev.trace(records.append)
    await context(x=X)
    await remove()
    assert any(record.tag.startswith("engine.execute") for record in records)
    assert held_array(context(x=X)) is not None
    x = dev.put(X)
    with dev.record(x=x) as recording:
        recording.returns(context(x=x))
    np.testing.assert_allclose(await recording.replay().get(), linear_of(X), **CLOSE)
    monkeypatch.setattr(holding, "SHORT", 0.0)
    assert held_array(context(x=X)) is None


ONE = {"one": np.ones((1, 1), "f4")}


@pytest.mark.parametrize(
    "op, weights",
    [
        (node("ConstantOfShape", ["n"], ["z"], value=np.ones(1, "f4")), {}),
        (node("Expand", ["one", "n"], ["z"]), ONE),
        (node("Tile", ["one", "n"], ["z"]), ONE),
        (node("Reshape", ["many", "n"], ["z"]), {"many": np.ones(12, "f4")}),
        (node("Pad", ["one", "n"], ["z"]), {"one": np.ones(1, "f4")}),
        (node("Resize", ["one", "", "", "n"], ["z"]), ONE),
    ],
    ids=["ConstantOfShape", "Expand", "Tile", "Reshape", "Pad", "Resize"],
)
async def test_no_model_whose_time_follows_from_values(dev: Any, op: bytes, weights: Any) -> None:
    """Those with other values take any time: each execution is an op, and none that is run where it is called."""
    nodes = [op, node("ReduceSum", ["z"], ["y"], keepdims=0)]
    context = await context_of(dev, model(nodes, {"n": ("i64", [2])}, {"y": ("f32", [])}, weights))
    for _ in range(3):
        y = context(n=np.array([3, 4]))
        assert held_array(y) is None
        assert await y.get() > 0
    assert not any(known.spec.steady for known in context._known.values())


async def test_weights_that_can_be_replaced_are_values(dev: Any) -> None:
    nodes = [node("Resize", ["x", "", "scales"], ["y"])]
    weights = {"scales": np.array([1, 2], "f4")}
    data = model(nodes, {"x": ("f32", ["n", 4])}, {"y": ("f32", ["n", 8])}, weights)
    fixed, open_ = await context_of(dev, data), await context_of(dev, data, refit=True)
    for context, held in ((fixed, True), (open_, False)):
        for _ in range(3):
            y = context(x=X)
            np.testing.assert_array_equal(await y.get(), np.repeat(X, 2, 1))
        assert (held_array(context(x=X)) is not None) is held


async def test_extents_that_a_model_does_not_declare(dev: Any) -> None:
    """They follow from the shapes of the inputs: those of one set are known after its first direct execution."""
    nodes = [node("Concat", ["x", "x"], ["y"], axis=0), node("Neg", ["x"], ["z"])]
    outputs: Any = {"y": ("f32", ["m", 4]), "z": ("f32", ["n", 4])}
    context = await context_of(dev, model(nodes, {"x": ("f32", ["n", 4])}, outputs))
    for rows in (5, 2, 5, 2):
        y, z = context(x=X[:rows])
        await y
        assert y.shape == (2 * rows, 4)
        np.testing.assert_array_equal(await y.get(), np.concatenate([X[:rows], X[:rows]]))
        np.testing.assert_array_equal(await z.get(), -X[:rows])
    for rows in (5, 2):
        y, z = context(x=X[:rows])
        assert held_array(y) is not None
        assert y.shape == (2 * rows, 4)


async def test_the_loop_gets_its_turn(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    context = await direct(dev)
    monkeypatch.setattr(holding, "TURN", 1e-9)
    turns = 0
    done = False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await asyncio.sleep(0)
    before = turns
    for _ in range(20):
        y = context(x=X)
        assert held_array(y) is not None
        assert not y.done()
        await y.get()  # in the loop's next iteration
        assert y.done()
    done = True
    await task
    assert turns - before >= 20
    monkeypatch.setattr(holding, "TURN", 1e9)
    await asyncio.sleep(0)
    first, second = context(x=X), context(x=X)
    assert first.done()
    assert second.done()


async def test_a_session_that_was_closed_is_opened_by_an_op(dev: Any) -> None:
    context = await direct(dev)
    session = weakref.ref(opened.SHARED[context.plan.token].session._sess)  # which bindings hold, too
    y = context(x=X)
    refs = [context(x=dev.put(X)) for _ in range(3)]  # whose plans have bound it
    await asyncio.gather(*refs)
    await dev.engine.release(context.plan)
    gc.collect()
    assert session() is None
    np.testing.assert_allclose(await y.get(), linear_of(X), **CLOSE)
    again = context(x=X)
    assert held_array(again) is None
    np.testing.assert_allclose(await again.get(), linear_of(X), **CLOSE)
    assert held_array(context(x=X)) is not None


async def test_no_session_is_opened_on_the_loops_thread(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    context = await direct(dev)
    x = dev.put(X)
    original, threads = CpuEngine.opened, []

    def spied(self: CpuEngine, spec: Any, data: Any) -> Any:
        known = (spec.digest, spec.threads) in self._sessions
        if not known:
            threads.append(threading.get_ident())
        return original(self, spec, data)

    monkeypatch.setattr(CpuEngine, "opened", spied)
    for _ in range(3):
        for _ in range(20):
            await context(x=x)  # short by now, and executed where it is called
        await dev.engine.release(context.plan)
        await context(x=x)
    assert threads
    assert threading.get_ident() not in threads


async def test_bindings_follow_the_arrays(dev: Any) -> None:
    """Inputs and outputs stay bound to their addresses, of which there are many."""
    context = await direct(dev)
    given = [np.full((5, 4), n, "f4") for n in range(100)]
    refs = [dev.put(x) for x in given]
    outs = [context(x=ref) for ref in refs]
    for x, out in zip(given, outs, strict=True):
        np.testing.assert_allclose(await out.get(), linear_of(x), **CLOSE)
    del outs
    for x, ref in zip(given, refs, strict=True):
        np.testing.assert_allclose(await context(x=ref).get(), linear_of(x), **CLOSE)


async def test_freed_results_and_a_closed_device() -> None:
    async with cb.device("cpu") as dev:
        context = await direct(dev)
        y, kept = context(x=X), context(x=X)
        y.free()
        y.free()
        assert y.is_stale
        for use in (y.get, lambda: dev.blas.scal(y, alpha=2.0), lambda: y[1:].get()):
            with pytest.raises(cb.GpuRefStale, match="freed"):
                use()
    for use in (kept.get, lambda: kept[1:].get()):
        with pytest.raises((cb.GpuRefStale, cb.DeviceStopped), match=r"shutting down|closed"):
            use()
    with pytest.raises(cb.DeviceStopped):
        context(x=X)


async def test_results_of_other_devices_and_stale_ones_are_refused() -> None:
    nodes = [node("Neg", ["x"], ["y"])]
    data = model(nodes, {"x": ("f32", ["n", 4])}, {"y": ("f32", ["n", 4])})
    async with cb.device("cpu") as dev:
        context = await direct(dev, data)
        async with cb.device("cpu") as other:
            far = (await direct(other, data))(x=X)
            assert held_array(far) is not None
            with pytest.raises(cb.DeviceMismatch, match="opened separately"):
                context(x=far)
        with pytest.raises(cb.DeviceMismatch):
            context(x=far)  # its device is closed, too
        freed = context(x=X)
        freed.free()
        with pytest.raises(cb.GpuRefStale, match="freed"):
            context(x=freed)
        own = context(x=X)
        np.testing.assert_array_equal(await context(x=own).get(), X)
    with pytest.raises((cb.GpuRefStale, cb.DeviceStopped)):
        context(x=own)


async def test_a_lost_context_ends_direct_executions() -> None:
    async with open_faulty("context_poisoned", at=30, isolation="thread") as dev:
        context = await direct(dev)
        y = context(x=X)
        w = dev.put(np.eye(4, dtype="f4"))
        async with asyncio.timeout(30):
            while not dev.stopped:
                with contextlib.suppress(cb.AccelError):
                    await dev.ask(Gemm(a=w, b=w))
        with pytest.raises(cb.DeviceStopped):
            context(x=X)
        with pytest.raises(cb.GpuRefStale, match="shutting down"):
            y.get()


async def test_a_host_in_a_process_executes_ops() -> None:
    async with cb.device("cpu", isolation="process") as dev:
        context = await context_of(dev, linear())
        for _ in range(3):
            y = context(x=X)
            assert held_array(y) is None
            np.testing.assert_allclose(await y.get(), linear_of(X), **CLOSE)


def test_a_blocking_device_on_several_threads() -> None:
    with cb.sync.device("cpu", isolation="thread") as dev:
        context = dev.engine.context(dev.engine.build(linear(), engine="onnxruntime").result())
        context(x=X).get()
        begun = threading.Barrier(3)
        found: list[Any] = []

        def calls(k: int) -> None:
            begun.wait(30)
            for _ in range(50):
                y = context(x=X + k)
                found.append((held_array(y) is not None, np.allclose(y.get(), linear_of(X + k), **CLOSE)))

        threads = [threading.Thread(target=calls, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert found == [(True, True)] * 150


def test_what_is_known_of_the_time() -> None:
    one = opened.Opened(object())
    for seconds, known in ((1e-3, 1e-3), (5.0, 1.02e-3), (2e-4, 2e-4)):
        one.took(((5, 4),), seconds)
        assert one.recent[((5, 4),)] == pytest.approx(known)
    for rows in range(opened.MOST_KNOWN):
        one.took(((rows, 7),), 1.0)
    assert len(one.recent) <= opened.MOST_KNOWN
    one.close()
    assert one.session is None
