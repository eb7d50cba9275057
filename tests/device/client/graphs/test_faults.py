"""Recordings and what goes wrong: ops that fail, libraries that are made again, contexts that are lost, bad calls."""

import asyncio

import numpy as np
import pytest

import callboard as cb
from callboard.device.host.context.admission.graphs.replay import RecordedStep
from callboard.kernel.blas import Gemm

EYE = np.eye(4, dtype="f4")
SLOW = pytest.mark.slow


async def squares(dev: cb.Device) -> tuple[cb.GpuRef, cb.Recording]:
    a = await dev.put(2 * EYE)
    with dev.record(a=a) as rec:
        rec.returns(dev.blas.gemm(dev.blas.gemm(a, a), a))
    return a, rec


async def test_a_step_that_fails_is_named_and_the_next_replay_is_right() -> None:
    async with cb.device("faulty+cpu?fail_at=5", isolation="thread") as dev:
        _, rec = await squares(dev)  # 1: the upload, 2 and 3: memory for results, 4 and 5: the products
        with pytest.raises(cb.LibraryError, match="injected") as failed:
            await rec.replay(2)
        assert "step 2 of 2 of a recording: blas.gemm" in (note := "\n".join(failed.value.__notes__))
        assert "test_faults.py" in note
        assert "replay 1 of 2" in note
        assert np.array_equal(await rec.replay().get(), 8 * EYE)


@pytest.mark.parametrize("at", range(4, 8))
async def test_a_library_that_fails_is_made_again_and_its_recordings_too(at: int) -> None:
    async with cb.device(f"faulty+cpu?crash_at={at}", isolation="thread") as dev:
        _, rec = await squares(dev)
        failed = []
        for _ in range(4):
            try:
                assert np.array_equal(await rec.replay().get(), 8 * EYE)
            except cb.LibraryError as e:
                failed.append(f"{e} {e.__notes__}")
        assert len(failed) == 1
        assert "handle was made again" in failed[0]
        if "memory" not in failed[0]:  # not a copy to the host
            assert "of 2 of a recording" in failed[0]
            assert (await dev.stats()).plans["graph"].misses == 2
        assert (await dev.stats()).plans["graph"].entries == 1


@pytest.mark.slow
@pytest.mark.parametrize("at", [4, pytest.param(3, marks=SLOW), pytest.param(7, marks=SLOW)])
async def test_a_context_that_is_lost_in_the_middle(at: int, tmp_path: object) -> None:
    """A replay ends with its arrays right, or with an error that says what to do."""
    async with cb.device(f"faulty+cpu?poison_at={at}&once={tmp_path}/once", isolation="process", standby=None) as dev:
        lost = 0
        _, rec = await squares(dev)
        for _ in range(5):
            try:
                assert np.array_equal(await rec.replay().get(), 8 * EYE)
            except (cb.ContextPoisoned, cb.GpuRefStale):
                lost += 1
                await dev.ready()
                again = rec.replay(a=2 * EYE)
                assert np.array_equal(await again.get(), 8 * EYE)
        assert lost == 1


async def test_a_recording_takes_the_ops_of_its_own_task() -> None:
    async with cb.device("cpu") as dev:
        a = await dev.put(EYE)
        called = asyncio.Event()

        async def beside() -> np.ndarray:
            got = await dev.blas.gemm(a, a, alpha=3.0).get()
            called.set()
            return got

        task = asyncio.create_task(beside())  # begun outside: its calls are calls
        with dev.record() as rec:
            await asyncio.wait_for(called.wait(), 30)
            y = dev.blas.gemm(a, a, alpha=5.0)
        assert np.array_equal(await task, 3 * EYE)
        assert len(rec.nodes) == 1
        await rec.replay()
        assert np.array_equal(await y.get(), 5 * EYE)


async def test_messages_are_recorded() -> None:
    async with cb.device("cpu") as dev:
        a, out = await dev.put(EYE), await dev.zeros((4, 4))
        rec = dev.record(Gemm(a=a, b=a, out=out, alpha=2.0), Gemm(a=out, b=a), a=a)
        assert [node.op for node in rec.nodes] == ["blas.gemm", "blas.gemm"]
        assert np.array_equal(await rec.replay(a=3 * EYE).get(), 54 * EYE)
        assert np.array_equal(await out.get(), 18 * EYE)


async def test_prepare_runs_nothing() -> None:
    async with cb.device("cpu") as dev:
        a, total = await dev.put(np.ones(3, "f4")), await dev.zeros(3)
        with dev.record() as rec:
            dev.blas.axpy(a, total)
        assert await rec.prepare() is None
        assert (await total.get()).tolist() == [0, 0, 0]
        stats = await rec.stats()
        assert (stats.recorded, stats.launches, stats.steps) == (1, 0, 1)
        assert stats.device_nodes
        await rec.replay(2)
        assert (await total.get()).tolist() == [2, 2, 2]


