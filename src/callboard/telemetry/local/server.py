"""``LocalSocket``: answers ``callboard top``: a line is asked for, a snapshot comes as a line of JSON."""

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from callboard.telemetry.export.texts import json_bytes
from callboard.telemetry.local.places import made_folder, socket_of, sockets
from callboard.telemetry.observed import RECENT

if TYPE_CHECKING:
    from callboard.telemetry.telemetry import Telemetry

__all__ = ["LocalSocket"]

CLIENTS = 8
"""Most connections at a time; further ones are closed."""

LINE = 256
"""Most bytes of a line that asks."""

PATIENCE = 30.0
"""Seconds that a client may take to ask again, and to read an answer."""

log = logging.getLogger("callboard.telemetry")


_numbers = itertools.count(1)


class LocalSocket:
    """Listens until telemetry ends, if the machine has such sockets; else says so at INFO.

    Args:
        telemetry: What it shows. Its loop is the running one.
    """

    def __init__(self, telemetry: "Telemetry") -> None:
        self._telemetry = telemetry
        self._pid = os.getpid()
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        try:
            self._path, self._socket = self._listen()
        except (OSError, AttributeError) as e:  # AttributeError: Windows, without AF_UNIX or getuid
            log.info("callboard top cannot see this process: %s", e)
            return
        telemetry.run(self._serve())
        telemetry.on_close(self.close)

    def _listen(self) -> tuple[Path, socket.socket]:
        made_folder()
        sockets()  # which removes those of processes that were killed
        path = socket_of(self._pid, next(_numbers))
        path.unlink(missing_ok=True)  # of a dead process that had the same number
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(str(path))
            os.chmod(path, 0o600)
            listening.listen(CLIENTS)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        return path, listening

    async def _serve(self) -> None:
        self._server = await asyncio.start_unix_server(self._client, sock=self._socket, limit=LINE)

    def close(self) -> None:
        """Listen no more, and end the connections: views are to see that the system has ended."""
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.close()
        self._socket.close()
        if self._pid == os.getpid():  # not in a fork, whose socket it is not
            self._path.unlink(missing_ok=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            if len(self._clients) > CLIENTS or not _same_user(writer):
                return
            with contextlib.suppress(TimeoutError, OSError, ValueError):
                while await asyncio.wait_for(reader.readline(), PATIENCE) and not self._telemetry.closed:
                    await self._telemetry.refresh_soon()
                    writer.write(json_bytes(self._telemetry.sample(recent=RECENT)) + b"\n")
                    await asyncio.wait_for(writer.drain(), PATIENCE)
        finally:
            self._clients.discard(writer)
            writer.close()


def _same_user(writer: asyncio.StreamWriter) -> bool:
    """The folder's mode keeps others out already; this also holds where a folder's mode is not respected."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, option, size))
    return bool(user == os.getuid())
