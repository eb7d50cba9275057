"""``Census``: the processes, descriptors, mappings and threads of callboard that this process has.

Two of them, before and after, show what was left behind.
"""

import gc
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["Census", "LeftBehind", "nothing_left"]

LASTING = frozenset({"callboard-monitor", "callboard-spawner"})
"""Threads that one process starts once, when they are first needed, and keeps."""

PATIENCE = 5.0
"""Seconds that what is ending gets to end: a killed process is reaped by the loop or by the kernel, not by us."""

HOST = b"callboard.device.hosts.child"


class LeftBehind(AssertionError):
    """Something of callboard is still there; the text names each."""


class Census(NamedTuple):
    """What there is at one moment, by a key that tells two apart, with a description.

    Attributes:
        processes: Context hosts that are our children, ended ones that nobody waited for included.
        descriptors: Sockets, pipes, memfds, eventfds, pidfds and epolls of this process.
        mappings: Arenas mapped into this process.
        threads: Threads named ``callboard-…`` that do not last as long as the process by design.
        driver: How far the CUDA driver has come in this process: 0 it is not loaded, 1 it is, 2 it has made a context.
            Each step opens descriptors of its own, for good.
    """

    processes: dict[object, str]
    descriptors: dict[object, str]
    mappings: dict[object, str]
    threads: dict[object, str]
    driver: int

    @classmethod
    def take(cls) -> "Census":
        """Count now. On other systems than Linux, only the threads."""
        return cls(dict(_processes()), dict(_descriptors()), dict(_mappings()), dict(_threads()), _driver())

    def since(self, before: "Census") -> list[str]:
        """Descriptions of what is here and was not there."""
        if self.driver > before.driver:  # its own descriptors look like ours
            before = before._replace(descriptors=self.descriptors)
        return [
            text for now, then in zip(self[:4], before[:4], strict=True) for key, text in now.items() if key not in then
        ]


@contextmanager
def nothing_left(patience: float = PATIENCE) -> Iterator[None]:
    """Check that the block leaves no host process, descriptor, arena or thread of callboard behind.

    ::

        with nothing_left():
            asyncio.run(main())

    Args:
        patience: Seconds to wait for what is ending.

    Raises:
        LeftBehind: With one line for each.
    """
    before = Census.take()
    yield
    left = Census.take().since(before)
    if left:
        gc.collect()  # what only a cycle of garbage holds is not left behind, only late
    deadline = time.monotonic() + patience
    pause = 0.001
    while (left := Census.take().since(before)) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    if left:
        raise LeftBehind("left behind:\n" + "\n".join(f"  {line}" for line in left))


def _processes() -> Iterator[tuple[object, str]]:
    parent = str(os.getpid()).encode()
    for folder in _entries("/proc"):
        if not folder.name.isdigit():
            continue
        try:
            # "pid (name) state ppid …", and the name may hold anything
            state, ppid = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if ppid != parent:
                continue
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if HOST in command:
            label = command.split(b"--label\0")[-1].split(b"\0")[0].decode(errors="replace")
            yield folder.name, f"process {folder.name}: the context host {label}"
        elif state == b"Z":
            yield folder.name, f"process {folder.name}: ended, and nobody has waited for it"


def _descriptors() -> Iterator[tuple[object, str]]:
    lasting = _lasting_descriptors()
    for entry in _entries("/proc/self/fd"):
        number = int(entry.name)
        try:
            mode, target = os.fstat(number).st_mode, os.readlink(entry)
        except OSError:
            continue
        ours = stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) or target.startswith(("/memfd:callboard", "anon_inode:"))
        if ours and number not in lasting:
            yield (number, target), f"descriptor {number}: {target}"


def _lasting_descriptors() -> frozenset[int]:
    monitor = getattr(sys.modules.get("callboard.device.hosts.monitor"), "_monitor", None)
    return frozenset() if monitor is None else monitor.descriptors


def _mappings() -> Iterator[tuple[object, str]]:
    for line in _maps().splitlines():
        if "/memfd:callboard" in line:
            where, name = line.split()[0], line.partition("/memfd:")[2]
            yield (where, name), f"mapping {where}: {name}"


def _driver() -> int:
    if "/libcuda.so" not in _maps():
        return 0
    return 2 if any(_target(entry).startswith("/dev/nvidia") for entry in _entries("/proc/self/fd")) else 1


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _maps() -> str:
    try:
        return Path("/proc/self/maps").read_text()
    except OSError:
        return ""


def _threads() -> Iterator[tuple[object, str]]:
    for thread in threading.enumerate():
        if thread.name.startswith("callboard") and thread.name not in LASTING:
            yield thread, f"thread {thread.name}"


def _entries(folder: str) -> list[Path]:
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []
