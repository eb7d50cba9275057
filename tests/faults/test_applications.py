"""The application as a program: start, end, and limits."""

import http.client
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from tests.faults.programs import BOUND, Program, Watched

pytestmark = [
    pytest.mark.fault,
    pytest.mark.timeout(90),
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]

ROUND_TRIP = """
import asyncio
import numpy as np
import callboard as cb

async def main():
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        a = dev.put(np.full((4, 4), 2, np.float32))
        value = await dev.blas.gemm(a, a).get()
        print("pid", dev.health().host_pid, flush=True)
        print("value", value[0, 0], flush=True)

asyncio.run(main())
print("done", flush=True)
"""

FOREVER = """
import asyncio, os, signal, sys
import numpy as np
import callboard as cb

signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell has it ignored by what it runs in the background

async def main():
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        eye = dev.put(np.eye(8, dtype=np.float32))
        n = 0
        while True:
            replies = [dev.blas.gemm(eye, dev.put(np.full((8, 8), k, np.float32))).get() for k in range(50)]
            for k, reply in enumerate(replies):
                assert (await reply == k).all()
            n += 1
            if n == 3:
                await dev.standby_ready()
                BEFORE
                print("hosts", dev.health().host_pid, dev._actor._standby.host.pid, flush=True)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
"""


# -- how it is started -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_from_a_script_without_a_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ROUND_TRIP)
    with Program(str(script)) as program:
        assert program.line("value") == "16.0"
        assert program.line("done") == ""
        assert program.end() == 0
        assert program.output.count("value") == 1  # the host has not run the script


@pytest.mark.slow
def test_from_stdin(tmp_path: Path) -> None:
    with Program("-", text=ROUND_TRIP, folder=tmp_path) as program:
        assert program.line("value") == "16.0"
        assert program.end() == 0


