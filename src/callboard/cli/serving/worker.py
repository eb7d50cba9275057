"""A worker of ``callboard serve``: a process that serves the app, and obeys its supervisor. Run as a program."""

import argparse
import asyncio
import functools
import json
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from callboard.cli.serving.channel import Counted, Hurry, Lives, Ready, Refused, Total, heard, tell
from callboard.cli.serving.command import opened
from callboard.cli.serving.live import show
from callboard.cli.serving.logs import set_up_logs
from callboard.cli.serving.rolls import ROLL
from callboard.core.errors import BackendUnavailable
from callboard.patterns.batching.sequences.server import SequenceBatchingServer
from callboard.serve.app import App
from callboard.serve.errors import BadAppFile, CannotListen, NotReady
from callboard.serve.figures import all_metrics
from callboard.serve.http.ending import Signals, obey_while_starting
from callboard.serve.http.starting import Port, Tls

__all__ = ["REFUSED", "Worker", "check_shareable", "main"]

REFUSED = 2
"""Exit code: the app cannot be served, and starting again would not help."""
TOTAL_TIMEOUT = 10.0
PATHS = ("token_file", "tls_cert", "tls_key", "tls_client_ca", "uds")

_log = logging.getLogger("callboard.serve")


class Worker:
    """The app in this process, and the connection to its supervisor.

    Args:
        channel: The connection.
        given: The options of the command.
        number: Number of the worker, from 0.
    """

    def __init__(self, channel: socket.socket, given: argparse.Namespace, number: int) -> None:
        self._channel = channel
        self._given = given
        self._number = number
        self._app: App | None = None
        self._signals = Signals(lasting=True)
        self._asking: list[asyncio.Future[str]] = []
        self._counting: set[asyncio.Task[None]] = set()
        self.code = 0

    def run(self, listener: int, *, late: bool) -> int:
        """Serve until a signal, or the end of the supervisor; the exit code.

        Args:
            listener: Descriptor of the socket to listen on.
            late: Listen only when the app accepts requests, because other workers do.
        """
        threading.Thread(target=self._obey, daemon=True, name="supervisor").start()
        try:
            app, tls = opened(self._given)
            check_shareable(app, self._given.workers)
            self._app = app
            if self._given.workers > 1:
                app.all_figures = self._total
            port = self._port(listener, tls, late=late)
        except (BackendUnavailable, OSError, ValueError) as e:
            return self._refused(str(e))
        try:
            from callboard.serve.http.listening import run_until_signal

            with self._signals:
                run_until_signal(app, port, functools.partial(self._accepting, app), self._signals)
        except (BackendUnavailable, BadAppFile, CannotListen) as e:
            return self._refused(str(e))
        return self.code

    def _refused(self, why: str) -> int:
        """Have the supervisor tell why nothing is served, once for all workers; the exit code."""
        tell(self._channel, Refused(why))
        return REFUSED

    def _port(self, listener: int, tls: Tls | None, *, late: bool) -> Port:
        given = self._given
        found = socket.socket(fileno=listener)
        return Port(
            max_connections=given.max_connections, tls=tls, root_path=given.root_path, listener=found, late=late
        )

    async def _accepting(self, app: App) -> None:
        sequences = [model.name for model in app.served if isinstance(model.chain.servers[-1], SequenceBatchingServer)]
        if sequences and self._given.workers > 1:
            self.code = self._refused(
                f"--workers: each worker has its own sequences, and a client cannot choose one: {sequences}"
            )
            self._signals.stop.set()
            return
        tell(self._channel, Ready(app.limits.drain_timeout))
        await show(app, sys.stderr, line=self._given.log_format == "text" and self._given.workers == 1)

    async def _total(self) -> str:
        """The figures of all workers."""
        asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asking.append(asked)
        tell(self._channel, Total())
        try:
            async with asyncio.timeout(TOTAL_TIMEOUT):
                return await asked
        except TimeoutError:
            raise NotReady("the supervisor of the workers does not answer") from None

    def _obey(self) -> None:
        for message in heard(self._channel):
            match message:
                case Hurry():
                    self._call(self._signals.hurry.set)
                case Counted():
                    self._call(self._count_soon)
                case Lives():
                    self._call(self._tell_whether_live)
                case Total(text):
                    self._call(functools.partial(self._answer, text or ""))
        if self._signals.hurry.is_set():
            os._exit(128 + signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)  # the supervisor was killed

    def _call(self, function: Any) -> None:
        loop = self._signals.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(function)

    def _count_soon(self) -> None:
        task = asyncio.ensure_future(self._tell_figures())
        self._counting.add(task)
        task.add_done_callback(self._counting.discard)

    async def _tell_figures(self) -> None:
        app = self._app
        assert app is not None
        tell(self._channel, Counted(await all_metrics(app)))

    def _tell_whether_live(self) -> None:
        app = self._app
        assert app is not None
        tell(self._channel, Lives(app.why_not_live()))

    def _answer(self, text: str) -> None:
        asking, self._asking = self._asking, []
        for asked in asking:
            if not asked.done():
                asked.set_result(text)


def check_shareable(app: App, workers: int) -> None:
    """Raise if clients can change what one worker alone would know.

    Raises:
        ValueError: They can, and there are several workers.
    """
    given = " and ".join(app.powers)
    if workers > 1 and given:
        raise ValueError(
            f"--workers {workers}: {app.name} has {given}, and a client's request reaches one worker only; "
            "serve it with one worker, or without"
        )


def main() -> int:
    """Run the worker that the command line describes; the exit code."""
    obey_while_starting()
    if hasattr(signal, ROLL):
        signal.signal(getattr(signal, ROLL), signal.SIG_IGN)  # sent to all processes of the command, it is for one
    about = json.loads(sys.argv[1])
    options = about["options"]
    options |= {name: Path(options[name]) for name in PATHS if options[name] is not None}
    given = argparse.Namespace(**options)
    set_up_logs(given, about["number"] if given.workers > 1 else None)
    try:
        return Worker(socket.socket(fileno=about["channel"]), given, about["number"]).run(
            about["listener"], late=about["late"]
        )
    except KeyboardInterrupt:  # while it starts
        return 128 + signal.SIGINT


if __name__ == "__main__":
    raise SystemExit(main())
