"""A short op of an idle CPU is done on the loop's thread, with the same results, order and errors."""

import threading
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.backends.cpu import recorded
from callboard.backends.cpu.recorded import CpuReplayed
from callboard.backends.cpu.stream import CpuStream, Work
from callboard.device.host.context.plans import plan as plans
from callboard.device.host.context.plans.plan import Plan
from callboard.device.supervision.hosts.thread import ThreadHost

BODY = Work.execute
REPLAY = recorded._replay


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that did the work of ops, all of which count as short."""
    seen: list[int] = []

    def execute(self: Work) -> None:
        seen.append(threading.get_ident())
        BODY(self)
        self.seconds = 0.0

    monkeypatch.setattr(Work, "execute", execute)
    return seen


async def test_a_lone_op_stays_on_the_loops_thread(threads: list[int]) -> None:
    async with cb.device("cpu", isolation="thread") as gpu:
        x = gpu.put(np.eye(4, dtype="f4"))
        y = x
        for _ in range(200):  # not while the host's thread is at work
            y = await gpu.blas.gemm(x, x, alpha=2.0)
        assert threading.get_ident() in threads
        np.testing.assert_array_equal(await y.get(), 2 * np.eye(4))
        stats = await gpu.stats()
        assert stats.in_flight == 0


async def test_a_burst_is_the_hosts(threads: list[int]) -> None:
    async with cb.device("cpu", isolation="thread") as gpu:
        x = gpu.put(np.eye(4, dtype="f4"))
        for _ in range(4):
            await gpu.blas.gemm(x, x)
        threads.clear()
        y = x
        for _ in range(100):
            y = gpu.blas.gemm(y, x)
        np.testing.assert_array_equal(await y.get(), np.eye(4))
        assert threads.count(threading.get_ident()) <= 2  # the first one, and the download


async def test_an_error_is_the_ops_own(threads: list[int]) -> None:
    async with cb.device("cpu", isolation="thread") as gpu:
        x, at = gpu.put(np.arange(4.0)), gpu.put(np.array([0, 3]))
        bad = gpu.put(np.array([0, 9]))
        for _ in range(4):
            await gpu.xp.take(x, at)
        taken = gpu.xp.take(x, bad)
        with pytest.raises(cb.AccelError) as refused:
            await taken
        assert any("test_executed.py" in note for note in refused.value.__notes__)
        np.testing.assert_array_equal(await gpu.xp.take(x, at).get(), [0, 3])


def test_a_blocking_device(threads: list[int]) -> None:
    with cb.sync.device("cpu", isolation="thread") as gpu:
        x = gpu.put(np.eye(4, dtype="f4"))
        y: Any = x
        for _ in range(50):
            y = gpu.blas.gemm(y, x)
            y.result()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        assert "callboard-sync" in {names.get(one) for one in threads}
        np.testing.assert_array_equal(y.get(), np.eye(4))


async def test_a_short_replay_stays_on_the_loops_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def replay(works: list[Any], replayed: CpuReplayed, stream: CpuStream) -> None:
        seen.append(threading.get_ident())
        REPLAY(works, replayed, stream)
        replayed.seconds = 0.6 * plans.BRIEF

    monkeypatch.setattr(recorded, "_replay", replay)
    async with cb.device("cpu", isolation="thread") as gpu:
        x = gpu.put(np.eye(4, dtype="f4"))
        with gpu.record(x=x) as recording:
            tripled = recording.returns(gpu.blas.gemm(x, x, alpha=3.0))
        for _ in range(200):
            y = await tripled.replay()
        assert threading.get_ident() in seen
        np.testing.assert_array_equal(await y.get(), 3 * np.eye(4))
        seen.clear()
        for _ in range(20):
            await tripled.replay(2)  # too long together
        assert threading.get_ident() not in seen
        assert len(seen) == 40
        one = gpu.put(np.ones((), "bool"))
        with gpu.record() as choice, choice.if_(one):
            gpu.blas.scal(x, alpha=2.0)
        seen.clear()
        for _ in range(20):
            await choice.replay()  # a value decides what runs
        assert threading.get_ident() not in seen
        assert len(seen) == 20


async def test_frees_wake_no_thread(threads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    original, posted = ThreadHost.post, []

    def post(self: ThreadHost, message: Any) -> None:
        posted.append(message)
        original(self, message)

    monkeypatch.setattr(ThreadHost, "post", post)
    async with cb.device("cpu", isolation="thread") as gpu:
        x = gpu.put(np.eye(4, dtype="f4"))
        for _ in range(200):  # until the host's thread is not at work
            posted.clear()
            for _ in range(64):
                await gpu.blas.gemm(x, x)
            if not posted:
                break
        assert not posted


def test_a_stream_with_work_does_nothing_at_once() -> None:
    stream = CpuStream(0)
    go = threading.Event()
    stream.submit(go.wait)
    assert stream.at_once is None
    go.set()
    stream.synchronize()
    stream.close()
    assert stream.at_once is None


def test_what_a_plan_knows_of_its_time() -> None:
    plan = Plan.__new__(Plan)
    plan._begin("blas.gemm")
    assert plan.recent == float("inf")
    for seconds, known in ((20e-6, 20e-6), (5.0, 20.4e-6), (10e-6, 10e-6), (1.0, 10.2e-6)):
        plan.took(seconds)  # a launch that was held up counts little
        assert plan.recent == pytest.approx(known)
    assert plans.BRIEF < plans.MODEST
