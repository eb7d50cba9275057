"""``Source``: the snapshots of a running application, read from the local sockets of its observed systems."""

import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from callboard.telemetry.local.places import sockets
from callboard.telemetry.observed import joined
from callboard.telemetry.sampling.snapshot import Snapshot

__all__ = ["Source", "found", "one_of", "process_of"]

PATIENCE = 10.0
"""Seconds that an application gets for an answer; its loop may be busy."""


class Source:
    """Connections to the observed systems of an application, of which one snapshot is made.

    Args:
        paths: Their sockets; those that do not listen any more are left out, unless none is left. Systems of the same
            processes that are observed later are shown, too.

    Raises:
        OSError: None of them listens any more.
    """

    def __init__(self, *paths: Path) -> None:
        self._systems: list[_System] = []
        self._known: set[Path] = set()
        self._pids = {process_of(path) for path in paths}
        self._connect(paths)
        if not self._systems:
            which = ", ".join(map(str, sorted(self._pids)))
            raise ConnectionRefusedError(f"process {which} does not listen any more: the application has ended")

    def _connect(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if path not in self._known and process_of(path) in self._pids:
                self._known.add(path)
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    self._systems.append(_System(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        for system in self._systems:
            system.close()

    def snapshot(self) -> Snapshot:
        """The state now, of the systems that have not ended.

        Raises:
            OSError: The application has ended, or does not answer.
        """
        self._connect(sockets())
        for system in self._systems:
            system.ask()
        answers = [system.answer() for system in self._systems]
        if living := [each for each in answers if each is not None]:
            return joined(living)
        raise ConnectionResetError("the application has ended")


class _System:
    """The connection to one system."""

    def __init__(self, path: Path) -> None:
        self._pid = process_of(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PATIENCE)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._lines = self._socket.makefile("rb")
        self._ended = False

    def ask(self) -> None:
        if not self._ended:
            try:
                self._socket.sendall(b"snapshot\n")
            except OSError:
                self._ended = True

    def answer(self) -> Snapshot | None:
        """What it says; None if it has ended."""
        if self._ended:
            return None
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise TimeoutError(
                f"process {self._pid} gives no answer within {PATIENCE:.0f} s: its loop is busy"
            ) from None
        except OSError:
            line = b""
        self._ended = not line.endswith(b"\n")
        return None if self._ended else msgspec.json.decode(line, type=Snapshot)

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def process_of(path: Path) -> int:
    """The process that has this socket."""
    return int(path.name.partition("-")[0])


def found(pid: int | None) -> list[Path]:
    """The sockets of observed applications, of one process if ``pid`` is given; those of a process are side by side.

    Raises:
        LookupError: There is none; the text says what to do.
        PermissionError: The folder of the sockets is not this user's own.
    """
    try:
        paths = [path for path in sockets() if pid is None or process_of(path) == pid]
    except AttributeError as e:  # Windows, without getuid
        raise LookupError("this system has no local sockets; read /metrics instead") from e
    if not paths:
        whose = "no application of this user is" if pid is None else f"process {pid} is not"
        raise LookupError(f"{whose} observed; call cb.observe(system) in it, or start it with CALLBOARD_TELEMETRY=1")
    return paths


def one_of(paths: list[Path], command: str) -> list[Path]:
    """The sockets of the application to show, of those that were found.

    Raises:
        LookupError: They are of several processes; the text names them.
    """
    pids = sorted({process_of(path) for path in paths})
    if len(pids) > 1:
        choice = " | ".join(map(str, pids))
        raise LookupError(f"several applications are observed; choose one: callboard {command} {choice}")
    return paths
