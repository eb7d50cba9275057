"""Lines of a host's output."""

import io
import logging
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.backend.announcing import NOTICE
from callboard.device.supervision.hosts.output import LONGEST_LINE, LONGEST_STACK, HostLog, LineSplitter, OutputPipe


def split(*pieces: bytes) -> list[str]:
    splitter = LineSplitter()
    return [line for piece in pieces for line in splitter.feed(piece)] + list(splitter.end())


@given(pieces=st.lists(st.sampled_from([b"a", b"\n", b"bc\n", b"\xff", b"\xc3\xa4", b"\r\n", b"x" * 50])))
def test_any_split_gives_the_same_lines(pieces: list[bytes]) -> None:
    assert split(*pieces) == split(b"".join(pieces))


def test_lines() -> None:
    assert split(b"one\r\n\ntw", b"o\nrest") == ["one", "", "two", "rest"]


def test_a_line_without_end_is_given_in_pieces() -> None:
    assert [len(line) for line in split(b"x" * (2 * LONGEST_LINE + 10))] == [LONGEST_LINE, LONGEST_LINE, 10]


def test_a_character_may_be_split() -> None:
    assert split(b"\xc3", b"\xa4\n") == ["ä"]


def test_records(caplog: pytest.LogCaptureFixture) -> None:
    log = HostLog("cuda:0", 4711)
    with caplog.at_level(logging.INFO, "callboard.host"):
        log.stdout("out")
        log.stderr("err")
        log.stderr(f"{NOTICE}kernels, once; kept in /tmp")  # no reason of an end
        log.record("torch", logging.ERROR, "100 % broken %s")
        log.record("torch", logging.DEBUG, "too fine")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "[cuda:0 4711] stdout: out"),
        ("WARNING", "[cuda:0 4711] stderr: err"),
        ("WARNING", "[cuda:0 4711] stderr: callboard: compiling kernels, once; kept in /tmp"),
        ("ERROR", "[cuda:0 4711] torch: 100 % broken %s"),
    ]
    assert caplog.records[0].__dict__["host"] == "cuda:0"
    assert list(log.tail) == ["err"]


DUMP = """Fatal Python error: Segmentation fault

Current thread 0x1 (most recent call first):
  File "/app/a.py", line 1 in f

Thread 0x2 (most recent call first):
  File "/app/b.py", line 2 in g

Extension modules: numpy.core (total: 1)"""
TRACEBACK = """Exception in thread Thread-1 (run):
Traceback (most recent call last):
  File "/app/a.py", line 1, in f
    int(x)
ValueError: no

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/a.py", line 2, in g
KeyError: 'x'"""


def test_a_stack_is_one_record(caplog: pytest.LogCaptureFixture) -> None:
    log = HostLog("cuda:0", 4711)
    for line in f"before\n{TRACEBACK}\nbetween\n 50%|## {DUMP}".split("\n"):
        log.stderr(line)
    log.end()
    log.end()
    assert [(r.getMessage().partition("stderr: ")[2], r.stack_info) for r in caplog.records] == [
        ("before", None),
        ("KeyError: 'x'", TRACEBACK),
        ("between", None),
        (" 50%|##", None),
        ("Fatal Python error: Segmentation fault", DUMP),
    ]


def test_a_stack_that_does_not_continue_is_recorded_soon(caplog: pytest.LogCaptureFixture) -> None:
    log = HostLog("cuda:0", 4711)
    lines = DUMP.split("\n")[2:]
    for now, line in enumerate(lines):
        log.stderr(line)
        log.settle(now)
        log.settle(now + 0.1)
    assert not caplog.records
    log.settle(len(lines))
    (record,) = caplog.records
    assert (record.getMessage(), record.stack_info) == (
        "[cuda:0 4711] stderr: the stacks of its threads",
        "\n".join(lines),
    )
    log.stderr("")
    assert len(caplog.records) == 2


def test_a_traceback_without_end_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    log = HostLog("cuda:0", 4711)
    log.stderr("Traceback (most recent call last):")
    for _ in range(2 * LONGEST_STACK):
        log.stderr("  more")
    log.end()
    assert len(caplog.records) == 3


def test_without_handlers_output_goes_to_the_streams_of_the_application(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    log = HostLog("cuda:0", 4711)
    log.stdout("out")
    log.stderr("err")
    log.record("torch", logging.ERROR, "100 % broken %s")
    assert capsys.readouterr() == ("out\n", "err\n")
    assert list(log.tail) == ["err"]


@pytest.mark.parametrize("where", ["callboard.host", "callboard"])
def test_a_handler_on_the_way_to_the_root_is_enough(
    where: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", seen.append)
    monkeypatch.setattr(logging.getLogger(where), "handlers", [handler])
    log = HostLog("cuda:0", 4711)
    log.stderr("err")
    assert [record.getMessage() for record in seen] == ["[cuda:0 4711] stderr: err"]
    monkeypatch.setattr(logging.getLogger("callboard"), "propagate", False)
    monkeypatch.setattr(logging.getLogger(where), "handlers", [])
    log.stderr("more")
    assert capsys.readouterr() == ("", "more\n")


def test_a_stream_that_is_closed_or_missing_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stdout", stream)
        HostLog("cuda:0", 4711).stdout("out")


def test_pipe() -> None:
    reading, writing = os.pipe()
    lines: list[str] = []
    pipe = OutputPipe(reading, lines.append)
    assert pipe.read() is False
    os.write(writing, b"one\ntwo")
    assert pipe.read() is True
    assert lines == ["one"]
    os.close(writing)
    with pytest.raises(EOFError):
        pipe.read()
    pipe.end()
    assert lines == ["one", "two"]
    os.close(reading)
