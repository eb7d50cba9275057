"""Frames: any split gives the same messages, garbage is refused and nothing else."""

import math
import struct
from itertools import pairwise
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.device.protocol import messages as p
from callboard.device.protocol.messages import FromHost, ToHost
from callboard.device.protocol.wire import (
    MAX_FRAME,
    FrameError,
    FrameReader,
    TruncatedStream,
    UnknownKind,
    encode_frame,
)


def example(hint: Any) -> Any:
    """A value of a field's type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is list:
        return [example(arguments[0])] * 3
    if origin is dict:
        return {example(arguments[0]): example(arguments[1])}
    if origin is tuple:
        return tuple(example(argument) for argument in arguments)
    if origin is not None:  # a union
        return example(arguments[0])
    if isinstance(hint, type) and issubclass(hint, p.Plain):
        return hint(*(example(field.type) for field in msgspec.structs.fields(hint)))
    samples = {int: 1 << 40, float: 1.5, str: "Äb", bytes: b"x" * 300, bool: True, Any: [0.5, None]}
    return msgspec.Raw(b"\x93\x01\x02\x03") if hint is msgspec.Raw else samples[hint]


TO_HOST: list[Any] = [example(cls) for cls in get_args(ToHost)]
FROM_HOST: list[Any] = [example(cls) for cls in get_args(FromHost)]
FLUSH = p.Flush()


def plain(message: Any) -> Any:
    """Comparable: Raw compares by identity."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message)) if isinstance(message, p.Plain) else message


def read(union: Any, *pieces: bytes) -> list[Any]:
    reader: FrameReader[Any] = FrameReader(union)
    got = [message for piece in pieces for message in reader.feed(piece)]
    reader.end()
    return got


@pytest.mark.parametrize("union, messages", [(ToHost, TO_HOST), (FromHost, FROM_HOST)])
def test_every_message_comes_back(union: Any, messages: list[Any]) -> None:
    got = read(union, b"".join(encode_frame(message) for message in messages))
    assert [type(message) for message in got] == [type(message) for message in messages]
    assert [plain(message) for message in got] == [plain(message) for message in messages]


def test_a_message_that_nobody_would_accept_is_refused_by_the_sender() -> None:
    longest = MAX_FRAME - 100
    assert len(read(FromHost, bytes(encode_frame(p.Answer(1, bytes(longest)))))) == 1
    with pytest.raises(ValueError, match=r"an? Answer message of .* bytes; at most"):
        encode_frame(p.Answer(1, bytes(MAX_FRAME)))


def test_messages_do_not_share_the_memory_that_was_fed() -> None:
    """The receive buffer is used again for the next portion."""
    reader: FrameReader[ToHost] = FrameReader(ToHost)
    turn = example(p.ActorCall)
    frame = bytearray(encode_frame(turn))
    (got,) = reader.feed(memoryview(frame))
    frame[:] = bytes(len(frame))
    list(reader.feed(encode_frame(example(p.Calls))))
    assert plain(got) == plain(turn)


@given(cuts=st.lists(st.integers(0, 2000), max_size=40))
def test_any_split_gives_the_same(cuts: list[int]) -> None:
    stream = b"".join(encode_frame(message) for message in FROM_HOST)
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert [plain(message) for message in read(FromHost, *pieces)] == [plain(message) for message in FROM_HOST]


@given(cuts=st.lists(st.integers(0, 2000), max_size=40))
def test_relayed_frames_come_as_they_are(cuts: list[int]) -> None:
    stream = b"".join(encode_frame(message) for message in FROM_HOST)
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    reader: FrameReader[Any] = FrameReader(FromHost, {p.Completions, p.Answer, p.ContextDied})
    again = bytearray()
    decoded: set[type] = set()
    for a, b in pairwise(places):
        for got in reader.feed(stream[a:b]):
            again += got if isinstance(got, memoryview) else encode_frame(got)
            decoded.add(type(got))
    reader.end()
    assert again == stream  # in order
    assert decoded == {memoryview, *get_args(FromHost)} - {p.Completions, p.Answer, p.ContextDied}


def test_adjacent_relayed_frames_are_one_and_are_not_looked_into() -> None:
    broken = struct.pack("<IB", 3, 3) + b"\xff\xff\xff"  # a kind that exists, with a body that no message has
    reader: FrameReader[Any] = FrameReader(FromHost, {p.Completions})
    too_long = struct.pack("<IB", MAX_FRAME + 1, 3)
    got = reader.feed(broken * 3 + encode_frame(FLUSH) + broken + too_long)
    assert bytes(next(got)) == broken * 3
    assert type(next(got)) is p.Flush
    assert bytes(next(got)) == broken
    with pytest.raises(FrameError, match="at most"):
        next(got)


def test_byte_by_byte() -> None:
    stream = b"".join(encode_frame(message) for message in FROM_HOST)
    got = read(FromHost, *(stream[i : i + 1] for i in range(len(stream))))
    assert [plain(message) for message in got] == [plain(message) for message in FROM_HOST]


def test_a_long_frame_in_pieces_is_put_together_once() -> None:
    frame = encode_frame(p.Answer(1, bytes(8 << 20)))
    reader: FrameReader[FromHost] = FrameReader(FromHost)
    got = [m for i in range(0, len(frame), 65536) for m in reader.feed(frame[i : i + 65536])]
    assert [type(message) for message in got] == [p.Answer]


def consume(data: list[bytes], union: Any) -> list[Any]:
    """What comes before the break, if there is one."""
    reader: FrameReader[Any] = FrameReader(union)
    got: list[Any] = []
    try:
        for piece in data:
            got.extend(reader.feed(piece))
        reader.end()
    except FrameError:
        pass
    return got


