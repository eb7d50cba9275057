"""A host that looks for its next message for a moment: whatever it waits for ends that."""

import os
import socket
from collections.abc import Iterator

import pytest

from callboard.device.host.socketchannel import Pulse, SocketChannel
from callboard.device.protocol.messages import StopActor
from callboard.device.protocol.wire import encode_frame

LONG = 600.0
"""Seconds; more than the test may take."""


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, SocketChannel]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = SocketChannel(theirs, Pulse())
        yield ours, channel
        os.close(channel._bell)


def test_a_message_ends_it(ends: tuple[socket.socket, SocketChannel]) -> None:
    ours, channel = ends
    ours.send(encode_frame(StopActor(7)))
    channel.spin(LONG)
    assert channel.receive(0) == [StopActor(7)]


def test_a_wake_ends_it_and_the_wait_behind_it(ends: tuple[socket.socket, SocketChannel]) -> None:
    _, channel = ends
    channel.wake()
    channel.spin(LONG)
    assert channel.receive(None) == ()


def test_the_other_end_ends_it(ends: tuple[socket.socket, SocketChannel]) -> None:
    ours, channel = ends
    ours.close()
    channel.spin(LONG)


def test_it_ends_by_itself(ends: tuple[socket.socket, SocketChannel]) -> None:
    _, channel = ends
    channel.spin(1e-4)
    assert channel.receive(0) == ()
