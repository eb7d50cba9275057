"""``Source``: the snapshots of a running application, read from its local socket."""

import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from callboard.telemetry.local.places import sockets
from callboard.telemetry.sampling.snapshot import Snapshot

__all__ = ["Source", "found", "one_of"]

PATIENCE = 10.0
"""Seconds that an application gets for an answer; its loop may be busy."""


class Source:
    """A connection to an application.

    Args:
        path: Its socket.

    Raises:
        OSError: It does not listen any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PATIENCE)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._lines.close()
        self._socket.close()

    def snapshot(self) -> Snapshot:
        """The state now.

        Raises:
            OSError: The application has ended, or does not answer.
        """
        self._socket.sendall(b"snapshot\n")
        line = self._lines.readline()
        if not line:
            raise ConnectionResetError("the application has ended")
        return msgspec.json.decode(line, type=Snapshot)


def found(pid: int | None) -> list[Path]:
    """The sockets of observed applications, of one process if ``pid`` is given; those of a process are side by side.

    Raises:
        LookupError: There is none; the text says what to do.
        PermissionError: The folder of the sockets is not this user's own.
    """
    try:
        paths = [path for path in sockets() if pid is None or path.name.startswith(f"{pid}-")]
    except AttributeError as e:  # Windows, without getuid
        raise LookupError("this system has no local sockets; read /metrics instead") from e
    if not paths:
        whose = "no application of this user is" if pid is None else f"process {pid} is not"
        raise LookupError(f"{whose} observed; call cb.observe(system) in it, or start it with CALLBOARD_TELEMETRY=1")
    return paths


def one_of(paths: list[Path], command: str) -> Path:
    """The socket to show, of applications that were found.

    Raises:
        LookupError: They are of several processes; the text names them.
    """
    pids = sorted({int(path.name.partition("-")[0]) for path in paths})
    if len(pids) > 1:
        choice = " | ".join(map(str, pids))
        raise LookupError(f"several applications are observed; choose one: callboard {command} {choice}")
    return paths[0]
