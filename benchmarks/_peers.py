"""Other serving frameworks: virtual environments of their own under ``build/peers``, and their servers as processes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, NoReturn

import psutil

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "build" / "peers"
REQUIREMENTS = {
    "bentoml": "bentoml==1.4.39",
    "litserve": "litserve==0.2.19",
    "ray": "ray[serve]==2.60.0",
    "transformers": "transformers==5.23.0",
}
RAY_FLAGS = {
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HAPROXY_TCP_NODELAY": "1",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
}
"""Those that Ray's makers measure with."""
RAY_PORTS = (
    "RAY_SERVE_HAPROXY_METRICS_PORT",
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
)
"""Those beside the server's own that are the same for all Ray servers of a machine otherwise."""
START, STOP = 180.0, 30.0


def python_of(peer: str, more: Sequence[str] = ()) -> Path:
    """The interpreter of a peer's environment, which is made and filled where it is not there.

    Raises:
        RuntimeError: Its package could not be installed.
    """
    folder, wanted = PEERS / peer, [*([REQUIREMENTS[peer]] if peer in REQUIREMENTS else []), "numpy", *more]
    python, stamp = folder / "bin" / "python", folder / ".installed"
    there = stamp.read_text().splitlines() if stamp.exists() else []
    missing = [each for each in wanted if each not in there]
    if missing:
        print(f"installing {' '.join(missing)} into {folder.relative_to(ROOT)}", file=sys.stderr)
        if not python.exists():
            venv.create(folder, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, *missing], check=False).returncode:
            raise RuntimeError(f"{' '.join(missing)} could not be installed")
        stamp.write_text("\n".join([*there, *missing]))
    return python


def dependencies(*extras: str) -> list[str]:
    """What callboard itself needs, with extras."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        for each in project["optional-dependencies"][extra]:
            inner = each.removeprefix("callboard[").removesuffix("]")
            found += [each] if inner == each else dependencies(inner)
    return list(dict.fromkeys(found))


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def processor_seconds(process: psutil.Process) -> float:
    """User and system time of a process and its descendants that live, together."""
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def run_in(peer: str, more: Sequence[str]) -> NoReturn:
    """Run this program in a peer's environment, from its start."""
    python = python_of(peer, more)
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    os.execve(python, [str(python), *sys.argv], os.environ | {"PYTHONPATH": path, "BENTOML_DO_NOT_TRACK": "true"})


@asynccontextmanager
async def server(peer: str, port: int) -> AsyncIterator[psutil.Process]:
    """The peer's server, or ours (``"callboard"``), ready on this port; all that it has started ends with it.

    Raises:
        RuntimeError: It ended, or was not ready in time.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, tempfile.TemporaryFile() as said:
        process = await asyncio.to_thread(_started, peer, port, home, said)
        found = psutil.Process(process.pid)
        try:
            if not await _ready(process, peer, port):
                said.seek(0)
                raise RuntimeError(f"{peer} did not start: {said.read()[-2000:].decode(errors='replace')}")
            yield found
        finally:
            await asyncio.to_thread(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt a server; what is left of it and of its descendants is killed: some have sessions of their own."""
    family: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait(STOP)
    psutil.wait_procs(family, STOP)


def _started(peer: str, port: int, home: str, said: IO[bytes]) -> "subprocess.Popen[bytes]":
    ours = peer == "callboard"
    python = python_of(peer, dependencies("serve") if ours or peer == "bare" else ())
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    quiet = {"HOME": home, "BENTOML_DO_NOT_TRACK": "true", "RAY_USAGE_STATS_ENABLED": "0", "DO_NOT_TRACK": "1"}
    path = {"PATH": f"{python.parent}{os.pathsep}{given.get('PATH', '')}"}
    source = {"PYTHONPATH": str(ROOT / "src")} if ours else {}
    ports = {name: str(free_port()) for name in RAY_PORTS}
    return subprocess.Popen(
        [str(python), str(Path(__file__).with_name("_peer_servers.py")), peer, str(port)],
        env=given | threads | quiet | RAY_FLAGS | ports | path | source,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


async def _ready(process: "subprocess.Popen[bytes]", peer: str, port: int) -> bool:
    until = asyncio.get_running_loop().time() + START
    while asyncio.get_running_loop().time() < until and process.poll() is None:
        with suppress(OSError, EOFError, asyncio.IncompleteReadError, AssertionError, TimeoutError):
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    await ask(reader, writer, request(peer, 1))
                finally:
                    writer.close()
                return True
        await asyncio.sleep(0.2)
    return False


def request(peer: str, number: int) -> bytes:
    """The request for a row, in the peer's protocol."""
    path, body = "/predict", f'{{"i":{number}}}'
    if peer == "callboard":
        path = "/v2/models/mlp/infer"
        body = f'{{"inputs":[{{"name":"i","shape":[1],"datatype":"INT64","data":[{number}]}}]}}'
    elif peer == "bentoml":
        body = f'{{"i":[{number}]}}'
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, given: bytes) -> None:
    """One request on a connection that stays open; its answer is read whole."""
    writer.write(given)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200"), head[:200]
    if b"\r\ncontent-length: " in head:
        await reader.readexactly(int(head.split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0]))
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):  # in chunks
        await reader.readexactly(size + 2)
    await reader.readexactly(2)
