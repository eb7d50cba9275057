"""Bells and handovers: no ring and no item is lost, whenever it comes; waits end in time."""

import contextlib
import os
import threading

import pytest
from tests.together import together

from callboard.actors.loops import bell as bells
from callboard.actors.loops.bell import Bell
from callboard.actors.loops.handover import Handover

LIMIT = 60.0
"""Seconds that a thread may take."""


@pytest.fixture(params=["select", "poll", "lock"])
def bell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bell:
    if request.param == "poll":  # as for a descriptor that `select` does not take
        monkeypatch.setattr(bells, "SELECTABLE", 0)
    elif request.param == "lock":  # as on macOS
        monkeypatch.delattr(os, "eventfd")
    return Bell()


def test_rings_before_a_wait_end_one_wait(bell: Bell) -> None:
    bell.ring()
    bell.ring()
    assert bell.wait(LIMIT)
    assert not bell.wait(0.0)
    bell.ring()
    assert bell.wait()


@pytest.mark.parametrize("timeout", [-1.0, 0.0, 1e-4, 2e-3])
def test_a_wait_ends_in_time(bell: Bell, timeout: float) -> None:
    assert not bell.wait(timeout)


@pytest.mark.parametrize("timeout", [None, LIMIT])
def test_each_ring_of_another_thread_is_heard(bell: Bell, timeout: float | None) -> None:
    back, rounds = Bell(), 2000
    heard = 0

    def answer() -> None:
        nonlocal heard
        for _ in range(rounds):
            if not bell.wait(timeout):
                return
            heard += 1
            back.ring()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    for _ in range(rounds):
        bell.ring()
        assert back.wait(LIMIT)
    thread.join(LIMIT)
    assert heard == rounds


def test_a_closed_bell_has_no_descriptor_and_neither_rings_nor_waits() -> None:
    bell = Bell()
    descriptor = bell.descriptor
    assert descriptor is not None
    bell.close()
    bell.close()
    assert bell.descriptor is None
    with contextlib.suppress(FileNotFoundError):  # else the number is that of another file by now
        assert "eventfd" not in os.readlink(f"/proc/self/fd/{descriptor}")
    bell.ring()
    assert not bell.wait()


def test_a_ring_in_progress_keeps_the_descriptor_of_a_closed_bell() -> None:
    bell = Bell()
    wire = bell._wire  # as `ring` on another thread holds it
    assert wire is not None
    bell.close()
    wire.ring()


def test_a_closed_handover_gives_what_it_has() -> None:
    queue: Handover[int] = Handover()
    queue.put(1)
    queue.close()
    queue.put(2)
    assert (queue.get(), queue.get()) == (1, 2)
    with pytest.raises(LookupError, match="closed"):
        queue.get()


def test_items_of_several_threads_arrive_once_and_in_each_ones_order() -> None:
    count, threads = 3000, 4
    queue: Handover[tuple[int, int]] = Handover()
    got: list[tuple[int, int]] = []

    def take() -> None:
        got.extend(queue.get() for _ in range(count * threads))

    def put(thread: int) -> None:
        for item in range(count):
            queue.put((thread, item))

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    together(put, [(i,) for i in range(threads)], LIMIT)
    taker.join(LIMIT)
    assert not taker.is_alive()
    assert not queue
    for thread in range(threads):
        assert [item for owner, item in got if owner == thread] == list(range(count))