async def test_what_cannot_be_prepared_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that cannot be captured, and one whose array has failed: the array that would be written is as it was."""
    async with cb.device("cpu", isolation="thread") as dev:
        a, total = await dev.put(np.ones(3, "f4")), await dev.put(np.full(3, 5.0, "f4"))
        bad = dev.solver.cholesky(await dev.put(-EYE))
        with pytest.raises(cb.NumericalError):
            await bad  # its failure is known from here on
        with dev.record(a=a) as rec:
            dev.blas.axpy(a, total)
        with monkeypatch.context() as patch:
            patch.setattr(RecordedStep, "unfit", lambda *_: cb.UnsupportedOp("it cannot be recorded"))
            with pytest.raises(cb.UnsupportedOp, match="cannot be recorded"):
                await rec.prepare()
        with dev.record() as failing:
            dev.blas.axpy(bad[0, :3], total)
        with pytest.raises(cb.NumericalError):
            await failing.prepare()
        assert (await total.get()).tolist() == [5, 5, 5]
        await rec.prepare()
        await rec.replay()
        assert (await total.get()).tolist() == [6, 6, 6]


async def test_what_is_wrong_is_said_at_the_call() -> None:
    async with cb.device("cpu") as dev:
        a, b = await dev.put(EYE), await dev.put(EYE)
        with dev.record(a=a) as rec:
            y = dev.blas.gemm(a, b)
            dev.blas.axpy(a.reshape(-1), b.reshape(-1))
            with pytest.raises(cb.GpuRefStale, match="recorded, and not replayed yet"):
                y.get()
            with pytest.raises(RuntimeError, match="another recording is open"):
                dev.record().__enter__()
            with pytest.raises(cb.ShapeError, match="no op of the recording writes"):
                rec.returns(a)
        with pytest.raises(cb.GpuRefStale, match="recorded, and not replayed yet"):
            dev.blas.gemm(y, y)
        cases = [
            (lambda: rec.replay(0), ValueError, "n is 0; one message replays 1 to 10,000 times"),
            (lambda: rec.replay(10_001), ValueError, "n is 10001"),
            (lambda: rec.replay(c=a), TypeError, "no input 'c'; its inputs are a, in0"),
            (lambda: rec.replay(a=EYE[:2]), cb.ShapeError, r"a is float32\[2, 4\], recorded was f32\[4, 4\]"),
            (lambda: rec.replay(a=EYE.astype("f8")), cb.ShapeError, "a is float64"),
            (lambda: rec.replay(a=b), cb.ShapeError, "a and in0 share memory, and the recording writes to it"),
            (lambda: rec.replay(a=a.T), cb.ShapeError, "strides included"),
            (rec.__enter__, RuntimeError, "a recording is made once"),
            (lambda: dev.record(a=EYE), TypeError, "a is ndarray; pass a GpuRef"),
            (lambda: dev.record().replay(), RuntimeError, "not begun"),
        ]
        for call, error, message in cases:
            with pytest.raises(error, match=message):
                call()
        await rec.replay()
        assert np.array_equal(await y.get(), EYE)
        with pytest.raises(cb.ShapeError, match="is an array that the recording writes"):
            rec.replay(a=y)
        with pytest.raises(ValueError, match="nothing was recorded"), dev.record():
            pass
        with pytest.raises(ValueError, match="no op uses the input b"), dev.record(b=b):
            dev.blas.gemm(a, a)
        rec.close()
        rec.close()
        with pytest.raises(RuntimeError, match="the recording is closed"):
            rec.replay()
        assert np.array_equal(await y.get(), EYE), "a ref keeps its array"
        given_up = dev.record()
        with pytest.raises(cb.ShapeError), given_up:
            dev.blas.gemm(a, a[:2])
        with pytest.raises(RuntimeError, match="its block ended with an exception"):
            given_up.replay()
        assert np.array_equal(await dev.blas.gemm(a, a).get(), EYE), "calls are calls again"


async def test_an_array_that_was_freed_is_named() -> None:
    async with cb.device("cpu") as dev:
        a, rec = await squares(dev)
        await rec.replay()
        a.free()
        with pytest.raises(cb.GpuRefStale, match=r"\(freed\): a, f32\[4, 4\], a of blas.gemm, made at") as stale:
            rec.replay()
        assert stale.value.reason == "freed"
        assert np.array_equal(await rec.replay(a=EYE).get(), EYE)
