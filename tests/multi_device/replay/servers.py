"""PostgreSQL and Redis, run for a test: in a temporary folder, on a socket there, and ended with it."""

import glob
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

SECONDS = 30


class Server(NamedTuple):
    """A server that runs.

    Attributes:
        address: For a journal.
        kill: Ends it at once, without a word to anybody.
        start: Starts it again, over the same data.
    """

    address: str
    kill: Callable[[], None]
    start: Callable[[], None]


@contextmanager
def postgres(folder: Path) -> Iterator[Server]:
    """A PostgreSQL server of its own."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install psycopg[binary]")
    found = [*glob.glob("/usr/lib/postgresql/*/bin/initdb"), *filter(None, [shutil.which("initdb")])]
    if not found:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    programs = Path(max(found)).parent
    user = _other_user(folder)
    data = folder / "data"
    _run([programs / "initdb", "-D", data, "-A", "trust", "-U", "tests", "--no-sync"], user)
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
    control = [programs / "pg_ctl", "-D", data, "-w", "-t", str(SECONDS)]

    def start() -> None:
        _run([*control, "-l", folder / "log", "-o", options, "start"], user)

    def kill() -> None:
        _run([*control, "-m", "immediate", "stop"], user)

    start()
    try:
        yield Server(f"host={folder} user=tests dbname=postgres", kill, start)
    finally:
        kill()


def _other_user(folder: Path) -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, account.pw_uid, account.pw_gid)
        return name
    pytest.skip("root may not run PostgreSQL, and there is no other account")


def _run(command: list[object], user: str | None) -> None:
    # The output goes nowhere: the server that pg_ctl starts would hold a pipe open.
    subprocess.run(
        [str(part) for part in command],
        user=user,
        check=True,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )


@contextmanager
def redis(folder: Path) -> Iterator[Server]:
    """A Redis server of its own, which synchronises each write."""
    pytest.importorskip("redis", reason="redis-py is not installed: pip install redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no Redis here: apt-get install redis-server")
    socket = folder / "redis.sock"
    settings = {"port": "0", "unixsocket": socket, "dir": folder, "appendonly": "yes", "appendfsync": "always"}
    arguments = [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
    running: list[subprocess.Popen[str]] = []

    def start() -> None:
        server = subprocess.Popen([program, *arguments, "--save", ""], stdout=subprocess.PIPE, text=True)
        running.append(server)
        assert server.stdout is not None
        said = []
        for line in server.stdout:
            said.append(line)
            if "ready to accept connections" in line.lower():
                break
        server.stdout.close()  # it ignores SIGPIPE
        assert server.poll() is None, "".join(said)

    def kill() -> None:
        server = running.pop()
        server.kill()
        server.wait()

    try:
        start()
        yield Server(f"unix://{socket}", kill, start)
    finally:
        while running:
            kill()