@pytest.mark.slow
def test_from_a_folder_with_files_named_like_modules(tmp_path: Path) -> None:
    for name in ("select.py", "numpy.py", "callboard.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    (tmp_path / "sub").mkdir()
    script = tmp_path / "sub" / "script.py"
    script.write_text(ROUND_TRIP)
    with Program(str(script), folder=tmp_path) as program:
        assert program.line("value") == "16.0"
        assert program.end() == 0


@pytest.mark.slow
def test_from_a_prompt_whose_loop_runs_already() -> None:
    """As in a notebook: the loop belongs to somebody else, statements come one by one."""
    statements = """
import numpy as np, callboard as cb
system = await cb.System("notebook").start()
dev = await system.device("cpu", isolation="process", standby=None)
a = dev.put(np.full((4, 4), 2, np.float32))
value = await dev.blas.gemm(a, a).get()
print("\\nvalue", value[0, 0], flush=True)
again = await system.device("cpu")
print("\\nsame", again is dev, flush=True)
await system.stop()
print("\\ndone", flush=True)
"""
    with Program("-m", "asyncio", text=statements) as program:
        assert program.line("value") == "16.0"
        assert program.line("same") == "True"
        assert program.line("done") == ""
        assert program.end() == 0


# -- how it is ended ---------------------------------------------------------------------------------------------------


def hosts_of(program: Program) -> list[Watched]:
    return [Watched(int(pid)) for pid in program.line("hosts").split()]


def test_ctrl_c_in_mid_op_ends_application_and_hosts(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FOREVER.replace("BEFORE", ""))
    with Program(str(script)) as program:
        hosts = hosts_of(program)
        os.killpg(program.process.pid, signal.SIGINT)
        assert program.end() == 3
        assert "interrupted" in program.output
        for host in hosts:
            assert host.gone()
            host.close()


SERVICE = """
import asyncio, signal
import numpy as np
import callboard as cb

async def main():
    async with cb.System("service", stop_signals=(signal.SIGTERM,)) as system:
        dev = await system.device("cpu", isolation="process", standby=None)
        a = dev.put(np.full((4, 4), 2, np.float32))

        async def drain():
            print("drained", (await dev.blas.gemm(a, a).get())[0, 0], flush=True)

        system.shutdown.add_task("drain", "the last answers", drain)
        print("hosts", dev.health().host_pid, flush=True)
        await asyncio.get_running_loop().create_future()

asyncio.run(main())
"""


def test_sigterm_ends_a_service_in_order(tmp_path: Path) -> None:
    """What a service manager sends: the phases run while the device still answers, then all ends."""
    script = tmp_path / "script.py"
    script.write_text(SERVICE)
    with Program(str(script)) as program:
        (host,) = hosts_of(program)
        program.process.send_signal(signal.SIGTERM)
        assert program.line("drained") == "16.0"
        assert program.end() == 128 + signal.SIGTERM
        assert host.gone()
        host.close()


@pytest.mark.slow
@pytest.mark.parametrize("host_state", ["serving", "stopped"])
@pytest.mark.few(1)
def test_the_application_killed_with_a_forked_sibling_alive(tmp_path: Path, host_state: str) -> None:
    """The sibling holds all of the application's descriptors open, so their end tells nobody anything."""
    script = tmp_path / "script.py"
    fork = """sibling = os.fork()
                if not sibling:
                    signal.pause()
                print("sibling", sibling, flush=True)"""
    script.write_text(FOREVER.replace("BEFORE", fork))
    with Program(str(script)) as program:
        sibling = Watched(int(program.line("sibling")))
        hosts = hosts_of(program)
        try:
            if host_state == "stopped":
                for host in hosts:
                    os.kill(host.pid, signal.SIGSTOP)
            os.kill(program.process.pid, signal.SIGKILL)
            for host in hosts:
                assert host.gone(), f"host {host.pid} outlives its application"
            assert not sibling.gone(0)
        finally:
            os.kill(sibling.pid, signal.SIGKILL)
            for watched in (sibling, *hosts):
                watched.close()


def test_a_forked_child_can_use_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import asyncio, os
import numpy as np
import callboard as cb

async def main():
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        x = dev.put(np.ones(4))
        await x
        child = os.fork()
        if not child:
            for call in (lambda: dev.put(np.ones(4)), lambda: x.get(), lambda: dev.host_empty(4)):
                try:
                    call()
                except RuntimeError as e:
                    if "os.fork" not in str(e):
                        os._exit(2)
                else:
                    os._exit(3)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print("child", os.waitstatus_to_exitcode(status), flush=True)
        print("value", (await dev.copy(x).get())[0], flush=True)

asyncio.run(main())
""")
    with Program(str(script)) as program:
        assert program.line("child") == "0"
        assert program.line("value") == "1.0"
        assert program.end() == 0


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_limit_of_the_address_space_is_a_typed_error(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import asyncio, resource
import numpy as np
import callboard as cb

def limit(extra):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, resource.RLIM_INFINITY))

async def main():
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        await dev.put(np.ones(4)).get()
        limit(64 << 20)
        huge = np.broadcast_to(np.float64(1), (64 << 20,))  # 512 MiB that take no memory
        for call in (lambda: dev.put(huge), lambda: dev.host_empty((64 << 20,), "f64")):
            try:
                await call()
            except cb.OutOfMemory as e:
                print("application", type(e).__name__, flush=True)
        print("value", (await dev.put(np.ones(4)).get())[0], dev.health().restarts, flush=True)
    limit(1 << 30)  # inherited by the next host
    async with cb.device("cpu", isolation="process", standby=None, max_restarts=1) as dev:
        try:
            await dev.empty((1 << 30,), "f64")
        except cb.OutOfMemory as e:
            print("host", type(e).__name__, flush=True)
        print("value", (await dev.put(np.ones(4)).get())[0], dev.health().restarts, flush=True)

asyncio.run(main())
""")
    with Program(str(script)) as program:
        assert program.line("application") == "OutOfMemory"
        assert program.line("application") == "OutOfMemory"
        assert program.line("value") == "1.0 0"
        assert program.line("host") == "OutOfMemory"
        assert program.line("value") == "1.0 0"
        assert program.end() == 0


