"""The child process: it ends with its application, ignores Ctrl-C, and can be started from scripts and any folder."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
    pytest.mark.timeout(60),
]
HERE = Path(__file__).parent
APPLICATION = HERE / "application.py"


class Application:
    """The program of that name, run by a Python in a process group of its own."""

    def __init__(self, *steps: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(APPLICATION), *steps],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def host(self) -> int:
        """A pidfd of the host, for its pid may be another's once it is gone."""
        return os.pidfd_open(int(self.says()))


@pytest.fixture
def applications() -> Iterator[list[Application]]:
    started: list[Application] = []
    yield started
    for application in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(application.process.pid, signal.SIGKILL)  # the sibling too
        with application.process:
            pass


def gone(pidfd: int) -> bool:
    """Whether it ends soon."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(20_000))


@pytest.mark.few(1)
@pytest.mark.fault
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("echo", "pause"), id="both"),
        pytest.param(("no_death_signal", "pause"), id="by the pidfd alone"),
        pytest.param(("hold_gil", "pause"), id="by the kernel's signal alone"),
    ],
)
def test_the_child_dies_with_its_parent(applications: list[Application], steps: tuple[str, ...]) -> None:
    """Even where a forked sibling keeps the parent's sockets open."""
    application = Application("sibling", *steps)
    applications.append(application)
    assert application.says() in ("hello", "", "holding")
    host = application.host()
    os.kill(application.process.pid, signal.SIGKILL)
    application.process.wait(20)
    try:
        os.killpg(application.process.pid, 0)  # the sibling lives
        assert gone(host)
    finally:
        os.close(host)


def test_ctrl_c_is_for_the_application(applications: list[Application]) -> None:
    application = Application("catch", "pause", "echo", "close")
    applications.append(application)
    pid = int(application.says())
    os.killpg(application.process.pid, signal.SIGINT)
    assert application.says() == "interrupted"
    os.kill(pid, signal.SIGINT)  # not even when it is sent to the host
    assert application.process.stdin is not None
    application.process.stdin.write("go on\n")
    application.process.stdin.flush()
    assert application.says() == "hello"
    assert application.says() == "closed"
    assert application.process.wait(20) == 0


def test_an_exit_without_close_leaves_no_host(applications: list[Application]) -> None:
    application = Application("echo", "pause")
    applications.append(application)
    assert application.says() == "hello"
    host = application.host()
    assert application.process.stdin is not None
    application.process.stdin.close()
    assert application.process.wait(20) == 0
    assert gone(host)
    os.close(host)


def run(command: list[str], stdin: str = "", cwd: Path | None = None) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, input=stdin, cwd=cwd, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


# Without PYTHONPATH and without an installation: the parent's own sys.path is all that the child can know.
PREFIX = f"""
import sys
sys.path[1:1] = {[entry for entry in sys.path if entry]!r} + [{str(HERE)!r}]
__file__ = {str(APPLICATION)!r}
sys.argv[1:] = ["echo", "close"]
"""


def test_from_a_script_without_a_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PREFIX + APPLICATION.read_text())
    assert run([sys.executable, str(script)]) == "hello\nclosed\n"


@pytest.mark.slow
def test_from_standard_input(tmp_path: Path) -> None:
    assert run([sys.executable, "-"], PREFIX + APPLICATION.read_text(), tmp_path) == "hello\nclosed\n"


@pytest.mark.slow
def test_from_a_command_in_a_folder_with_a_misleading_name(tmp_path: Path) -> None:
    """A `socket.py` in the current folder is nobody's `socket`, unless the application itself imports from there."""
    (tmp_path / "socket.py").write_text("raise RuntimeError('the wrong socket')")
    command = [sys.executable, "-P", "-c", PREFIX + APPLICATION.read_text()]
    assert run(command, cwd=tmp_path) == "hello\nclosed\n"


@pytest.mark.slow
def test_from_a_thread_that_ends(applications: list[Application]) -> None:
    """The host lives on when the thread whose loop started it is gone."""
    program = f"""
import sys, threading, asyncio, os, select
sys.path[1:1] = [{str(HERE)!r}]
from callboard.device.supervision.hosts.process import ProcessHost
from callboard.device.supervision.hosts.launch import launch
children = []
async def start():
    child = await launch(["--label", "t", "--serve", "standin:serve", "--parent", str(os.getpid()),
                          "--interval", "0.2", "--log-level", "30"], {{}})
    await asyncio.get_running_loop().sock_recv(child.ops, 1)  # it greets, so it has asked for the death signal
    children.append(child)
thread = threading.Thread(target=lambda: asyncio.run(start()))
thread.start()
thread.join()
poll = select.poll()
poll.register(children[0].pidfd, select.POLLIN)
assert poll.poll(300) == []
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout == "alive\n", done.stderr
