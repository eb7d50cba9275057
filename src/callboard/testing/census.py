"""``Census``: the processes, descriptors, mappings and threads of callboard that this process has.

Two of them, before and after, show what the code in between left behind.
"""

import gc
import os
import re
import socket
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from callboard.actors.loops import blocking

__all__ = ["Census", "LeftBehind", "nothing_left"]

LASTING = frozenset({"callboard-monitor", "callboard-spawner"})
"""Threads that one process starts once, when they are first needed, and keeps."""

PATIENCE = 5.0
"""Seconds that resources in the course of ending have: a killed process is reaped by the loop or by the kernel."""

FDS = "/proc/self/fd"
MEMFD = "/memfd:callboard"
DEVICES = ("/dev/nvidiactl", "/dev/dxg")
"""Device files of NVIDIA's kernel driver, on Linux and under WSL: without one, its libraries keep nothing open."""
HOST = b"callboard.device.host.child"

NVIDIA = (b"/libnvidia-ml.so", b"/libcuda.so", b"/libnccl.so")
NCCL = "callboard.backends.cuda.collective.nccl"
LISTENS = ", listening"
GPU = re.compile("/dev/nvidia[0-9]+")
WITHOUT_CONTEXT = 8
"""Most descriptors of one GPU without a context: NVML has 1 and the driver 4, and a context has 16 (driver 580)."""


class LeftBehind(AssertionError):
    """Something of callboard is still there; the text names each."""


class Census(NamedTuple):
    """The resources at one moment, by a unique key, with a description.

    Attributes:
        processes: Context hosts that are our children, ended ones that were not waited for included.
        descriptors: Sockets, pipes, memfds, eventfds, pidfds and epolls of this process.
        mappings: Arenas mapped into this process.
        threads: Threads named ``callboard-…`` that are not meant to last as long as the process.
        driver: State of NVIDIA's libraries in this process: how many are loaded, how many descriptors of unified memory
            they have, and whether there is a context. Each of these opens descriptors permanently.
        unique_ids: Unique ids that NCCL has made. It keeps a listening socket for each that no communicator has used.
    """

    processes: dict[object, str]
    descriptors: dict[object, str]
    mappings: dict[object, str]
    threads: dict[object, str]
    driver: int
    unique_ids: int = 0

    @classmethod
    def take(cls) -> "Census":
        """Count now. On other systems than Linux, only the threads.

        Taken twice for each test. The kernel takes milliseconds to print all processes and all mappings: they are read
        only if this process has children, and an open memfd or a GPU.
        """
        descriptors = dict(_descriptors())
        # mmap.mmap keeps a descriptor of its own: without an open arena, no arena is mapped.
        wanted = any(MEMFD in text for text in descriptors.values()) or any(map(os.path.exists, DEVICES))
        maps = _read("/proc/self/maps") if wanted else b""
        processes = dict(_processes()) if _has_children() else {}
        return cls(processes, descriptors, dict(_mappings(maps)), dict(_threads()), _driver(maps), _unique_ids())

    def since(self, before: "Census") -> list[str]:
        """Descriptions of objects that are new since the census."""
        if self.driver > before.driver:  # its own descriptors look like ours
            before = before._replace(descriptors=self.descriptors)
        new = [
            [text for key, text in now.items() if key not in then]
            for now, then in zip(self[:4], before[:4], strict=True)
        ]
        for text in [text for text in new[1] if text.endswith(LISTENS)][: self.unique_ids - before.unique_ids]:
            new[1].remove(text)
        return [text for texts in new for text in texts]


@contextmanager
def nothing_left(patience: float = PATIENCE) -> Iterator[None]:
    """Check that the block leaves no host process, descriptor, arena or thread of callboard behind.

    ::

        with nothing_left():
            asyncio.run(main())

    Args:
        patience: Seconds to wait for resources that are being released.

    Raises:
        LeftBehind: With one line for each.
    """
    before = Census.take()
    yield
    if not Census.take().since(before):
        return
    gc.collect()  # objects that only a cycle of garbage keeps alive are late, not left behind
    deadline = time.monotonic() + patience
    pause = 0.001
    while (left := Census.take().since(before)) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
        gc.collect()  # again: a thread that ended meanwhile may have held the cycle
    if left:
        raise LeftBehind("left behind:\n" + "\n".join(f"  {line}" for line in left))


def _has_children() -> bool:
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _processes() -> Iterator[tuple[object, str]]:
    parent = str(os.getpid()).encode()
    for pid in filter(str.isdigit, _names("/proc")):
        # "pid (name) state ppid …", and the name may hold anything
        state, ppid, *_ = [*_read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 2), b"", b""]
        if ppid != parent:
            continue
        command = _read(f"/proc/{pid}/cmdline")
        if HOST in command:
            label = command.split(b"--label\0")[-1].split(b"\0")[0].decode(errors="replace")
            yield pid, f"process {pid}: the context host {label}"
        elif state == b"Z":
            yield pid, f"process {pid}: ended, and was not waited for"


def _descriptors() -> Iterator[tuple[object, str]]:
    lasting = _lasting_descriptors()
    for name in _names(FDS):
        number = int(name)
        try:
            mode, target = os.fstat(number).st_mode, os.readlink(f"{FDS}/{name}")
        except OSError:
            continue
        ours = stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) or target.startswith((MEMFD, "anon_inode:"))
        if ours and number not in lasting:
            suffix = LISTENS if stat.S_ISSOCK(mode) and _listens(number) else ""
            yield (number, target), f"descriptor {number}: {target}{suffix}"


def _listens(descriptor: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            return copy.family in (socket.AF_INET, socket.AF_INET6) and bool(
                copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            )
    except OSError:  # closed meanwhile
        return False


def _unique_ids() -> int:
    return getattr(sys.modules.get(NCCL), "unique_ids", 0)


def _lasting_descriptors() -> frozenset[int | None]:
    monitor = getattr(sys.modules.get("callboard.device.supervision.hosts.monitor"), "_monitor", None)
    return blocking.descriptors() | (frozenset() if monitor is None else monitor.descriptors)


def _mappings(maps: bytes) -> Iterator[tuple[object, str]]:
    if MEMFD.encode() not in maps:
        return
    for line in maps.decode(errors="replace").splitlines():
        if MEMFD in line:
            where, name = line.split()[0], line.partition("/memfd:")[2]
            yield (where, name), f"mapping {where}: {name}"


def _driver(maps: bytes) -> int:
    loaded = sum(library in maps for library in NVIDIA)
    if not loaded:
        return 0
    opened = Counter(_target(f"{FDS}/{name}") for name in _names(FDS))
    has_context = any(count > WITHOUT_CONTEXT for target, count in opened.items() if GPU.fullmatch(target))
    return loaded + opened["/dev/nvidia-uvm"] + has_context


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _threads() -> Iterator[tuple[object, str]]:
    for thread in threading.enumerate():
        if thread.name.startswith("callboard") and thread.name not in LASTING:
            yield thread, f"thread {thread.name}"


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> bytes:
    """Read a file of /proc, empty if it does not exist; some thousand are read for each test."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    parts = []
    try:
        while part := os.read(descriptor, 1 << 20):
            parts.append(part)
    except OSError:  # the process ended meanwhile
        return b""
    finally:
        os.close(descriptor)
    return b"".join(parts)
