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


def test_after_some_in_vain_it_pauses_until_a_message_comes_in_time(ends: tuple[socket.socket, SocketChannel]) -> None:
    ours, channel = ends
    for pauses in (1, 3, 7, 15, 31, 63, 63):
        channel.spin(0.0)
        assert channel._pauses == pauses
        for left in reversed(range(pauses)):
            channel.spin(LONG)  # returns at once
            assert channel._pauses == left
    ours.send(encode_frame(StopActor(7)))
    channel.spin(LONG)
    assert channel.receive(0) == [StopActor(7)]
    channel.spin(0.0)
    assert channel._pauses == 1


def test_messages_that_came_while_it_pauses_are_received(ends: tuple[socket.socket, SocketChannel]) -> None:
    ours, channel = ends
    channel.spin(0.0)
    ours.send(encode_frame(StopActor(7)))
    channel.spin(LONG)
    assert channel.receive(None) == [StopActor(7)]
