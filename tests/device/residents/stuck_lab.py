"""Resident actors whose code does not return; importable by context hosts."""

import ctypes
import os
import signal
import threading
from typing import Any

from tests.device.residents.lab import wait_at

import callboard as cb

__all__ = ["Stuck", "StuckInPrepare", "StuckInSetup", "Sub"]


class Stuck(cb.ResidentActor):
    """Its methods do not return before their gate is opened."""

    def wait(self, gate: str) -> None:
        wait_at(gate)

    def items(self, gate: str) -> Any:
        yield 1
        wait_at(gate)

    def add(self, n: int) -> int:
        return n + 1

    def pid(self) -> int:
        return os.getpid()


class Sub(Stuck):
    """With an event loop."""

    async def block(self, gate: str) -> None:
        wait_at(gate)


class StuckInPrepare(Stuck):
    """Stuck before it has a context."""

    def __init__(self, gate: str) -> None:
        self.gate = gate

    def prepare(self) -> None:
        wait_at(self.gate)


class StuckInSetup(Stuck):
    """Its setup does not return: it ``"waits"``, holds the ``"gil"``, or ``"freezes"`` its process."""

    def __init__(self, how: str, gate: str) -> None:
        self.how, self.gate = how, gate

    def setup(self, ctx: cb.HostContext) -> None:
        if not os.path.exists(self.gate):
            return  # a later instance
        if self.how == "waits":
            wait_at(self.gate)
        elif self.how == "gil":
            os.open(self.gate, os.O_RDWR)  # there is a writer, and so no end of file
            held = ctypes.PyDLL(None)
            descriptor = held.open(os.fsencode(self.gate), os.O_RDONLY)
            os.unlink(self.gate)
            held.read(descriptor, ctypes.create_string_buffer(1), 1)
        else:
            os.unlink(self.gate)
            os.kill(os.getpid(), signal.SIGSTOP)
            threading.Event().wait()  # this thread may run a little longer