@given(data=st.lists(st.binary(max_size=400), max_size=5))
def test_garbage_raises_frame_errors_only(data: list[bytes]) -> None:
    consume(data, FromHost)
    consume(data, ToHost)


@given(kind=st.integers(1, 12), body=st.binary(max_size=300))
def test_garbage_in_a_sound_frame(kind: int, body: bytes) -> None:
    for union in (FromHost, ToHost):
        consume([struct.pack("<IB", len(body), kind) + body], union)


@given(which=st.sampled_from(FROM_HOST), at=st.integers(0, 500), bit=st.integers(0, 7))
def test_a_flipped_bit(which: Any, at: int, bit: int) -> None:
    frame = bytearray(encode_frame(which))
    frame[at % len(frame)] ^= 1 << bit
    consume([bytes(frame), bytes(encode_frame(p.Flush()))], FromHost)


BOMBS = {
    "a list of 2**32 - 1": b"\x94\x03\xdd\xff\xff\xff\xff",
    "a list of 2**28": b"\x94\x03\x90\x90\xdd\x0f\xff\xff\xff",
    "deep nesting": b"\x94\x03\x90\x91\x92\x01" + b"\x91" * 100_000,
    "text that is none": b"\x94\x03\x90\x91\x92\x01\xa1\xc3\x90",
    "a map as a key": b"\x94\x03\x90\x91\x92\x01\x81\x80\x01\x90",
    "a long value": b"\x94\x03\x90\x91\x92\x01\xc6\xff\xff\xff\xff",
}


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS.keys())
def test_decode_bombs_are_refused(body: bytes) -> None:
    tracemalloc = pytest.importorskip("tracemalloc")
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            read(FromHost, struct.pack("<IB", len(body), 3) + body)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_messages_before_the_break_are_given() -> None:
    reader: FrameReader[FromHost] = FrameReader(FromHost)
    messages = reader.feed(encode_frame(p.Flush()) + struct.pack("<IB", MAX_FRAME + 1, 3))
    assert type(next(messages)) is p.Flush
    with pytest.raises(FrameError, match="at most"):
        next(messages)


def test_an_unknown_kind_does_not_break_the_stream() -> None:
    got = read(FromHost, struct.pack("<IB", 3, 200) + b"abc" + bytes(encode_frame(p.Flush())))
    assert [type(message) for message in got] == [UnknownKind, p.Flush]
    assert got[0].kind == 200


@pytest.mark.parametrize("missing", [1, 4, 10])
def test_an_end_inside_a_frame(missing: int) -> None:
    reader: FrameReader[FromHost] = FrameReader(FromHost)
    assert list(reader.feed(encode_frame(p.Answer(1, bytes(20)))[:-missing])) == []
    with pytest.raises(TruncatedStream, match="inside a frame"):
        reader.end()


class WireMachine(RuleBasedStateMachine):
    """One direction of a connection: frames are written, arrive in portions of any size, and break off somewhere.

    The model is the list of what was written: a reader has given all whose last byte has arrived, none of the others,
    and nothing that stands behind a break.
    """

    @initialize()
    def connect(self) -> None:
        self.reader: FrameReader[Any] = FrameReader(FromHost)
        self.under_way = bytearray()
        self.arrived = 0
        self.written = 0
        self.sent: list[tuple[int, Any]] = []
        self.got: list[Any] = []
        self.break_at: int | None = None
        self.broken = False

    def write(self, frame: bytes, what: Any) -> None:
        self.under_way += frame
        self.written += len(frame)
        if self.break_at is None:
            self.sent.append((self.written, what))

    @rule(which=st.sampled_from(FROM_HOST))
    def send(self, which: Any) -> None:
        self.write(encode_frame(which), plain(which))

    @rule(kind=st.integers(150, 255), body=st.binary(max_size=20))
    def send_an_unknown_kind(self, kind: int, body: bytes) -> None:
        self.write(struct.pack("<IB", len(body), kind) + body, UnknownKind(kind))

    @precondition(lambda self: self.break_at is None)
    @rule(frame=st.sampled_from([struct.pack("<IB", MAX_FRAME + 1, 3), struct.pack("<IB", 1, 3) + b"\xc1"]))
    def send_what_is_no_frame(self, frame: bytes) -> None:
        self.break_at = self.written + len(frame)
        self.write(frame, None)

    @precondition(lambda self: not self.broken)
    @rule(share=st.floats(0, 1))
    def deliver(self, share: float) -> None:
        count = round(share * len(self.under_way))
        portion = bytes(self.under_way[:count])
        del self.under_way[:count]
        self.arrived += count
        try:
            self.got += map(plain, self.reader.feed(portion))
        except FrameError:
            self.broken = True

    @invariant()
    def what_has_arrived_was_given(self) -> None:
        assert self.got == [what for end, what in self.sent if end <= self.arrived]
        assert self.broken == (self.break_at is not None and self.break_at <= self.arrived)

    def teardown(self) -> None:
        """The stream ends here: that is told where it is in the middle of a frame."""
        if self.broken or self.break_at is not None:
            return
        ends = {0, *(end for end, _ in self.sent)}
        try:
            self.reader.end()
        except TruncatedStream:
            assert self.arrived not in ends
        else:
            assert self.arrived in ends


WireMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestWire = WireMachine.TestCase


def test_numbers_keep_their_type_and_every_bit() -> None:
    numbers = [2**64 - 1, -(2**63), 2**53 + 1, 0, 3.0, -0.0, 5e-324, math.inf, 0.1]
    frame = encode_frame(p.Calls([p.Call(1, b"signature", [], numbers, [])]))
    (received,) = FrameReader[Any](ToHost).feed(frame)
    assert repr(received.calls[0].numbers) == repr(numbers)