# -- servers -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_under_uvicorn_that_reloads(tmp_path: Path) -> None:
    """A changed file replaces the application; its host goes with it and the new one's serves."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    app = tmp_path / "served.py"
    source = """
import contextlib
import numpy as np
import callboard as cb

VERSION = 1
state = {}

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        async with cb.device("cpu", isolation="process", standby=None) as dev:
            state["dev"] = dev
            assert (await receive())["type"] == "lifespan.startup"
            print("serving", VERSION, flush=True)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    dev = state["dev"]
    a = dev.put(np.full((4, 4), VERSION, np.float32))
    value = float((await dev.blas.gemm(a, a).get())[0, 0])
    body = f"{VERSION} {value} {dev.health().host_pid}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""
    app.write_text(source)

    address = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listening:  # who connects before the server takes connections waits in line
        listening.bind(address)
        listening.listen()
        number = listening.fileno()
        arguments = ("-m", "uvicorn", "--reload", "--fd", str(number), "--app-dir", str(tmp_path), "served:app")
        with Program(*arguments, folder=tmp_path, descriptors=(number,)) as program:
            hosts = []
            for version in (1, 22):
                if hosts:
                    app.write_text(source.replace("VERSION = 1", f"VERSION = {version}"))
                assert program.line("serving") == str(version)
                served, value, host = map(float, answer(address).split())
                assert (served, value) == (version, 4.0 * version * version)
                hosts.append(Watched(int(host)))
            assert hosts[0].gone()
            os.killpg(program.process.pid, signal.SIGINT)
            program.end()
            for each in hosts:
                assert each.gone()
                each.close()


@pytest.mark.slow
def test_under_gunicorn_that_loads_the_application_and_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, each with a device of its own; the one that the parent opened before says why it cannot be used."""
    monkeypatch.setenv("HOME", str(tmp_path))  # later versions keep a socket there
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    (tmp_path / "served.py").write_text("""
import os
import numpy as np
import callboard as cb

OPTIONS = {"isolation": "process", "standby": None}
inherited = cb.sync.device("cpu", **OPTIONS)
print("parent", inherited.health().host_pid, flush=True)
array = np.full((4, 4), 2, np.float32)

def begin(worker):
    global mine
    why = ""
    try:
        inherited.put(array)
    except RuntimeError as e:
        why = str(e)
    mine = cb.sync.device("cpu", **OPTIONS)
    print("worker", mine.health().host_pid, why, flush=True)

def app(environ, respond):
    a = mine.put(array)
    respond("200 OK", [])
    return [b"%d" % mine.blas.gemm(a, a).get()[0, 0]]
""")
    (tmp_path / "settings.py").write_text("""
import served
post_worker_init = served.begin
""")
    address = str(tmp_path / "socket")
    arguments = ("-m", "gunicorn", "-c", "settings.py", "--preload", "-w", "2", "-b", f"unix:{address}", "served:app")
    with Program(*arguments, folder=tmp_path) as program:
        hosts = [Watched(int(program.line("parent")))]
        for _ in range(2):
            pid, _, why = program.line("worker").partition(" ")
            assert "was opened before os.fork()" in why
            hosts.append(Watched(int(pid)))
        assert len({host.pid for host in hosts}) == 3
        assert [answer(address) for _ in range(8)] == ["16"] * 8
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 0
        for host in hosts:
            assert host.gone()
            host.close()


def answer(address: str) -> str:
    """What a server that listens on a Unix socket answers."""
    connection = http.client.HTTPConnection("application", timeout=BOUND)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(BOUND)
    connection.sock.connect(address)
    connection.request("GET", "/")
    text = connection.getresponse().read().decode()
    connection.close()
    return text
