"""The log of ``callboard serve`` as lines of JSON: one for each event."""

import argparse
import json
import logging
import sys
import threading
import warnings

import pytest

from callboard.cli.serving.command import refused
from callboard.cli.serving.logs import add_logs, set_up_logs


@pytest.mark.parametrize("text", ["nan", "-1", "inf", "soon"])
def test_what_is_slow_is_a_number_of_seconds(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_logs(parser)
    assert parser.parse_args(["--log-slow", "1.5"]).log_slow == 1.5
    with pytest.raises(SystemExit):
        parser.parse_args(["--log-slow", text])
    assert f"--log-slow: '{text}' is not a number of seconds from 0" in capsys.readouterr().err


def test_what_python_would_write_to_stderr_is_json_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(logging, "_warnings_showwarning", None)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    given = argparse.Namespace(verbose=False, log_level="info", log_format="json", access_log=False, log_slow=None)
    set_up_logs(given)
    try:
        raise FileNotFoundError("weights.npy")
    except FileNotFoundError as e:
        sys.excepthook(type(e), e, e.__traceback__)
    thread = threading.Thread(target=lambda: {}["x"], name="feeder")
    thread.start()
    thread.join()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", stacklevel=1)
    refused(given, ValueError("there is no module 'a' here"))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(each["level"], each["message"].partition("\n")[0]) for each in lines[:2]] == [
        ("critical", "the command has failed: FileNotFoundError"),
        ("error", "thread 'feeder' has failed: KeyError"),
    ]
    assert lines[0]["traceback"].endswith("FileNotFoundError: weights.npy")
    assert "UserWarning: old" in lines[2]["message"]
    assert lines[3]["message"] == "there is no module 'a' here"
    assert len(lines) == 4
