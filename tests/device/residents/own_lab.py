"""Resident actors for tests of processes of their own; importable by context hosts."""

import ctypes
import os
from typing import Any

from tests.device.residents.lab import wait_at

import callboard as cb

__all__ = ["Apart"]


class Apart(cb.ResidentActor):
    """Keeps the GIL, crashes, and counts."""

    supervision = cb.OneForOne(
        {Exception: cb.Directive.RESUME}, default=cb.Directive.RESTART, max_restarts=2, within=60.0
    )

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx
        self.total = 0

    def add(self, n: int) -> int:
        self.total += n
        return self.total

    def double(self, array: Any) -> Any:
        return array * 2

    def pid(self) -> int:
        return os.getpid()

    def keep_the_gil(self, gate: str) -> int:
        """Wait at a gate without letting other Python threads of this process run."""
        held = ctypes.PyDLL(None)
        descriptor = held.open(os.fsencode(gate), os.O_RDONLY)
        byte = ctypes.create_string_buffer(1)
        count: int = held.read(descriptor, byte, 1)  # 0 when the gate has been let through
        held.close(descriptor)
        return count

    def exit(self) -> None:
        os._exit(3)

    def crash(self) -> None:
        ctypes.string_at(0)

    def leave(self) -> None:
        raise SystemExit(3)

    def wait(self, gate: str) -> int:
        wait_at(gate)
        return self.total
