"""Objects that count as left behind."""

import contextlib
import os
import socket
import threading

import pytest

from callboard.backends.cuda.collective import nccl
from callboard.testing.census import Census, LeftBehind, nothing_left


def census(driver: int, *descriptors: str) -> Census:
    return Census({}, {text: text for text in descriptors}, {}, {}, driver)


def test_what_is_new_is_left_behind() -> None:
    assert census(0, "a", "b").since(census(0, "a")) == ["b"]
    assert census(2, "b").since(census(2, "a")) == ["b"]
    assert census(0).since(census(0, "a")) == []


@pytest.mark.parametrize("before, now", [(0, 1), (0, 2), (1, 2)])
def test_the_drivers_own_descriptors_are_not(before: int, now: int) -> None:
    """When it is loaded, and when it makes its first context; nothing but descriptors is forgiven for it."""
    assert census(now, "pipe").since(census(before)) == []
    alive = census(now, "pipe")._replace(processes={"7": "process 7"})
    assert alive.since(census(before)) == ["process 7"]
    assert census(before, "pipe").since(census(before)) == ["pipe"]
    assert census(now, "pipe").since(census(now)) == ["pipe"]


def test_the_socket_of_a_unique_id_that_is_not_used_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as ids were made meanwhile; only sockets that listen for TCP connections."""
    monkeypatch.setattr(nccl, "unique_ids", 7)
    before = Census.take()
    with contextlib.ExitStack() as opened:
        first, second = (opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        assert len(Census.take().since(before)) == 2
        monkeypatch.setattr(nccl, "unique_ids", 8)
        assert len(left := Census.take().since(before)) == 1
        assert left[0].endswith(", listening")
        monkeypatch.setattr(nccl, "unique_ids", 9)
        assert Census.take().since(before) == []
        first.close()
        pair = [opened.enter_context(one) for one in socket.socketpair()]
        assert len(left := Census.take().since(before)) == 2
        assert {int(text.split()[1][:-1]) for text in left} == {one.fileno() for one in pair}
        assert second.fileno() >= 0


def test_a_descriptor_and_a_thread_are_named() -> None:
    read, write = os.pipe()
    end = threading.Event()
    thread = threading.Thread(target=end.wait, args=(60,), name="callboard-of-a-test", daemon=True)
    kept: list[int] = []

    def leave() -> None:
        with nothing_left(0.01):
            kept.append(os.dup(read))
            thread.start()

    try:
        with pytest.raises(LeftBehind) as caught:
            leave()
        assert f"  descriptor {kept[0]}: pipe:" in str(caught.value)
        assert "  thread callboard-of-a-test" in str(caught.value)
    finally:
        end.set()
        thread.join(5)
        for descriptor in (read, write, *kept):
            os.close(descriptor)
