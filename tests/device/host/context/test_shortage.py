"""No memory, address space or thread in a host: only the op that needs it fails."""

import errno
import threading
from typing import Any

import pytest
from tests.device.host.context.hosting import Hosted, Kept
from tests.device.steps import Right, StepsBackend

from callboard.backends.cpu.device import CpuDevice
from callboard.core.backend import DeviceInfo
from callboard.core.errors import OutOfMemory
from callboard.device.host.context.admission.arenas import Arenas
from callboard.device.host.context.admission.shortage import shortage
from callboard.device.host.context.preparing import Helper
from callboard.device.protocol.messages import MapArena
from callboard.kernel.memory import Empty


def no_thread(*_: Any) -> Any:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    "error, is_one",
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("can't start new thread"), True),
        (OutOfMemory("of the device"), True),
        (OSError(errno.EBADF, "Bad file descriptor"), False),
        (RuntimeError("no"), False),
    ],
)
def test_what_counts(error: Exception, is_one: bool) -> None:
    short = shortage(error, "this")
    assert (short is not None) == is_one
    assert short is None or short is error or str(short).startswith("this: the context host ")


def test_a_limit_of_threads_is_not_taken_for_one_of_memory() -> None:
    thread, memory = shortage(RuntimeError("can't start new thread"), "this"), shortage(MemoryError(), "this")
    assert "can start no thread" in str(thread)
    assert "ulimit -u, the cgroup's pids.max" in str(thread)
    assert "no memory" not in str(thread)
    assert "has no memory" in str(memory)
    assert "ulimit -u" not in str(memory)


class Line(Kept):
    """Maps an arena when there is room."""

    def __init__(self, room: list[bool]) -> None:
        super().__init__()
        self.room = room
        self.mapped: list[int] = []

    def map_arena(self, arena: int, nbytes: int, address: int) -> int:
        if not self.room.pop(0):
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        self.mapped.append(arena)
        return 4096


class Registers:
    """A device that registers host memory when there is room."""

    def __init__(self, room: list[bool]) -> None:
        self.room = room
        self.registered: list[int] = []

    def register_host(self, address: int, nbytes: int) -> None:
        if not self.room.pop(0):
            raise OutOfMemory("no room in the driver")
        self.registered.append(address)

    def unregister_host(self, address: int) -> None:
        self.registered.remove(address)


@pytest.mark.parametrize("who", ["line", "device"])
def test_an_arena_without_room_is_mapped_when_it_is_needed(who: str) -> None:
    room = [False, False, False, True]
    always = [True] * 4
    line = Line(room if who == "line" else always)
    device = Registers(room if who == "device" else always)
    trims: list[None] = []
    arenas = Arenas(line, device, lambda: trims.append(None))  # type: ignore[arg-type]
    arenas.announce(MapArena(7, 64))
    assert len(trims) == 1
    assert arenas.find(8) == (0, -1)
    with pytest.raises(OutOfMemory):
        arenas.find(7)
    assert arenas.find(7) == arenas.mapped[7] == (4096, 64)
    assert line.mapped == [7]
    arenas.forget(7)
    assert device.registered == []
    assert arenas.find(7) == (0, -1)


def test_an_arena_that_never_had_room_is_forgotten() -> None:
    arenas = Arenas(Line([False, False]), Registers([]), lambda: None)  # type: ignore[arg-type]
    arenas.announce(MapArena(7, 64))
    arenas.forget(7)
    assert arenas.find(7) == (0, -1)


class Threadless(CpuDevice):
    """Its second stream cannot be started the first time."""

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self.calls = 0

    def stream(self, priority: int = 0) -> Any:
        self.calls += 1
        return no_thread() if self.calls == 2 else super().stream(priority)


class ThreadlessBackend(StepsBackend):
    def open(self, info: DeviceInfo) -> Any:
        return Threadless(info)


def test_a_library_without_a_stream_is_out_of_memory_and_tried_again() -> None:
    hosted = Hosted(ThreadlessBackend())
    try:
        _, (x,) = hosted.call(Empty(shape=(4,), dtype="f32"))
        refused, _ = hosted.call(Right(x=x))
        made, _ = hosted.call(Right(x=x))
        hosted.finish()
        assert hosted.failed[refused].error == "OutOfMemory"
        assert made in hosted.done
    finally:
        hosted.close()


def test_a_helper_without_a_thread_is_the_jobs_error_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    woken = threading.Semaphore(0)
    helper = Helper(lambda: None, lambda what: None, woken.release)
    ended: list[BaseException | None] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        helper.run("job", lambda: None, ended.append)
    helper.run("job", lambda: None, ended.append)
    for _ in range(2):
        assert woken.acquire(timeout=20.0)
    helper.finish()
    assert isinstance(ended[0], RuntimeError)
    assert ended[1] is None
    assert helper.jobs == 0
    helper.close()
