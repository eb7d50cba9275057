"""Compilers that misbehave: expressions stay with NumPy, and nothing is left."""

import contextlib
import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.backends.cpu.elementwise import native
from callboard.backends.cpu.elementwise.compiling import Compiling

pytestmark = pytest.mark.skipif(native.compiler() is None, reason="no C compiler: install gcc")
GOOD = "void run(const char *at, const char *of, const char *num) {}"
AT = 'while [ "$1" != "-o" ]; do shift; done\n'


def command(folder: Path, text: str) -> list[str]:
    """A program of the shell that stands for the compiler; $2 is the file to write, $3 the text."""
    path = folder / "compiler"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return [str(path)]


@pytest.mark.parametrize(
    "text, said",
    [
        (AT + 'echo "int other;" | cc -shared -fPIC -x c -o "$2" -', "no function `run`"),
        (AT + 'echo garbage > "$2"', "not a whole"),
        (AT + 'cc -shared -fPIC -x c -o "$2" "$3" && truncate -s 4097 "$2"', "not a whole"),
        (AT + 'cc -shared -fPIC -x c -o "$2" "$3" && truncate -s -1 "$2"', "not a whole"),
        ("exit 0", "No such file"),
        ("yes refused | head -c 1000000 >&2; exit 3", "exit status 3: 'refused"),
        ("sleep 1000 & wait", "did not end within"),
    ],
)
def test_it_is_reported_once_and_not_started_again(
    text: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiling = Compiling(command(tmp_path, f"echo . >> {tmp_path}/starts\n{text}"), 8, 0.3 if "sleep" in text else 60)
    asked = [compiling.ask(GOOD), compiling.ask(GOOD + "\n")]
    with caplog.at_level(logging.WARNING, "callboard.cpu"):
        compiling.settle()
    assert all(one is None or one.run is None for one in asked)
    assert compiling.ask(GOOD + "\n\n") is None
    (record,) = caplog.records
    assert said in record.getMessage()
    assert len(record.getMessage()) < 2000
    assert (tmp_path / "starts").read_text() == ".\n"


def test_one_thread_and_a_limit(tmp_path: Path) -> None:
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done\n"
    compiling = Compiling(command(tmp_path, wait + 'exec cc "$@"'), 3)
    asked = [compiling.ask(GOOD + "\n" * i) for i in range(5)]
    assert [one is not None for one in asked] == [True] * 3 + [False] * 2
    assert compiling.ask(GOOD) is asked[0]
    assert [thread.name for thread in threading.enumerate()].count("callboard-compiler") == 1
    (tmp_path / "go").touch()
    compiling.settle()
    assert all(one.run is not None for one in asked[:3] if one is not None)


def test_at_exit_the_compiler_and_its_children_are_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    by = command(
        tmp_path,
        f"sleep 1000 &\necho $$ $! $(dirname $(echo $* | grep -o '[^ ]*/expression.so')) > {tmp_path}/started\nwait",
    )
    program = textwrap.dedent(f"""
        from callboard.backends.cpu.elementwise.compiling import Compiling
        compiling = Compiling({by}, 1)
        compiling.ask({GOOD!r})
        print(open({str(tmp_path / "started")!r}).read())
    """)
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60, check=True, text=True)
    *pids, folder = ended.stdout.split()
    assert len(pids) == 2
    for pid in pids:
        assert not runs(int(pid))
    assert not Path(folder).exists()


def runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    monkeypatch.setenv(native.VARIABLE, request.param)
    native.compiler.cache_clear()
    yield
    native.compiler.cache_clear()


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize("named", ["cc -m64 -DA='b c'"], indirect=True)
def test_a_compiler_with_options() -> None:
    found = native.compiler()
    assert found is not None
    assert found[1:] == ("-m64", "-DA=b c")


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize("named", ["/no/such/cc", "cc '"], indirect=True)
def test_a_wrong_name_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "callboard.cpu"):
        assert native.compiler() is None
        assert native.compiler() is None
    (record,) = caplog.records
    assert native.VARIABLE in record.getMessage()
