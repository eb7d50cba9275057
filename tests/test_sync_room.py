"""Blocking calls at limits: they wait for the room that others make, never for what they hold themselves."""

import collections
import threading
from typing import Any

import numpy as np
import pytest

import callboard as cb

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(50)]

X = np.arange(4096, dtype="f4").reshape(64, 64)


class Adder(cb.ResidentActor):
    """Adds to arrays, of the host and of the device."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.kept: list[Any] = []

    def total(self, array: np.ndarray[Any, Any]) -> float:
        return float(array.sum())

    def ones(self, n: int) -> np.ndarray[Any, Any]:
        return np.ones(n, "f4")

    def keep(self, array: np.ndarray[Any, Any]) -> None:
        self.kept.append(array)

    def drop(self) -> None:
        self.kept.clear()

    def both(self, array: np.ndarray[Any, Any], x: Any) -> None:
        x += array[0]

    def add(self, array: Any) -> None:
        array += 1

    def rows(self, array: np.ndarray[Any, Any]) -> Any:
        yield from array


def open_cpu(which: str = "cpu", **options: Any) -> cb.sync.Device:
    return cb.sync.device(which, **{"isolation": "process", "standby": None, **options})


@pytest.mark.slow
def test_one_op_in_flight_is_enough_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    with open_cpu("cpu:0", max_in_flight=1) as gpu, open_cpu("cpu:1", max_in_flight=1, isolation="thread") as other:
        x = gpu.put(X)
        np.testing.assert_array_equal(x.T.get(), X.T)
        np.testing.assert_array_equal((x.T @ x + 1.0).get(), X.T @ X + 1.0)
        target = gpu.zeros((64, 128))
        gpu.put(X, out=target[:, ::2])
        np.testing.assert_array_equal(target[:, ::2].get(), X)
        np.testing.assert_array_equal(x.T.to(other).get(), X.T)
        np.testing.assert_array_equal(other.put(x[:, ::2]).get(), X[:, ::2])
        with gpu.record() as recording:
            y = gpu.copy(x)
            gpu.fill(x, 5.0)
        recording.replay(3)
        assert y.get()[0, 0] == 5.0
        for own in (False, True):
            actor = gpu.actor_of(cb.Props(Adder), wait=True, own_process=own)
            assert actor.call(Adder.total, X) == X.sum()
            actor.call(Adder.add, x)
            assert [row[0] for row in actor.stream(Adder.rows, X[:5])] == X[:5, 0].tolist()
        assert x.get()[0, 0] == 7.0


def test_threads_share_one_op_in_flight() -> None:
    with open_cpu(max_in_flight=1, isolation="thread") as gpu:
        found: list[bool] = []

        def work(n: int) -> None:
            found.extend(bool((gpu.put(X + n).T.get() == X.T + n).all()) for _ in range(10))

        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        assert found == [True] * 40


LARGE = np.ones(1 << 18, "f4")
SOME = LARGE[: 1 << 15]  # 128 KiB: arrays of this size travel in arenas


def test_arguments_and_results_that_never_fit_are_refused() -> None:
    with open_cpu(max_staged_bytes=LARGE.nbytes // 2) as gpu:
        for own in (False, True):
            actor = gpu.actor_of(cb.Props(Adder), wait=True, own_process=own)
            with pytest.raises(cb.MailboxFull, match="larger than all that may be staged") as refused:
                actor.call(Adder.total, LARGE)
            assert not refused.value.retryable
            with pytest.raises(cb.MailboxFull, match="the result: a host array"):
                actor.call(Adder.ones, LARGE.size)
            ref = gpu.put(LARGE)
            actor.call(Adder.add, ref[:4])
            assert actor.call(Adder.total, SOME) == SOME.sum()
            assert ref.get()[[0, 4]].tolist() == [2.0, 1.0]


def test_arguments_that_an_actor_keeps_are_not_waited_for_long() -> None:
    with open_cpu(max_staged_bytes=4 * SOME.nbytes) as gpu:
        actor = gpu.actor_of(cb.Props(Adder), wait=True)
        with pytest.raises(cb.MailboxFull, match="are in use") as refused:
            collections.deque((actor.call(Adder.keep, SOME) for _ in range(8)), maxlen=0)
        assert refused.value.retryable
        actor.call(Adder.drop)
        assert actor.call(Adder.total, SOME) == SOME.sum()


def test_a_refused_call_of_an_actor_in_a_process_holds_nothing() -> None:
    with open_cpu(max_staged_bytes=LARGE.nbytes // 2) as gpu:
        actor = gpu.actor_of(cb.Props(Adder), wait=True, own_process=True)
        x = gpu.put(SOME)
        for _ in range(20):
            with pytest.raises(cb.MailboxFull):
                actor._ref.call(Adder.both, LARGE, x)
        gpu.drain()
        assert gpu.stats().staged_bytes == 0
        actor.call(Adder.both, SOME, x)
        assert x.get()[0] == 2.0
