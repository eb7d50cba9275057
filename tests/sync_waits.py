"""A program that waits: enters waits of ``cb.sync`` and tells when it is in one; run by ``test_sync_waits.py``.

``python sync_waits.py waits`` enters all waits of :data:`WAITS` one after the other, and ``python sync_waits.py NAME``
one of :data:`ENDINGS`, which ends the program. Each would take a minute or more.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import callboard as cb

LONG = 600.0
MOST = 64
OPTIONS: dict[str, Any] = {"standby": None, "close_timeout": 120.0, "hang_after": 120.0, "max_staged_bytes": 1 << 20}


class Asked(cb.Request["Sleeper", int], tag="waits.asked"):
    """Answered late."""


class Sleeper(cb.ResidentActor):
    """Does not return from its calls."""

    def sleep(self) -> None:
        time.sleep(LONG)

    def hold(self, x: Any, y: Any) -> None:
        time.sleep(LONG)

    def items(self) -> Any:
        yield 1
        time.sleep(LONG)

    def reluctant(self) -> Any:
        try:
            yield 1
            yield 2
        finally:
            time.sleep(LONG)

    @Asked.handles
    def asked(self, message: Asked) -> int:
        time.sleep(LONG)
        return 1


class Late(cb.ResidentActor):
    """Is not ready."""

    def setup(self, ctx: cb.HostContext) -> None:
        time.sleep(LONG)


class Scene:
    """What the waits use.

    Attributes:
        gpu: A device with arrays that an actor does not give back.
        held, large: Those arrays; ``large`` is transferred in parts.
        stopped: A device in a process, which is stopped.
    """

    def __init__(self) -> None:
        self.gpu = cb.sync.device("cpu", isolation="thread", max_in_flight=MOST, **OPTIONS)
        self.stopped = cb.sync.System("stopped").device("cpu", isolation="process", **OPTIONS)
        self.actor = self.gpu.actor_of(cb.Props(Sleeper), name="holder", wait=True)
        self.held, self.large = self.gpu.zeros(4), self.gpu.zeros(1 << 19)
        self.large.result()
        self.actor._ref.call(Sleeper.hold, self.held, self.large)
        self.pool = self.stopped.pinned_pool(1)
        self.buffer = self.pool.acquire(4)
        self.quarantine = cb.sync.Quarantine(self.gpu)
        self.serving = cb.sync.serving(cb.DynamicBatchingServer(blocked))
        self.server = self.serving.__enter__()
        pid = self.stopped.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)

    def fresh(self) -> "cb.sync.ResidentRef[Sleeper]":
        """An actor that is idle."""
        return self.gpu.actor_of(cb.Props(Sleeper), wait=True)

    def stream(self, method: Any) -> "cb.sync.Stream[int]":
        """A stream whose first item has been taken."""
        opened = self.fresh().stream(method).with_prefetch(0)
        next(opened)
        return opened

    def fill(self) -> None:
        """Call ops until there is no room for more."""
        while self.gpu.in_flight < MOST:
            self.gpu.fill(self.held, 1.0)


def nothing(scene: Scene) -> None:
    """Nothing is prepared."""


Wait = tuple[Callable[[Scene], Any], Callable[[Scene, Any], object]]

WAITS: dict[str, Wait] = {
    "Ref.result": (lambda s: s.gpu.copy(s.held), lambda s, ref: ref.result()),
    "Ref.get": (nothing, lambda s, _: s.held.get()),
    "Ref.get, in parts": (nothing, lambda s, _: s.large.get()),
    "Ref.__array__": (nothing, lambda s, _: np.asarray(s.held)),
    "Device.wait_generation": (nothing, lambda s, _: s.gpu.wait_generation()),
    "Device.events": (lambda s: s.gpu.events(), lambda s, events: next(events)),
    "Device.drain": (nothing, lambda s, _: s.gpu.drain()),
    "Device.room": (nothing, lambda s, _: s.gpu.room(MOST)),
    "Device.stats": (nothing, lambda s, _: s.stopped.stats()),
    "Device.pool_stats": (nothing, lambda s, _: s.stopped.pool_stats()),
    "Device.trim": (nothing, lambda s, _: s.stopped.trim()),
    "Device.set_memory_limit": (nothing, lambda s, _: s.stopped.set_memory_limit(1 << 30)),
    "Device.trace": (nothing, lambda s, _: s.stopped.trace(print)),
    "Device.watch_memory": (nothing, lambda s, _: s.stopped.watch_memory(print)),
    "Device.actor_of": (nothing, lambda s, _: s.gpu.actor_of(cb.Props(Late), wait=True)),
    "ResidentRef.call": (Scene.fresh, lambda s, actor: actor.call(Sleeper.sleep)),
    "ResidentRef.ask": (Scene.fresh, lambda s, actor: actor.ask(Asked())),
    "ResidentRef.ready": (lambda s: s.gpu.actor_of(cb.Props(Late)), lambda s, actor: actor.ready()),
    "Stream.__next__": (lambda s: s.stream(Sleeper.items), lambda s, stream: next(stream)),
    "Stream.close": (lambda s: s.stream(Sleeper.reluctant), lambda s, stream: stream.close()),
    "PinnedBufferPool.acquire": (nothing, lambda s, _: s.pool.acquire(4)),
    "Quarantine.run": (nothing, lambda s, _: s.quarantine.run("key", lambda gpu: s.held.get())),
    "serving, ask": (nothing, lambda s, _: s.server.ask(1)),
    "Device.copy, without room": (Scene.fill, lambda s, _: s.gpu.copy(s.held)),
    "Device.put, without room": (Scene.fill, lambda s, _: s.gpu.put(np.ones(4))),
    "ResidentRef.tell": (Scene.fill, lambda s, _: s.actor.tell(Asked())),
    "ResidentRef.stream": (Scene.fill, lambda s, _: s.actor.stream(Sleeper.items)),
}
"""Waits after which the devices can still be used: what is prepared for each, and the wait."""


def device(isolation: str) -> "cb.sync.Device":
    return cb.sync.device("cpu", isolation=isolation, **OPTIONS)


def hold(gpu: "cb.sync.Device", own_process: bool = False) -> "cb.sync.ResidentRef[Sleeper]":
    """An actor that is in a call."""
    actor = gpu.actor_of(cb.Props(Sleeper), name="holder", wait=True, own_process=own_process)
    actor._ref.call(Sleeper.sleep)
    return actor


def close_device() -> None:
    gpu = device("thread")
    hold(gpu)
    gpu.close()


def leave_device() -> None:
    with device("thread") as gpu:
        hold(gpu)


def leave_two_blocks() -> None:
    with device("thread") as gpu, serving(lambda items: gpu.zeros(3).get()) as server:
        hold(gpu).call(Sleeper.sleep)
        server.ask(1)


def leave_system() -> None:
    with cb.sync.System("one") as system:
        hold(system.device("cpu", isolation="thread", **OPTIONS))


def at_exit() -> None:
    hold(device("thread"))


def stop_actor() -> None:
    with device("thread") as gpu:
        hold(gpu).stop(timeout=LONG)


def stop_actor_in_a_process() -> None:
    with device("process") as gpu:
        hold(gpu, own_process=True).stop(timeout=LONG)


def frozen_host() -> None:
    with device("process") as gpu:
        pid = gpu.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)


def leave_quarantine() -> None:
    with device("thread") as gpu, cb.sync.Quarantine(gpu) as quarantine:
        quarantine.run("key", lambda gpu: hold(gpu).call(Sleeper.sleep))


def serving(function: Any) -> Any:
    return cb.sync.serving(cb.DynamicBatchingServer(function))


def blocked(items: list[int]) -> None:
    time.sleep(LONG)


def leave_server() -> None:
    with serving(blocked) as server:
        server.submit_threadsafe(1)


def server_at_exit() -> None:
    server = serving(blocked).__enter__()
    server.submit_threadsafe(1)


def interrupt_the_body_of_a_server() -> None:
    with serving(blocked) as server:
        server.submit_threadsafe(1).result(LONG)


async def stubborn(items: list[int]) -> list[int]:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)


def leave_a_server_that_cannot_be_cancelled() -> None:
    with serving(stubborn) as server:
        server.submit_threadsafe(1)


ENDINGS: dict[str, Callable[[], None]] = {
    f.__name__: f
    for f in (
        *(close_device, leave_device, leave_two_blocks, leave_system, at_exit, stop_actor, stop_actor_in_a_process),
        *(frozen_host, leave_quarantine, leave_server, server_at_exit, interrupt_the_body_of_a_server),
        leave_a_server_that_cannot_be_cancelled,
    )
}

PLACES = ("callboard/actors/loops/bell.py", "/threading.py")
"""Modules in which a waiting thread is."""
STARTS = threading.Thread.start.__code__


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


class Watch:
    """Tells when the main thread waits in the present row, and when it waits in a hurry.

    Attributes:
        row: Number of the row; 0 between rows.
    """

    def __init__(self) -> None:
        self.row = self.rows = 0
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self) -> None:
        self.rows += 1
        self.row = self.rows

    def _run(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        told, pause = (0, ""), threading.Event()
        while True:
            pause.wait(0.01)
            row, frame = self.row, sys._current_frames().get(main)
            inside = frame is not None and frame.f_code.co_filename.endswith(PLACES)
            names = set()
            while frame is not None:
                inside &= frame.f_code is not STARTS  # a thread is there soon
                names.add(frame.f_code.co_name)
                frame = frame.f_back
            now = row, "hurries" if "_hasten" in names else "waits"
            if inside and row and row == self.row and now != told:
                say(now[1])
                told = now


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell has it ignored by what runs in the background
    watch = Watch()
    if sys.argv[1] == "waits":
        global scene
        scene = Scene()  # what it has open is closed when the interpreter exits
        for name, (prepare, wait) in WAITS.items():
            made = prepare(scene)
            try:
                watch.begin()
                wait(scene, made)
                say(f"did not wait: {name}")
            except KeyboardInterrupt:
                watch.row = 0
                say(f"left {name}")
        watch.begin()
        return 0
    watch.begin()
    try:
        ENDINGS[sys.argv[1]]()
    except KeyboardInterrupt:
        say("left")
        return 7
    return 0


if __name__ == "__main__":
    sys.exit(main())
