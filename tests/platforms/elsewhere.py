"""Take away what macOS or Windows lacks, then run the program: ``python elsewhere.py win32 program.py``.

A simulation: the standard library and NumPy are imported first, so theirs is Linux's behaviour. What is tested is what
callboard imports, calls and opens.
"""

import asyncio
import builtins
import concurrent.futures
import concurrent.futures.thread
import contextlib
import faulthandler
import fcntl
import importlib
import importlib.abc
import multiprocessing
import os
import runpy
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import types
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.linalg

IMPORTED = (
    asyncio,
    concurrent.futures,
    concurrent.futures.thread,
    multiprocessing,
    np,
    scipy.linalg,
    ssl,
    subprocess,
    urllib.request,
)
LINUX: dict[Any, tuple[str, ...]] = {
    os: (
        "CLD_EXITED", "P_PIDFD", "eventfd", "memfd_create", "pidfd_open", "pipe2", "sched_getaffinity",
        "sched_setaffinity", "sendfile", "splice",
    ),
    select: ("epoll",),
    signal: ("pidfd_send_signal",),
    socket: ("SO_REUSEPORT", "TCP_USER_TIMEOUT"),
}  # fmt: skip
"""What only Linux has."""
POSIX: dict[Any, tuple[str, ...]] = {
    os: (
        "WNOHANG", "fork", "forkpty", "getpgid", "getuid", "geteuid", "getgid", "killpg", "mkfifo",
        "register_at_fork", "setsid", "sysconf", "uname", "waitid",
    ),
    select: ("poll",),
    signal: ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "pthread_kill", "pthread_sigmask", "sigwait"),
    socket: ("AF_UNIX", "SOCK_SEQPACKET", "recv_fds", "send_fds"),
}  # fmt: skip
"""What Windows lacks beside that."""
MODULES = "fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"


class Refused(importlib.abc.MetaPathFinder):
    """Modules that the other system does not have."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on {sys.platform}", name=name)


def without_proc(opener: Callable[..., Any]) -> Callable[..., Any]:
    def opened(file: Any, *args: Any, **named: Any) -> Any:
        if isinstance(file, str) and file.startswith(("/proc/", "/dev/shm", "/sys/")):
            raise FileNotFoundError(f"no {file} on {sys.platform}")
        return opener(file, *args, **named)

    return opened


def locking(descriptor: int, mode: int, nbytes: int) -> None:
    """``msvcrt.locking``, which refuses with ``PermissionError``."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        raise PermissionError(13, "Permission denied") from e


def unsupported(*args: Any, **named: Any) -> Any:
    raise NotImplementedError


def become(platform: str, optional: Sequence[str] = ()) -> None:
    """Take away what the platform lacks: here, and in what is imported from now on, but for these packages."""
    tempfile.gettempdir()
    for name in optional:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.platform = platform
    family, pair = socket.AF_UNIX, socket.socketpair
    parts = [LINUX] if platform == "darwin" else [LINUX, POSIX]
    for part in parts:
        for module, names in part.items():
            for name in names:
                if hasattr(module, name):
                    delattr(module, name)
    builtins.open = without_proc(builtins.open)
    if platform == "win32":
        for name in MODULES:
            sys.modules.pop(name, None)
        windows: Any = types.ModuleType("msvcrt")
        windows.LK_NBLCK, windows.locking = 2, locking
        sys.modules["msvcrt"] = windows
        sys.meta_path.insert(0, Refused())
        socket.socketpair = lambda *args, **named: pair(family)  # the loop's own
        loop: Any = asyncio.SelectorEventLoop
        loop.add_signal_handler = loop.remove_signal_handler = unsupported
        loop.add_reader = loop.add_writer = unsupported  # as the loop of Windows has none


if __name__ == "__main__":
    faulthandler.dump_traceback_later(240, exit=True)  # a hang says where
    become(sys.argv[1], ("uvicorn", "torch") if "modules" in sys.argv else ("uvicorn",))
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
