"""``Link``: silence of the other end, and of its own loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from callboard.device.protocol.remote import PIECE, FromNode, Kill, PulseMessage, ToNode
from callboard.device.protocol.wire import FrameReader, encode_frame
from callboard.device.supervision.remote import link as module
from callboard.device.supervision.remote.link import Link, Piece, pieces

BOUND = 20.0


class Beats:
    """Sleeps of a link's heartbeat, let through one by one, each as long as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._waiting: asyncio.Future[None] | None = None
        self._came = asyncio.Event()
        monkeypatch.setattr(module.asyncio, "sleep", self._sleep)

    async def _sleep(self, _: float) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        self._came.set()
        await self._waiting

    async def pass_by(self, link: Link[Any], seconds: float) -> None:
        """The sleep that is waited for takes so long."""
        await self._came.wait()
        self._came.clear()
        self.now += seconds
        assert self._waiting is not None
        self._waiting.set_result(None)


@pytest.fixture
async def linked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A link, its beats, the other end's streams, and the reasons of its end."""
    beats = Beats(monkeypatch)
    streams: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda r, w: streams.set_result((r, w)), "127.0.0.1")
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    ends: asyncio.Queue[str] = asyncio.Queue()
    messages: asyncio.Queue[Any] = asyncio.Queue()
    link: Link[Any] = Link(reader, writer, FromNode, 1.0, 2.0, messages.put_nowait, lambda why, _: ends.put_nowait(why))
    monkeypatch.setattr(link, "_loop", _Clock(link._loop, lambda: beats.now))
    yield link, beats, await streams, ends
    link.end("over")
    (await streams)[1].close()
    server.close()


class _Clock:
    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._inner = loop
        self.time = now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_silence_of_two_beats_ends_it(linked: Any) -> None:
    link, beats, _, ends = linked
    async with asyncio.timeout(BOUND):
        await beats.pass_by(link, 1.0)
        await beats.pass_by(link, 1.0)
        assert await ends.get() == "no sign of life for 2 s"


async def test_one_beat_that_came_late_is_no_silence(linked: Any) -> None:
    """The loop was busy for ten seconds, in which the other end was heard, but not read."""
    link, beats, (_, writer), ends = linked
    async with asyncio.timeout(BOUND):
        for _ in range(3):
            await beats.pass_by(link, 10.0)
            await beats._came.wait()
            writer.write(encode_frame(PulseMessage()))
            while link._silent:
                await asyncio.wait([asyncio.ensure_future(_turn())])
    assert ends.empty()


async def _turn() -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, None)
    await future


async def test_large_arrays_wait_in_their_arena_and_nowhere_else(linked: Any) -> None:
    link, _, (reader, _), _ = linked
    array = np.arange(48 << 20, dtype=np.uint8)
    link.send(*pieces(7, 100, array.ctypes.data, array.nbytes), Kill("the last"))
    assert link.unsent_bytes > 32 << 20
    assert sum(len(frame) for frame in link._waiting if not isinstance(frame, Piece)) < 1000
    frames: FrameReader[Any] = FrameReader(ToNode)
    got: list[Any] = []
    async with asyncio.timeout(BOUND):
        while not got or not isinstance(got[-1], Kill):
            got += frames.feed(await reader.read(1 << 20))
    assert b"".join(one.data for one in got[:-1]) == array.tobytes()
    assert [one.offset for one in got[:-1]] == [100 + PIECE * n for n in range(48)]


async def test_what_is_forgotten_is_not_read_any_more(linked: Any) -> None:
    link, _, (reader, _), _ = linked
    array = np.zeros(64 << 20, dtype=np.uint8)
    link.send(*pieces(7, 0, array.ctypes.data, array.nbytes))
    link.forget()
    link.send(Kill("now"))
    link.end("over", flush=True)
    frames: FrameReader[Any] = FrameReader(ToNode)
    got: list[Any] = []
    async with asyncio.timeout(BOUND):
        while data := await reader.read(1 << 20):
            got += frames.feed(data)
    assert isinstance(got[-1], Kill)
    assert len(got) < 60


async def test_what_came_before_the_end_is_read() -> None:
    """Two messages and the end of the stream are there before the link looks for the first time."""
    streams: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda r, w: streams.set_result((r, w)), "127.0.0.1")
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    _, there = await streams
    there.write(encode_frame(Kill("first")) + encode_frame(Kill("second")))
    there.close()
    messages: list[Any] = []
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(BOUND):
        while not reader._eof:  # type: ignore[attr-defined]
            await _turn()
        Link(reader, writer, ToNode, 1.0, 60.0, messages.append, lambda why, _: ended.set_result(why))
        assert await ended == "the other end closed the connection"
    assert [message.reason for message in messages] == ["first", "second"]
    server.close()


async def test_what_cannot_be_read_ends_it(linked: Any) -> None:
    _, _, (_, writer), ends = linked
    writer.write(b"\xff" * 64)
    async with asyncio.timeout(BOUND):
        assert "cannot be read" in await ends.get()
