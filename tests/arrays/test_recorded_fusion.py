"""Element-wise functions inside a recording: one kernel, as outside, and only of the recording's own calls."""

from typing import Any

import numpy as np
import pytest

import callboard as cb


@pytest.fixture
def x(session: cb.sync.Device) -> Any:
    return session.put(np.arange(1, 5, dtype="f4"))


def ops(recording: Any) -> list[str]:
    return [node.op for node in recording.nodes]


def test_consecutive_functions_are_one_op(session: cb.sync.Device, x: Any) -> None:
    with session.record(x=x) as recording:
        made = recording.returns((x * 2 + 1) * x)
    assert ops(recording) == ["elementwise.map"]
    assert recording.nodes[0].where.startswith(__file__)
    np.testing.assert_array_equal(made.replay().get(), [3, 10, 21, 36])
    np.testing.assert_array_equal(made.replay(x=np.ones(4, "f4")).get(), [3, 3, 3, 3])


def test_a_reduction_reads_them(session: cb.sync.Device, x: Any) -> None:
    with session.record(x=x) as recording:
        total = recording.returns(session.xp.sum(x * x + 1))
    assert ops(recording) == ["elementwise.reduce"]
    assert total.replay().get() == 34


def test_what_a_variable_holds_is_computed(session: cb.sync.Device, x: Any) -> None:
    with session.record(x=x) as recording:
        part = x * 2
        whole = recording.returns(part + 1)
    whole.replay()
    np.testing.assert_array_equal(part.get(), [2, 4, 6, 8])


def test_products_between_them(session: cb.sync.Device) -> None:
    a = session.put(np.eye(3, dtype="f4") * 2)
    with session.record() as recording:
        a -= 0.5 * (a @ a)
        a += 1
    assert ops(recording) == ["tensor.contract", "elementwise.map", "elementwise.map"]
    recording.replay(2)
    wanted = np.eye(3, dtype="f4") * 2
    for _ in range(2):
        wanted -= 0.5 * (wanted @ wanted)
        wanted += 1
    np.testing.assert_array_equal(a.get(), wanted)


def test_a_write_comes_after_what_reads_the_array(session: cb.sync.Device, x: Any) -> None:
    with session.record(x=x) as recording:
        double = x * 2
        session.fill(x, 7)
        made = recording.returns(double + x)
    np.testing.assert_array_equal(made.replay(x=np.arange(4, dtype="f4")).get(), [7, 9, 11, 13])


def test_those_of_outside_are_computed_once(session: cb.sync.Device, x: Any) -> None:
    outside = x * 10
    with session.record(x=x) as recording:
        made = recording.returns(outside + x)
    assert len(ops(recording)) == 1
    np.testing.assert_array_equal(made.replay().get(), [11, 22, 33, 44])
    np.testing.assert_array_equal(made.replay(x=np.zeros(4, "f4")).get(), [10, 20, 30, 40])


def test_writing_into_one_of_outside(session: cb.sync.Device, x: Any) -> None:
    outside = x * 10
    with session.record() as recording:
        outside += 1
    recording.replay(3)
    np.testing.assert_array_equal(outside.get(), [13, 23, 33, 43])


def test_outside_it_is_not_there_before_a_replay(session: cb.sync.Device, x: Any) -> None:
    with session.record(x=x) as recording:
        later = x * 2
    with pytest.raises(cb.GpuRefStale, match="not replayed"):
        (later + 1).get()
    recording.replay()
    np.testing.assert_array_equal((later + 1).get(), [3, 5, 7, 9])


def test_blocks_keep_theirs(session: cb.sync.Device, x: Any) -> None:
    go, out = session.put(np.bool_(True)), session.zeros(4)
    with session.record(x=x, go=go) as recording:
        before = x * 2
        with recording.if_(go):
            session.copy(before + 1, out)
        with recording.else_():
            session.copy(before * 10, out)
        made = recording.returns(before + out)
    np.testing.assert_array_equal(made.replay().get(), [5, 9, 13, 17])
    np.testing.assert_array_equal(made.replay(go=np.bool_(False)).get(), [22, 44, 66, 88])


def test_loops_of_steps(session: cb.sync.Device, x: Any) -> None:
    go = session.put(np.bool_(True))
    with session.record(x=x, go=go) as recording:
        with recording.while_(go, most=100):
            x[...] = x * 0.5 + 1
            session.elementwise.map("v > 2.5", v=session.xp.max(x), out=go)
        looped = recording.returns(x)
    wanted = np.arange(1, 5, dtype="f4")
    while True:
        wanted = wanted * np.float32(0.5) + 1
        if wanted.max() <= 2.5:
            break
    np.testing.assert_array_equal(looped.replay().get(), wanted)


def test_an_exception_leaves_nothing_behind(session: cb.sync.Device, x: Any) -> None:
    kept = []

    def fails() -> None:
        with session.record(x=x):
            kept.append(x * 2)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    with pytest.raises(cb.GpuRefStale):
        kept[0].get()
    np.testing.assert_array_equal((x + 1).get(), [2, 3, 4, 5])
