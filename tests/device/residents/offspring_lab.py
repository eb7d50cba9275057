"""A resident actor that starts processes and registers functions for the exit; importable by context hosts."""

import atexit
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.device.residents.lab import wait_at

import callboard as cb

__all__ = ["Founder"]

LASTS = 100
"""Seconds: longer than a test."""

DEAF = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep({LASTS})"

HEARS = f"import time; print(1, flush=True); time.sleep({LASTS})"


class Founder(cb.ResidentActor):
    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, how: Sequence[str]) -> int:
        """The id of a process that lasts: in a ``"session"`` of its own, without the ``"environment"``, ``"deaf"``."""
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", DEAF if "deaf" in how else HEARS],
            start_new_session="session" in how,
            env={} if "environment" in how else None,
            stdout=subprocess.PIPE,
        )
        self.started.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child.pid

    def pid(self) -> int:
        return os.getpid()

    def at_exit(self, path: str) -> None:
        """Write a file at the exit."""
        atexit.register(Path(path).write_text, "done")

    def fail_at_exit(self) -> None:
        atexit.register(lambda: 1 / 0)

    def block_at_exit(self, gate: str) -> None:
        atexit.register(wait_at, gate)
