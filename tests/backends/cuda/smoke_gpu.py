"""Exercise the CUDA backend on a GPU: one line per check. Run it as a program, ``PYTHONPATH=src python smoke_gpu.py``.

No pytest, no hosts, no wire: enumeration, the device's methods, fills and copies of all dtypes, every BLAS op in its
main forms, what a launch costs, and real faults in child processes. It goes on after a failure; the exit code is the
number of failed checks (at most 99).
"""

import argparse
import contextlib
import ctypes
import os
import sys
import time
import traceback

import gpu_checks_blas
import gpu_checks_cost
import gpu_checks_device
import gpu_checks_memory
import numpy as np
from gpu_checks import CHECKS

from callboard.backends.cuda import backend
from callboard.backends.cuda.driver import load_driver
from callboard.testing.session import LibrarySession

MODULES = (gpu_checks_device, gpu_checks_memory, gpu_checks_blas, gpu_checks_cost)  # each adds to CHECKS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=gpu_checks_device.FAULTS)
    parser.add_argument("--only", default="", help="run checks whose name contains this")
    arguments = parser.parse_args()
    if arguments.fault:
        gpu_checks_device.fault(arguments.fault)
    start = time.perf_counter()
    backend.preload()
    preloaded = time.perf_counter()
    session = LibrarySession(backend)
    opened = time.perf_counter()
    session.put(np.zeros(1, "f4"))
    uploaded = time.perf_counter()
    version = ctypes.c_int()
    load_driver().driver_version(ctypes.byref(version))
    with contextlib.suppress(Exception):
        session._library("blas")
    made = time.perf_counter()
    print(
        f"driver for CUDA {version.value / 1000:.2f}",
        f"preload {preloaded - start:.2f} s, open {opened - preloaded:.2f} s",
        f"first upload {uploaded - opened:.3f} s, cuBLAS handle {made - uploaded:.2f} s",
        sep=", ",
    )
    failed = 0
    for name, function in [("warm up", warm_up), *CHECKS]:
        if arguments.only not in name:
            continue
        start = time.perf_counter()
        try:
            said = function(session)
            print(f"PASS  {name}  ({time.perf_counter() - start:.2f} s)  {said or ''}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)
            dead = session.device.probe()
            if dead is not None:
                print(f"FAIL  the context is dead: {dead}; nothing more can be checked")
                os._exit(99)
    session.close()
    print(f"{failed} checks failed")
    return min(failed, 99)


def warm_up(s: LibrarySession) -> str:
    took = []
    for lib in ("memory", "blas"):
        start = time.perf_counter()
        s._library(lib).warm_up()
        s._streams[lib].synchronize()
        took.append(f"{lib} {time.perf_counter() - start:.2f} s")
    return ", ".join(took)


if __name__ == "__main__":
    sys.exit(main())
