"""Subject: a copy of memory that another process has exported (CUDA IPC), by the runtime, called directly.

python _subject_ipc.py SOURCE TARGET    ordinals of GPUs, which may be the same
"""

import base64
import ctypes
import subprocess
import sys
import time
from typing import Any

from _worker import missing, serve

clock = time.perf_counter

try:
    from cuda.bindings import runtime
except ImportError as e:
    missing(f"{e}; pip install 'callboard[cuda13]'")

NON_BLOCKING, LAZY_PEER_ACCESS = 1, 1
HANDLE = 64
"""Bytes of a ``cudaIpcMemHandle_t``, whose attribute the bindings name differently by version."""
DEVICE_TO_DEVICE = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice


def checked(answer: Any) -> Any:
    """What a call of the runtime gave, without its status."""
    status, *rest = answer
    if int(status):
        raise RuntimeError(f"{status}")
    return rest[0] if rest else None


def export(ordinal: int, nbytes: int) -> None:
    """The other process: export memory, and keep it until stdin ends."""
    checked(runtime.cudaSetDevice(ordinal))
    memory = checked(runtime.cudaMalloc(nbytes))
    checked(runtime.cudaMemset(memory, 1, nbytes))
    checked(runtime.cudaDeviceSynchronize())
    handle = checked(runtime.cudaIpcGetMemHandle(memory))
    print(base64.b64encode(ctypes.string_at(handle.getPtr(), HANDLE)).decode(), flush=True)
    sys.stdin.read()


class Importer:
    """Opens the memory of the other process, and copies it."""

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        checked(runtime.cudaSetDevice(int(target)))
        self._stream = int(checked(runtime.cudaStreamCreateWithFlags(NON_BLOCKING)))
        self._opened: dict[int, tuple[int, int]] = {}
        self._exporters: list[subprocess.Popen[str]] = []

    def _of(self, nbytes: int) -> tuple[int, int]:
        if nbytes not in self._opened:
            command = [sys.executable, __file__, "export", self._source, str(nbytes)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._exporters.append(process)
            assert process.stdout is not None
            handle = runtime.cudaIpcMemHandle_t()
            ctypes.memmove(handle.getPtr(), base64.b64decode(process.stdout.readline()), HANDLE)
            theirs = int(checked(runtime.cudaIpcOpenMemHandle(handle, LAZY_PEER_ACCESS)))
            self._opened[nbytes] = theirs, int(checked(runtime.cudaMalloc(nbytes)))
        return self._opened[nbytes]

    def pipelined(self, nbytes: int, count: int) -> float:
        """Seconds per copy; one synchronize at the end."""
        theirs, ours = self._of(nbytes)
        checked(runtime.cudaMemcpyAsync(ours, theirs, nbytes, DEVICE_TO_DEVICE, self._stream))
        checked(runtime.cudaStreamSynchronize(self._stream))
        start = clock()
        for _ in range(count):
            checked(runtime.cudaMemcpyAsync(ours, theirs, nbytes, DEVICE_TO_DEVICE, self._stream))
        checked(runtime.cudaStreamSynchronize(self._stream))
        return (clock() - start) / count

    def ask(self, nbytes: int, count: int) -> float:
        """Median seconds of a copy and a synchronize."""
        return sorted(self.pipelined(nbytes, 1) for _ in range(count))[count // 2]


if sys.argv[1] == "export":
    export(int(sys.argv[2]), int(sys.argv[3]))
else:
    try:
        importer = Importer(sys.argv[1], sys.argv[2])
    except Exception as e:  # whatever is missing is the reason
        missing(f"{type(e).__name__}: {e}")
    serve({"pipelined": importer.pipelined, "ask": importer.ask})
