"""``callboard host`` as a user runs it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import callboard as cb
from callboard.cli import main

SOURCE = Path(__file__).resolve().parents[2] / "src"
TOKEN = "a token of 24 characters"
LIMIT = 40.0


async def test_it_serves_the_devices_of_its_machine_until_it_is_told_to_end(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    command = [sys.executable, "-m", "callboard", "host", "--listen", "127.0.0.1:0", "--token-file", str(token)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "env": environment}
    with subprocess.Popen(command, **how) as node:  # type: ignore[call-overload]  # noqa: ASYNC220 - it waits for us
        try:
            assert node.stdout is not None
            found = re.fullmatch(r"listening at (127.0.0.1:\d+), not encrypted\n", node.stdout.readline())
            assert found is not None
            async with cb.device("cpu", node=cb.Node(found[1], token=TOKEN), close_timeout=1.0) as device:
                assert (await (device.put(np.ones(10)) * 2).get()).sum() == 20
                host = device.health().host_pid or 0
                node.send_signal(signal.SIGTERM)
                assert node.wait(LIMIT) == 0
                with pytest.raises(ProcessLookupError):
                    os.kill(host, 0)
        finally:
            node.kill()


@pytest.mark.parametrize(
    "given, said",
    [
        ([], "there is no token"),
        (["--listen", "nowhere"], "use HOST:PORT"),
        (["--token-file", "/nowhere/token"], "No such file"),
    ],
)
def test_what_is_wrong_is_said_on_one_line(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALLBOARD_NODE_TOKEN", raising=False)
    assert main(["host", *given]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_short_token_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_NODE_TOKEN", "short")
    assert main(["host"]) == 2
    assert "at least 16" in capsys.readouterr().err
