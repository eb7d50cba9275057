"""Semaphores in shared memory, by which ranks in several processes wake each other."""

import ctypes
import sys
import time
from functools import cache
from typing import Any

from callboard.core.errors import UnsupportedOp

__all__ = ["SEMAPHORE_BYTES", "make_semaphore", "post", "wait"]

SEMAPHORE_BYTES = 64
"""At least ``sizeof(sem_t)``, which is 32 with glibc and 16 with musl."""
CLOCK_MONOTONIC = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Functions:
    """``semaphore.h``; a call lets go of the GIL."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise UnsupportedOp("collectives on the CPU need semaphores in shared memory, which are Linux only")
        libc = ctypes.CDLL(None)
        self.init: Any = libc.sem_init
        self.init.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
        self.post: Any = libc.sem_post
        self.post.argtypes = (ctypes.c_void_p,)
        # A change of the wall clock must not lengthen a wait; older C libraries have no other clock.
        monotonic = hasattr(libc, "sem_clockwait")
        self.now = time.monotonic if monotonic else time.time
        self.wait: Any = libc.sem_clockwait if monotonic else libc.sem_timedwait
        self.first = (CLOCK_MONOTONIC,) if monotonic else ()
        self.wait.argtypes = (ctypes.c_void_p, *[ctypes.c_int] * monotonic, ctypes.POINTER(_Timespec))


@cache
def _functions() -> _Functions:
    return _Functions()


def make_semaphore(address: int) -> None:
    """Initialise a semaphore, at 0, for threads of all processes that map this memory.

    Raises:
        UnsupportedOp: Not on Linux.
    """
    if _functions().init(address, 1, 0):
        raise UnsupportedOp("sem_init refuses a semaphore in shared memory")


def post(address: int) -> None:
    """Wake one waiter, or the next one that comes."""
    _functions().post(address)


def wait(address: int, seconds: float) -> bool:
    """Wait for a post, at most ``seconds``; returns whether there was one."""
    functions = _functions()
    whole, part = divmod(functions.now() + seconds, 1.0)
    return not functions.wait(address, *functions.first, _Timespec(int(whole), int(part * 1e9)))
