"""Resident actors for tests of processes of their own; importable by context hosts."""

import ctypes
import os
from typing import Any

import numpy as np
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
        self.notes: list[float] = []

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

    # -- device arrays; by ops of the actor's own device, which work on every backend ----------------------------------

    def values(self, array: cb.In) -> Any:
        return self.ctx.device.copy(array).get()

    def total_of(self, array: cb.In) -> float:
        return float(self.values(array).astype(np.float64).sum())

    def note_total(self, array: Any) -> None:
        self.notes.append(self.total_of(array) + 3.0)

    def noted(self) -> list[float]:
        return self.notes

    def is_read_only(self, array: cb.In) -> bool:
        flags = getattr(array, "flags", None)
        return not flags.writeable if flags is not None else bool(array.__cuda_array_interface__["data"][1])

    def update(self, array: Any, factor: float, by: float) -> None:
        self.ctx.device.copy(self.ctx.device.put(self.values(array) * factor + by), array)

    def increment(self, array: Any) -> None:
        self.update(array, 1.0, 1.0)

    def fill_twice(self, array: Any, by: float) -> None:
        """The array doubled, and something added."""
        self.update(array, np.float32(2.0), np.float32(by))

    def add_to_both(self, row: Any, column: Any) -> None:
        self.update(row, 1.0, 1.0)
        self.update(column, 1.0, 10.0)

    def wait_reading(self, gate: str, array: cb.In) -> float:
        wait_at(gate)
        return self.total_of(array)

    def wait_writing(self, gate: str, array: Any) -> None:
        wait_at(gate)
        self.increment(array)

    def fail_reading(self, array: cb.In) -> None:
        raise ValueError("not spoilt")

    def fail_writing(self, array: Any) -> None:
        self.update(array, 1.0, 1.0)
        raise ValueError("spoilt")

    def exit_with(self, written: Any, read: cb.In) -> None:
        self.update(written, 1.0, 1.0)
        os._exit(3)

    def make(self, n: int) -> cb.GpuRef:
        self.made = self.ctx.device.put(np.arange(n, dtype=np.float64))
        return self.ctx.ref(self.made)

    def make_when_let(self, gate: str, array: cb.In) -> cb.GpuRef:
        wait_at(gate)
        self.made = self.ctx.device.put(self.values(array))
        return self.ctx.ref(self.made)

    def change_made(self) -> None:
        self.ctx.device.fill(self.made, 9.0)

    def make_some(self) -> Any:
        whole = self.ctx.device.put(np.arange(6.0).reshape(2, 3))
        once = self.ctx.ref(whole)
        return [once, once], self.ctx.ref(whole.T), self.ctx.ref(whole[:0])
