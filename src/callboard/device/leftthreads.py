"""The end of a process in which threads still compute that could not be ended.

An op that runs cannot be interrupted, so a host in a thread may outlive its device, and the event loop, after Ctrl-C or
a time-out. When the process ends meanwhile, it ends at once, with the exit status that it has: the destructors of
shared libraries are left out, which would take memory from these threads (a crash) or wait for threads of their own
pools that wait for these (a hang; OpenBLAS does either).
"""

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import weakref

__all__ = ["guard", "watch"]

_threads: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()
_lock = threading.Lock()
_registered = False


def guard() -> None:
    """Look for such threads when the interpreter exits, after what is registered with ``atexit`` from now on."""
    global _registered
    with _lock:
        if not _registered:
            _registered = True
            atexit.register(_at_exit)


def watch(thread: threading.Thread) -> None:
    """This one may compute, or keep memory for threads that do, when the interpreter exits."""
    guard()
    with _lock:
        _threads.add(thread)


def _at_exit() -> None:
    with _lock:
        left = any(thread.is_alive() for thread in _threads)
    if left and sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):  # C++ is not loaded, or is another one than GNU's
            _hold_threads()
        with contextlib.suppress(AttributeError):  # another C library than glibc
            _skip_destructors()


def _hold_threads() -> None:
    """Have a thread wait that wants the GIL of an interpreter which has ended, inside a function of C++.

    Python ends such a thread by unwinding its stack. A destructor that takes the GIL, as of pybind11 (SciPy's FFT),
    lets nothing through: C++ calls the handler of ``std::terminate``, which would end the process by SIGABRT.
    """
    library = ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD)
    library._ZSt13set_terminatePFvvE(ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p))


def _skip_destructors() -> None:
    """Have C's ``exit`` flush C's streams and end the process, once Python is done."""
    libc = ctypes.CDLL(None)
    on_exit, last, flush = libc.on_exit, libc._exit, libc.fcloseall
    on_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    for function in (last, flush):  # the last one registered is called first, each as function(status, argument)
        on_exit(ctypes.cast(function, ctypes.c_void_p), None)
