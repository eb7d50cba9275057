"""Interned signatures: they arrive unchanged, each crosses once, and ends that disagree raise."""

import asyncio
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.device.host.socketchannel import Pulse, SocketChannel
from callboard.device.protocol import signatures, wire
from callboard.device.protocol.messages import Call, Calls, ProtocolError, ToHost
from callboard.device.protocol.signatures import SignatureReader, SignatureWriter
from callboard.device.protocol.wire import FrameError, FrameReader, encode_frame
from callboard.device.supervision.hosts.opline import OpLine

SIGNATURES = [b"", *(bytes([0x90 + i]) * (i + 1) for i in range(6))]
names = st.lists(st.lists(st.sampled_from(SIGNATURES), max_size=5), max_size=12)


def message(*wanted: bytes) -> Calls:
    return Calls([Call(i + 1, signature, [i], [0.5], [i], withdrawn=i == 2) for i, signature in enumerate(wanted)])


def crossed(sent: Calls) -> Calls:
    reader: FrameReader[Calls] = FrameReader(ToHost)
    (arrived,) = reader.feed(encode_frame(sent))
    assert isinstance(arrived, Calls)
    return arrived


@pytest.mark.parametrize("most_signatures, most_bytes", [(1 << 16, 1 << 20), (3, 1 << 20), (1 << 16, 6)])
@given(messages=names)
def test_what_arrives_is_what_was_sent(messages: list[list[bytes]], most_signatures: int, most_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signatures, "MOST_SIGNATURES", most_signatures)
        patch.setattr(signatures, "MOST_BYTES", most_bytes)
        writer, reader = SignatureWriter(), SignatureReader()
        for wanted in messages:
            original = message(*wanted)
            arrived = crossed(writer.shorten(original))
            reader.restore(arrived)
            assert arrived.calls == message(*wanted).calls == original.calls


def test_a_signature_crosses_once_and_comes_out_as_one_object() -> None:
    writer, reader = SignatureWriter(), SignatureReader()
    signature = b"\x90" * 8000
    lengths, seen = [], []
    for _ in range(3):
        arrived = crossed(writer.shorten(message(signature, signature)))
        lengths.append(len(encode_frame(arrived)))
        reader.restore(arrived)
        seen += [call.signature for call in arrived.calls]
    assert lengths[0] > 8000 > 100 > lengths[1] == lengths[2]
    assert {id(one) for one in seen} == {id(seen[0])}


@given(messages=names, lost=st.integers(0, 11))
def test_a_lost_message_is_noticed(messages: list[list[bytes]], lost: int) -> None:
    """Or it defined nothing, and nothing is read wrong."""
    writer, reader = SignatureWriter(), SignatureReader()
    for i, wanted in enumerate(messages):
        arrived = crossed(writer.shorten(message(*wanted)))
        if i == lost:
            continue
        try:
            reader.restore(arrived)
        except ProtocolError:
            return
        assert arrived.calls == message(*wanted).calls


def test_numbers_that_were_not_given_are_refused() -> None:
    reader = SignatureReader()
    reader.restore(message(b"\x91"))
    with pytest.raises(ProtocolError, match="op 1: signature c107000000 was not sent"):
        reader.restore(Calls([Call(1, b"\xc1\x07\0\0\0", [], [], [])], 1))
    with pytest.raises(ProtocolError, match="calls refer to 5 signatures, but 1 were sent"):
        reader.restore(Calls([], 5))


async def test_a_line_numbers_signatures_and_a_channel_restores_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME", 1000)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    line = OpLine(asyncio.get_running_loop(), ours, lambda _: None, lambda _: None)
    channel = SocketChannel(theirs, Pulse())
    try:
        for wanted in ([b"\x91", b"\x92"], [b"\x92"], [b"", b"\x91"]):
            line.post(message(*wanted))
            (arrived,) = channel.receive(5.0)
            assert isinstance(arrived, Calls)
            assert [call.signature for call in arrived.calls] == wanted
        with pytest.raises(ValueError, match="at most"):
            line.post(message(b"\x93", b"\x94" * 1000))
        line.post(message(b"\x93"))
        (arrived,) = channel.receive(5.0)
        assert isinstance(arrived, Calls)
        assert arrived.calls[0].signature == b"\x93"
        line.post(Calls([Call(1, b"\xc1\x63\0\0\0", [], [], [])]))  # as nothing of this project does
        line.post(message(b"\x91"))
        assert channel.receive(5.0) == []
        with pytest.raises(FrameError, match="cannot be read: op 1: signature c163000000 was not sent"):
            channel.receive(5.0)
    finally:
        line.close()
        theirs.close()
        os.close(channel._bell)
