"""The service of child processes and threads in these tests in place of a context: echo, and faults on request."""

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from callboard.device.host.channel import Channel
from callboard.device.protocol.messages import Answer, Ask, Calls, Close, Closed, Completions, MapArena, UnmapArena
from callboard.device.protocol.wire import UnknownKind

PR_SET_PDEATHSIG = 1
released = threading.Event()  # ends a "stick" in a thread
sticks = threading.Event()  # one has begun
held: list[SharedMemory] = []


def serve(channel: Channel) -> int:
    """Every call succeeds at once; every request does what it says and is answered."""
    arenas: dict[int, tuple[int, int]] = {}
    while True:
        channel.beat()
        for message in channel.receive(None):
            match message:
                case Calls(calls=calls):
                    channel.send(Completions([call.id for call in calls], [], []))
                case Ask(id=id, what=what, argument=argument):
                    request: Callable[..., Any] = globals()[f"do_{what}"]
                    answer = request(arenas if "arena" in what else channel, argument)
                    channel.send(Answer(id, answer or b""))
                case MapArena(arena=arena, nbytes=nbytes, address=address):
                    arenas[arena] = channel.map_arena(arena, nbytes, address), nbytes
                case UnmapArena(arena=arena):
                    del arenas[arena]
                    channel.unmap_arena(arena)
                case Close():
                    channel.send(Closed())
                    return 0
                case UnknownKind(kind=kind):
                    channel.send(Answer(0, str(kind).encode()))


def do_echo(channel: Channel, argument: bytes) -> bytes:
    return argument


def do_leave(channel: Channel, argument: bytes) -> None:
    channel.send(Answer(0, b"last words"))
    channel.leave(int(argument))


def do_raise(channel: Channel, argument: bytes) -> None:
    raise ZeroDivisionError(argument.decode())


def do_wake(channel: Channel, argument: bytes) -> bytes:
    """Wait for something; a thread wakes us, nothing arrives."""
    thread = threading.Thread(target=channel.wake)
    thread.start()
    got = channel.receive(None)
    thread.join()
    return b"%d" % len(got)


def do_wait(channel: Channel, argument: bytes) -> bytes:
    begin = time.monotonic()
    got = channel.receive(float(argument))
    return b"%d %d" % (len(got), time.monotonic() - begin >= 0.9 * float(argument))


def do_flood(channel: Channel, argument: bytes) -> None:
    """Many messages from four threads."""

    def send(thread: int) -> None:
        for n in range(int(argument)):
            channel.send(Completions([thread, n], [], []))

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def do_flood_later(channel: Channel, argument: bytes) -> None:
    """Many messages from a thread, while the admitting thread waits for messages."""

    def send() -> None:
        for n in range(int(argument)):
            channel.send(Completions([n], [], []))

    threading.Thread(target=send).start()


def do_stick(channel: Channel, argument: bytes) -> None:
    """Never come back, while other threads run."""
    if argument == b"announced":
        channel.busy("a long step")
    elif argument == b"beside":
        announced = threading.Event()

        def step() -> None:
            channel.busy("another thread's step")
            announced.set()
            released.wait()

        threading.Thread(target=step, daemon=True).start()
        announced.wait()
    sticks.set()
    released.wait()
    channel.busy(None)


def do_hold_gil(channel: Channel, argument: bytes) -> None:
    """Never come back, and let no other thread run."""
    channel.send(Answer(0, b"holding"))
    ctypes.PyDLL(None).pause()


def do_print(channel: Channel, argument: bytes) -> None:
    print(argument.decode())
    print("warned", file=sys.stderr)
    logging.getLogger("some.library").error("failed %s", "badly")
    logging.getLogger("some.library").debug("too fine")
    try:
        raise ZeroDivisionError("the cause")
    except ZeroDivisionError:
        logging.getLogger("some.library").exception("with a traceback")


def do_loud_abort(channel: Channel, argument: bytes) -> None:
    print("famous last words", file=sys.stderr)
    os.abort()


def do_garbage(channel: Channel, argument: bytes) -> None:
    sock: socket.socket = channel._sock  # type: ignore[attr-defined]
    sock.send(argument)
    released.wait()


def do_shrink(channel: Channel, argument: bytes) -> bytes:
    """The smallest buffers that the kernel allows."""
    sock: socket.socket = channel._sock  # type: ignore[attr-defined]
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    return b"%d" % sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def do_no_death_signal(channel: Channel, argument: bytes) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)


def do_fork(channel: Channel, argument: bytes) -> None:
    """Leave a process behind that holds our descriptors, and die."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    channel.send(Answer(0, b"%d" % pid))
    channel.leave(3)


def do_start(channel: Channel, argument: bytes) -> bytes:
    """Start a process that lasts, and is named by its kind."""
    command = "trap '' TERM; echo; exec sleep 1000" if argument == b"stubborn" else "echo; exec sleep 1000"
    process = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, start_new_session=argument == b"session")
    assert process.stdout is not None
    process.stdout.readline()
    return b"%d" % process.pid


def do_share(channel: Channel, argument: bytes) -> bytes:
    """Shared memory that only multiprocessing's resource tracker removes, if this process is killed."""
    shared = SharedMemory(create=True, size=16)
    held.append(shared)
    return shared.name.encode()


def do_state(channel: Channel, argument: bytes) -> bytes:
    state = [os.environ.get("PYTHONPATH"), os.environ.get("CALLBOARD_CHILD_PATH"), os.getsid(0) == os.getpid()]
    return repr([*state, sys.path, os.environ.get("BACKEND"), sorted(os.listdir("/proc/self/fd"))]).encode()


def do_arena_add(arenas: dict[int, tuple[int, int]], argument: bytes) -> None:
    """Add one to every byte of an arena."""
    address, nbytes = arenas[int(argument)]
    data = (ctypes.c_ubyte * nbytes).from_address(address)
    data[:] = bytes((value + 1) % 256 for value in data)
