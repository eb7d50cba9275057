"""Control messages and texts that are odd: nothing that is logged, named or sent by a host can break its line."""

import logging
import os
import socket
from collections.abc import Iterator

import pytest

from callboard.device.host.childcontrol import LogForwarder
from callboard.device.host.socketchannel import Pulse, SocketChannel
from callboard.device.protocol.control import MAX_CONTROL, Beat, LogRecord, control_pair, from_child, to_control
from callboard.device.protocol.messages import ContextDied, FailureMessage, FromHost
from callboard.device.protocol.wire import FrameReader
from callboard.device.supervision.hosts.liveness import Liveness
from callboard.device.supervision.hosts.monitor import WatchedHost
from callboard.device.supervision.hosts.output import HostLog

ODD = "caf\udce9"


class Sent:
    """Stands for the control thread: encodes what is logged, as it does."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def log(self, record: LogRecord) -> None:
        body = to_control(record)
        assert len(body) <= MAX_CONTROL
        message = from_child(body)
        assert isinstance(message, LogRecord)
        self.records.append(message)


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no repr")

    __str__ = __repr__


def test_every_log_record_fits_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    sent = Sent()
    forwarder = LogForwarder(sent)  # type: ignore[arg-type]
    for name, level, text in (
        ("name", 20, ODD),
        (ODD * 10_000, 20, "plain"),
        ("name", 20, "ä" * 20_000),
        ("name", 20, "\U0001f600" * 1_000_000),
        ("name", 1 << 80, "no level"),
        ("name", 20, Unprintable()),
    ):
        forwarder.emit(logging.LogRecord(name, level, "path", 1, text, None, None))
    assert [r.text[:8] for r in sent.records] == ["caf\\udce", "plain", "ä" * 8, "\U0001f600" * 8]
    assert "bytes left out" in sent.records[1].logger
    assert "[... 23,616 bytes left out ...]" in sent.records[2].text
    assert capsys.readouterr().err.count("--- Logging error ---") == 2  # the other two say so on stderr


@pytest.fixture
def watched() -> Iterator[tuple[WatchedHost, socket.socket]]:
    ours, theirs = control_pair()
    watched = WatchedHost(
        os.getpid(), os.pidfd_open(os.getpid()), ours, (), HostLog("host", 1), Liveness(9.0, 300.0, 1.0), 1.0, print
    )
    yield watched, theirs
    theirs.close()
    watched.close()


def test_control_messages_that_cannot_be_read_are_logged(
    watched: tuple[WatchedHost, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    host, theirs = watched
    deep = b"\x95\x02" + b"\xa1a\x00\xa1b" + b"\x91" * 30_000 + b"\x90"
    for body in (b"\x94\x02\xa1a\x14\xa2\xff\xfe", b"\xc1", b"\x94\x02\xa1a\x14", deep):
        theirs.send(body)
    theirs.send(to_control(LogRecord("name", 1 << 60, "a high level")))
    theirs.send(to_control(Beat(7, True, "")))
    assert host.read_control() is False
    assert [r.levelno for r in caplog.records if "a high level" in r.message] == [logging.CRITICAL]
    assert len([r for r in caplog.records if "a control message cannot be read" in r.message]) == 4


def test_a_text_of_the_systems_does_not_break_the_line() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = SocketChannel(theirs, Pulse())
        failure = FailureMessage(5, "OSError", ODD, {"path": ODD, ODD: [b"\xff", 1.5]}, notes=[ODD, "plain"])
        channel.send(ContextDied(3, failure))
        reader: FrameReader[FromHost] = FrameReader(FromHost)
        (message,) = reader.feed(ours.recv(1 << 16))
        assert isinstance(message, ContextDied)
        assert message.generation == 3
        text = "caf\\udce9"
        assert message.error == FailureMessage(
            5, "OSError", text, {"path": text, text: [b"\xff", 1.5]}, notes=[text, "plain"]
        )
        os.close(channel._bell)
