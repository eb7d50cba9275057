"""Sessions of the conformance suites: those of every backend, and how one is opened."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from callboard.core.errors import BackendUnavailable, UnsupportedOp
from callboard.core.library import Library
from callboard.core.op import Op, info_of
from callboard.device.supervision.remote.place import Node
from callboard.testing.device_session import DeviceSession
from callboard.testing.session import LibrarySession

CPU = [
    pytest.param("library:cpu", id="library-cpu"),
    pytest.param("thread:cpu", id="cpu-thread"),
    pytest.param("process:cpu", id="cpu-process"),
]
TORCH = [
    pytest.param(f"{kind}:torch:cpu", id=f"{kind}-torch-cpu", marks=pytest.mark.slow)
    for kind in ("library", "thread", "process")
]
HOSTS = [
    pytest.param("process:cuda", id="cuda-process", marks=pytest.mark.gpu),
    pytest.param("thread:cuda", id="cuda-thread", marks=pytest.mark.gpu),
]
SESSIONS = [
    *CPU,
    pytest.param("recorded:cpu", id="cpu-recorded"),
    pytest.param("node:cpu", id="cpu-node", marks=pytest.mark.slow),
    *TORCH,
    pytest.param("library:cuda", id="library-cuda", marks=pytest.mark.gpu),
    pytest.param("graph:cuda", id="graph-cuda", marks=pytest.mark.gpu),
    *HOSTS,
    pytest.param("recorded:cuda", id="cuda-recorded", marks=pytest.mark.gpu),
    pytest.param("library:torch:cuda", id="library-torch-cuda", marks=[pytest.mark.gpu, pytest.mark.slow]),
]


SOURCE = Path(__file__).resolve().parents[2] / "src"
SILENCE = 60.0
"""Seconds: a test machine that is busy is not cut off."""


@contextmanager
def node() -> Iterator[Node]:
    """Another machine, which is a process of this one."""
    token = secrets.token_urlsafe(32)
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "callboard", "host", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "CALLBOARD_NODE_TOKEN": token},
    )
    with process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[2].rstrip(",")  # listening at HOST:PORT, ...
            yield Node(address, token=token, lost_after=SILENCE)
        finally:
            process.terminate()


def serving(session: LibrarySession | DeviceSession, op: type[Op[Any, Any]]) -> type[Library]:
    """The library class of the session's backend that serves a message.

    Raises:
        UnsupportedOp: There is none; names the reason.
    """
    info = info_of(op)
    cls = session.backend.libraries()[info.library]
    if op not in cls.launch_table:
        raise UnsupportedOp(f"{session.backend.name}, {info.tag}: {cls.refused.get(op, 'no implementation')}")
    return cls


def opened(name: str) -> Iterator[LibrarySession | DeviceSession]:
    """The session of a name of :data:`SESSIONS`."""
    kind, _, backend = name.partition(":")
    with node() if kind == "node" else nullcontext() as place:
        isolation = {"recorded": "thread", "node": "process"}.get(kind, kind)
        try:
            session = (
                # CUDA itself refuses what a launch must not do, while it records.
                LibrarySession(backend, capture=kind == "graph", pure=backend == "cpu")
                if kind in ("library", "graph")
                else DeviceSession(
                    backend,
                    recorded=kind == "recorded",
                    isolation=isolation,
                    standby=None,
                    max_restarts=0,
                    node=place,
                )
            )
        except BackendUnavailable as e:
            if os.environ.get("CALLBOARD_REQUIRE") == backend:
                pytest.fail(f"CALLBOARD_REQUIRE={backend}: {e}")
            pytest.skip(f"backend {backend!r} cannot be used: {e}")
        with session:
            yield session
