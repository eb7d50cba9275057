"""Rivals of a resident actor: the model in the calling process, or in a child process without callboard.

``PipeRival`` is the usual way: ``multiprocessing.Pipe``, arrays pickled. ``SpinRival`` shows how fast a child process
can answer at all: a few bytes through a socket pair, arrays in shared memory (page-locked on CUDA), and both ends spin
for 200 µs before they block. It needs two cores, and takes one call at a time and one shape of result.
"""

import ctypes
import mmap
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import time
from typing import Any

import numpy as np
from _resident_model import WIDTH, model_for

__all__ = ["PipeRival", "PlainRival", "SpinRival"]

SPIN = 200e-6
AREA = 1 << 20
"""Bytes for the arguments, and as many for the results."""

EMPTY, ECHO, RUN = range(3)
ORDER = struct.Struct("<iq")
"""What is to be done, and the bytes of its argument."""


class PlainRival:
    """The model in the process that calls it."""

    def __init__(self, made_with: str, device: str) -> None:
        self.run = model_for(made_with, device)

    def nothing(self) -> None:
        """Return at once."""

    def echo(self, array: Any) -> Any:
        """A copy, as all others give."""
        return array.copy()

    def close(self) -> None:
        """Nothing to end."""


class PipeRival:
    """A child started with ``spawn``, behind a pipe."""

    def __init__(self, made_with: str, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, far = context.Pipe()
        self._process = context.Process(target=_serve_pipe, args=(far, made_with, device), daemon=True)
        self._process.start()
        far.close()
        assert self._line.recv() == "ready"

    def _ask(self, kind: int, array: Any = None) -> Any:
        self._line.send((kind, array))
        return self._line.recv()

    def nothing(self) -> None:
        """Return at once."""
        self._ask(EMPTY)

    def echo(self, array: Any) -> Any:
        """Send it back."""
        return self._ask(ECHO, array)

    def run(self, x: Any) -> Any:
        """The model's answer."""
        return self._ask(RUN, x)

    def close(self) -> None:
        """End the child; waits."""
        self._line.close()
        self._process.join(20)


def _serve_pipe(line: Any, made_with: str, device: str) -> None:
    model = model_for(made_with, device)
    line.send("ready")
    while True:
        try:
            kind, array = line.recv()
        except EOFError:
            return
        line.send(model(array) if kind == RUN else array)


class SpinRival:
    """A child behind a socket pair and shared memory; both ends spin."""

    def __init__(self, made_with: str, device: str) -> None:
        self._line, far = socket.socketpair()
        descriptor = os.memfd_create("callboard-benchmark")
        os.ftruncate(descriptor, 2 * AREA)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(far.fileno()), str(descriptor), made_with, device],
            pass_fds=(far.fileno(), descriptor),
        )
        far.close()
        self._memory = np.frombuffer(mmap.mmap(descriptor, 2 * AREA), np.uint8)
        os.close(descriptor)
        assert self._line.recv(1) == b"r"

    def _ask(self, kind: int, array: Any = None) -> Any:
        nbytes = 0 if array is None else array.nbytes
        if nbytes:
            self._memory[:nbytes] = array.reshape(-1).view(np.uint8)
        self._line.send(ORDER.pack(kind, nbytes))
        if not _received(self._line):
            raise EOFError("the child has ended")
        if array is None:
            return None
        return self._memory[AREA : AREA + nbytes].copy().view(array.dtype).reshape(array.shape)

    def nothing(self) -> None:
        """Return at once."""
        self._ask(EMPTY)

    def echo(self, array: Any) -> Any:
        """Send it back."""
        return self._ask(ECHO, array)

    def run(self, x: Any) -> Any:
        """The model's answer, which has the shape of its argument."""
        return self._ask(RUN, x)

    def close(self) -> None:
        """End the child; waits."""
        self._line.close()
        self._process.wait(20)


def _received(line: socket.socket) -> bytes:
    """The next message; empty when the other end is closed."""
    until = time.perf_counter() + SPIN
    while time.perf_counter() < until:
        try:
            return line.recv(ORDER.size, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
    return line.recv(ORDER.size)


def _serve_spinning(line: socket.socket, descriptor: int, made_with: str, device: str) -> None:
    memory = np.frombuffer(mmap.mmap(descriptor, 2 * AREA), np.uint8)
    model = model_for(made_with, device)
    on_device = made_with == "torch" and device != "cpu"
    if on_device:
        import torch

        cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        cudart.cudaHostRegister(memory.ctypes.data, memory.nbytes, 0)
    line.send(b"r")
    while order := _received(line):
        kind, nbytes = ORDER.unpack(order)
        if kind != EMPTY:
            argument, result = memory[:nbytes], memory[AREA : AREA + nbytes]
            if kind == RUN:
                argument = model(argument.view(np.float32).reshape(-1, WIDTH)).reshape(-1).view(np.uint8)
            result[:] = argument
        line.send(order)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG: it ends with the subject, however that ends
    _serve_spinning(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), *sys.argv[3:5])
